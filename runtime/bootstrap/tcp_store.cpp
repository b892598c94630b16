#include "runtime/bootstrap/tcp_store.hpp"

#include "common/kept_fd.hpp"
#include "common/text.hpp"
#include "runtime/bootstrap/tcp_store_protocol.hpp"
#include "runtime/bootstrap/tcp_store_server.hpp"
#include "runtime/wake_event.hpp"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <utility>

namespace acc::runtime {

using namespace tcp_store;
using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

namespace {

/// How long a server may take to identify itself: one of another protocol may never answer.
constexpr auto kWelcomeTime = 2s;
/// How long a restarted rank retries: the server may not have noticed yet that the connection of
/// its predecessor has ended.
constexpr auto kTakenTime = 2s;

Result<std::vector<std::string>> read_frame(int fd, Deadline deadline) {
  std::uint32_t size = 0;
  if (auto got = receive_all(fd, std::as_writable_bytes(std::span{&size, 1}), deadline); !got)
    return got.error();
  if (size > kMaxFrame + 64)
    return acc::Error{Errc::malformed, "a frame of " + std::to_string(size) + " bytes"};
  std::string frame(size, '\0');
  if (auto got = receive_all(fd, std::as_writable_bytes(std::span{frame}), deadline); !got)
    return got.error();
  auto fields = unpack(frame);
  if (!fields || fields->empty()) return acc::Error{Errc::malformed, "an answer that isn't ours"};
  return *std::move(fields);
}

/// Until there is something to read at `fd`. `look`, if any, as in Store::get_looking.
Result<void> await_data(int fd, Deadline deadline, const Store::Look& look) {
  if (!look) return await(fd, POLLIN, deadline);
  for (;;) {
    const auto slice = std::min(deadline, Clock::now() + Store::kLookInterval);
    auto ready = await(fd, POLLIN, slice);
    if (ready || ready.error().code != Errc::timed_out) return ready;
    look();
    if (slice == deadline) return ready;
  }
}

/// Why the server refused this rank; the code tells how to go on.
acc::Error refusal(const std::vector<std::string>& answer, const SocketAddress& address,
                   const TcpStorePlace& place) {
  const auto kind = answer.size() == 3 ? answer[1] : "";
  const auto why = answer.size() == 3 ? printable(answer[2]) : "it refused";
  if (kind == kRankTaken)
    return {Errc::bad_usage, "two processes are rank " + std::to_string(place.rank) +
                                 " of this job: this one, " + this_process(place.rank).who +
                                 ", and " + why + ", which the store at " + address.text() +
                                 (place.rank == 0 ? " belongs to" : " knows already") +
                                 ". Either RANK=" + std::to_string(place.rank) +
                                 " was given twice, or two jobs meet at one place: give each a "
                                 "MASTER_PORT of its own"};
  if (kind == kExhausted) return {Errc::exhausted, why};
  return {Errc::malformed, address.text() + " is no store of ours: " + why};
}

/// A new connection to the server at `address`, if it is this job's.
/// @return bad_usage: the rank is taken; exhausted; timed_out; else: no store of this job is there.
Result<UniqueFd> greet(const SocketAddress& address, const TcpStorePlace& place, Deadline deadline,
                       const Store::Look& look = {}) {
  auto fd = connect_to(address, deadline);
  if (!fd) return fd;
  if (address.is_abstract() && !is_same_user(fd->get()))
    return acc::Error{Errc::not_permitted, address.text() + " belongs to another user"};
  keep_alive(fd->get());
  const auto self = this_process(place.rank);
  const auto hello =
      magic() +
      framed(pack({"hello", place.job, std::to_string(place.rank), self.process, self.who}));
  const auto sent = send_all(fd->get(), bytes_of(hello), deadline);
  std::string theirs(sizeof kMagic, '\0');
  const auto stranger = [&](const std::string& how) {
    return acc::Error{Errc::malformed, address.text() + " is no store of ours: " + how};
  };
  // Also after a failed send: a server that closed may have sent the reason before.
  auto got = await_data(fd->get(), deadline, look);
  if (got) got = receive_all(fd->get(), std::as_writable_bytes(std::span{theirs}), deadline);
  if (!got) {
    const auto& why = (sent ? got : sent).error();
    auto wrong = stranger(why.what);
    if (why.code == Errc::timed_out) wrong.code = Errc::timed_out;
    return wrong;
  }
  if (theirs != magic()) return stranger("it greets with '" + printable(theirs, 20) + "'");
  const auto answer = read_frame(fd->get(), deadline);
  if (!answer) {
    auto wrong = stranger(answer.error().what);
    if (answer.error().code == Errc::timed_out) wrong.code = Errc::timed_out;
    return wrong;
  }
  if (answer->front() != "welcome") return refusal(*answer, address, place);
  return fd;
}

class TcpStore final : public Store {
 public:
  TcpStore(TcpStorePlace place, SocketAddress address, UniqueFd first,
           std::unique_ptr<TcpStoreServer> server)
      : place_{std::move(place)}, address_{address}, server_{std::move(server)} {
    idle_.emplace_back(std::move(first));
  }

  [[nodiscard]] std::string kind() const override { return "tcp"; }

  void set(const std::string& key, const std::string& value) override {
    if (key.size() + value.size() + 64 > kMaxFrame)
      throw Error{ErrorCode::invalid_argument, "the value of '" + key + "' has " +
                                                   std::to_string(value.size()) +
                                                   " bytes, more than the store takes"};
    (void)ask({"set", key, value}, Clock::now() + kPatience);
  }

  [[nodiscard]] std::string get(const std::string& key, Deadline deadline) override {
    return get_looking(key, deadline, {});
  }

  // One request: its answer takes a round trip, which may be longer than kLookInterval.
  [[nodiscard]] std::string get_looking(const std::string& key, Deadline deadline,
                                        const Look& look) override {
    auto answer = ask({"get", key}, deadline, look);
    return answer.size() > 1 ? std::move(answer[1]) : std::string{};
  }

  [[nodiscard]] std::optional<std::string> peek(const std::string& key) override {
    auto answer = ask({"peek", key}, Clock::now() + kPatience);
    if (answer.size() < 2) return std::nullopt;
    return std::move(answer[1]);
  }

  std::int64_t add(const std::string& key, std::int64_t delta) override {
    const auto answer = ask({"add", key, std::to_string(delta)}, Clock::now() + kPatience);
    const auto sum = parse_number<std::int64_t>(answer.size() > 1 ? answer[1] : "");
    if (!sum) throw Error{ErrorCode::system, where() + " answered no number"};
    return *sum;
  }

  void remove(const std::string& key) override {
    (void)ask({"remove", key}, Clock::now() + kPatience);
  }

 private:
  static constexpr auto kPatience = 30s;  ///< for requests that don't wait
  /// How long rank 0's server may take to notice that the program has closed its listener.
  static constexpr auto kReopenTime = std::chrono::milliseconds{5 * WakeEvent::kLongestWaitMs};

  [[nodiscard]] Error gone(const acc::Error& how) const {
    if (how.errnum == EHOSTUNREACH || how.errnum == ENETUNREACH)
      return {ErrorCode::system, where() + " can't be reached: " + how.what};
    return {ErrorCode::system,
            where() + " is gone (rank 0's process ended, or closed it): " + how.what};
  }

  [[nodiscard]] std::string where() const { return "the store of rank 0 at " + address_.text(); }

  std::vector<std::string> ask(std::initializer_list<std::string> question, Deadline deadline,
                               const Look& look = {}) {
    auto line = take(deadline, look);
    auto ready = send_all(line.get(), bytes_of(framed(pack(question))), deadline);
    // A server that closed may have sent the reason before.
    if (ready || ready.error().code != Errc::timed_out)
      ready = await_data(line.get(), deadline, look);
    if (!line.is_ours())
      throw Error{ErrorCode::system, "this program has closed the connection to " + where()};
    auto answer =
        ready ? read_frame(line.get(), deadline) : Result<std::vector<std::string>>{ready.error()};
    const auto& verb = *question.begin();
    if (!answer && answer.error().code == Errc::timed_out)
      throw Error{ErrorCode::timed_out, verb == "get" ? "key '" + *(question.begin() + 1) +
                                                            "' was not set in time in " + where()
                                                      : where() + " doesn't answer"};
    if (!answer) throw gone(answer.error());
    if (answer->front() == "error")
      throw Error{ErrorCode::invalid_argument,
                  where() + " refused: " + (answer->size() > 1 ? answer->at(1) : "")};
    const std::lock_guard lock{mutex_};
    idle_.push_back(std::move(line));
    if (answer->front() == "failed")
      throw Error{ErrorCode::system, answer->size() > 1 ? answer->at(1) : where() + " failed"};
    return *std::move(answer);
  }

  // A waiting request occupies its connection, so each thread takes one for itself. A failed one is
  // not returned to the pool.
  KeptFd take(Deadline deadline, const Look& look) {
    bool is_closed = false;  // by the program, which has closed the server's as well
    {
      const std::lock_guard lock{mutex_};
      while (!idle_.empty()) {
        auto line = std::move(idle_.back());
        idle_.pop_back();
        if (line.is_ours()) return line;
        is_closed = true;
      }
    }
    if (server_) return KeptFd{server_->connect()};
    const auto until = std::min(deadline, Clock::now() + kPatience);
    const auto reopened = std::min(until, Clock::now() + (is_closed ? kReopenTime : 0ms));
    auto line = greet(address_, place_, until, look);
    // Nothing signals that rank 0 listens again: a refused connection can only be retried.
    while (!line && Clock::now() < reopened) {
      ::poll(nullptr, 0, 10);
      line = greet(address_, place_, until, look);
    }
    if (line) return KeptFd{*std::move(line)};
    if (line.error().code == Errc::timed_out)
      throw Error{Clock::now() >= deadline ? ErrorCode::timed_out : ErrorCode::system,
                  where() + " doesn't answer: " + line.error().what};
    if (line.error().code == Errc::exhausted) throw Error{ErrorCode::system, line.error().what};
    throw gone(line.error());
  }

  TcpStorePlace place_;
  SocketAddress address_;
  std::mutex mutex_;
  std::vector<KeptFd> idle_;
  std::unique_ptr<TcpStoreServer> server_;  ///< rank 0's
};

std::vector<std::uint16_t> ports_of(const TcpStorePlace& place) {
  return place.host.empty() ? std::vector<std::uint16_t>{0} : place.ports;
}

Result<std::vector<SocketAddress>> addresses_of(const TcpStorePlace& place, Deadline deadline) {
  if (place.host.empty()) return std::vector{SocketAddress::abstract(place.name)};
  if (is_localhost(place.host))
    return std::vector{*SocketAddress::numeric("127.0.0.1", 0), *SocketAddress::numeric("::1", 0)};
  return resolve(place.host, 0, deadline);
}

// ---- rank 0 ----

/// Loopback where all ranks are on this host, so that no other host reaches the store; else all
/// interfaces, as in torch: the master's name may resolve to another address here than elsewhere
/// (127.0.1.1 in Debian's /etc/hosts).
std::vector<SocketAddress> places_to_bind(const TcpStorePlace& place, Deadline deadline) {
  const auto named = addresses_of(place, deadline);
  if (place.host.empty()) return *named;
  const bool loopback =
      named && !named->empty() && std::ranges::all_of(*named, &SocketAddress::is_loopback);
  if (loopback && place.local) return *named;
  return {*SocketAddress::numeric("::", 0), *SocketAddress::numeric("0.0.0.0", 0)};
}

/// The place of rank 0 is taken. @return the store if it is this process's own (the C++ and C
/// libraries may be loaded together). Nothing: another program's, described in `found`.
/// @throws Error invalid_argument: it is another rank 0 of this job.
std::shared_ptr<Store> look_who_listens(const TcpStorePlace& place, std::uint16_t port,
                                        Deadline deadline, std::string& found) {
  std::vector<SocketAddress> addresses;
  if (auto named = addresses_of(place, deadline)) addresses = *std::move(named);
  if (!place.host.empty()) {
    addresses.push_back(*SocketAddress::numeric("127.0.0.1", 0));
    addresses.push_back(*SocketAddress::numeric("::1", 0));
  }
  for (auto& address : addresses) {
    address.set_port(port);
    auto line = greet(address, place, std::min(deadline, Clock::now() + kWelcomeTime));
    if (line) return std::make_shared<TcpStore>(place, address, *std::move(line), nullptr);
    const auto& why = line.error();
    if (why.code == Errc::bad_usage)
      throw Error{ErrorCode::invalid_argument, why.what, {place.rank}};
    if (why.code != Errc::malformed && why.code != Errc::not_permitted &&
        why.code != Errc::timed_out)
      continue;
    found = "listen at " + address.text() + ": Address already in use (" + why.what + ")";
    return nullptr;
  }
  return nullptr;
}

std::shared_ptr<Store> serve(const TcpStorePlace& place, Deadline deadline) {
  std::string found;
  for (const auto port : ports_of(place)) {
    for (auto address : places_to_bind(place, deadline)) {
      address.set_port(port);
      auto listener = listen_at(address, SOMAXCONN);
      if (listener) {
        const auto own = local_address(listener->get());
        auto server = std::make_unique<TcpStoreServer>(*std::move(listener), place.job,
                                                       this_process(place.rank), place.size);
        auto first = server->connect();
        return std::make_shared<TcpStore>(place, own, std::move(first), std::move(server));
      }
      found = listener.error().what;
      if (listener.error().errnum != EADDRINUSE)
        continue;  // no IPv6, for example: the next address
      if (auto own = look_who_listens(place, port, deadline, found)) return own;
      break;
    }
  }
  throw Error{
      ErrorCode::system,
      "rank 0 can't serve the store that the ranks meet at: " + found +
          (place.ports.size() > 1 ? "; nor at the " + std::to_string(place.ports.size() - 1) +
                                        " other ports that are tried"
           : place.host.empty() ? ""
                                : "; set MASTER_PORT to a port that is free on rank 0's "
                                  "host, on all ranks")};
}

// ---- the others ----

bool is_final(const acc::Error& error) {
  return error.code == Errc::bad_usage || error.code == Errc::exhausted;
}

/// One attempt at each address and port. @return the error of the most promising one.
acc::Error try_all(const TcpStorePlace& place, Deadline deadline, std::shared_ptr<Store>& opened) {
  auto addresses = addresses_of(place, deadline);
  if (!addresses) return addresses.error();
  std::optional<acc::Error> wrong;
  for (const auto port : ports_of(place)) {
    for (auto address : *addresses) {
      address.set_port(port);
      auto line = greet(address, place, std::min(deadline, Clock::now() + kWelcomeTime));
      if (line) {
        opened = std::make_shared<TcpStore>(place, address, *std::move(line), nullptr);
        return {};
      }
      if (is_final(line.error())) return line.error();
      // A refusal says more than a closed port.
      const bool says_more =
          line.error().code == Errc::malformed || line.error().code == Errc::timed_out;
      if (!wrong || (says_more && wrong->code != Errc::malformed)) wrong = line.error();
    }
  }
  return wrong.value_or(acc::Error{Errc::not_found, "'" + place.host + "' has no address"});
}

std::shared_ptr<Store> join(const TcpStorePlace& place, Deadline deadline) {
  const auto began = Clock::now();
  auto pause = 1ms;
  acc::Error wrong{Errc::timed_out, ""};
  for (;;) {
    std::shared_ptr<Store> opened;
    auto attempt = try_all(place, deadline, opened);
    if (opened) return opened;
    // The last attempt runs out of time: what an earlier one was told is the reason.
    if (wrong.what.empty() || attempt.code != Errc::timed_out) wrong = std::move(attempt);
    if (wrong.code == Errc::exhausted) throw Error{ErrorCode::system, wrong.what, {0}};
    const bool is_late = Clock::now() + pause >= deadline;
    if (wrong.code == Errc::bad_usage && (is_late || Clock::now() - began >= kTakenTime))
      throw Error{ErrorCode::invalid_argument, wrong.what, {place.rank}};
    if (is_late)
      throw Error{ErrorCode::timed_out,
                  "rank 0 of " + std::to_string(place.size) + " has not joined: no store at " +
                      describe(place) + " after " +
                      acc::describe(std::chrono::duration_cast<Millis>(Clock::now() - began)) +
                      ": " + wrong.what,
                  {0}};
    // Nothing signals that rank 0 listens: a refused connection can only be retried.
    ::poll(nullptr, 0, static_cast<int>(pause.count()));
    pause = std::min(pause * 2, 100ms);
  }
}

}  // namespace

std::shared_ptr<Store> open_tcp_store(const TcpStorePlace& place, Deadline deadline) {
  return place.rank == 0 ? serve(place, deadline) : join(place, deadline);
}

}  // namespace acc::runtime
