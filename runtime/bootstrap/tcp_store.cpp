#include "runtime/bootstrap/tcp_store.hpp"

#include "common/text.hpp"
#include "runtime/bootstrap/tcp_store_protocol.hpp"
#include "runtime/bootstrap/tcp_store_server.hpp"

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

/// How long a server may take to say who it is: one of another protocol may never answer.
constexpr auto kWelcomeTime = 2s;

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

/// A new line to the server that is there, if it is ours.
Result<UniqueFd> greet(const SocketAddress& address, const TcpStorePlace& place,
                       Deadline deadline) {
  auto fd = connect_to(address, deadline);
  if (!fd) return fd;
  if (address.is_abstract() && !is_same_user(fd->get()))
    return acc::Error{Errc::not_permitted, address.text() + " belongs to another user"};
  const auto hello =
      magic() +
      framed(pack({"hello", place.job, std::to_string(place.size), std::to_string(place.rank)}));
  if (auto sent = send_all(fd->get(), bytes_of(hello), deadline); !sent) return sent.error();
  std::string theirs(sizeof kMagic, '\0');
  const auto stranger = [&](const std::string& how) {
    return acc::Error{Errc::malformed, address.text() + " is no store of ours: " + how};
  };
  auto got = receive_all(fd->get(), std::as_writable_bytes(std::span{theirs}), deadline);
  if (!got) return stranger(got.error().what);
  if (theirs != magic()) return stranger("it greets with '" + printable(theirs, 20) + "'");
  const auto answer = read_frame(fd->get(), deadline);
  if (!answer) return stranger(answer.error().what);
  if (answer->front() != "welcome")
    return stranger(answer->size() > 1 ? printable(answer->at(1)) : "it refused");
  return fd;
}

class TcpStore final : public Store {
 public:
  TcpStore(TcpStorePlace place, SocketAddress address, UniqueFd first,
           std::unique_ptr<TcpStoreServer> server)
      : place_{std::move(place)}, address_{address}, server_{std::move(server)} {
    idle_.push_back(std::move(first));
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
    auto answer = ask({"get", key}, deadline);
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

 private:
  static constexpr auto kPatience = 30s;  ///< for what is answered at once

  [[nodiscard]] Error gone(const acc::Error& how) const {
    return {ErrorCode::system, where() + " is gone (rank 0 ended, or left its group): " + how.what};
  }

  [[nodiscard]] std::string where() const { return "the store of rank 0 at " + address_.text(); }

  std::vector<std::string> ask(std::initializer_list<std::string> question, Deadline deadline) {
    auto line = take(deadline);
    auto sent = send_all(line.get(), bytes_of(framed(pack(question))), deadline);
    auto answer =
        sent ? read_frame(line.get(), deadline) : Result<std::vector<std::string>>{sent.error()};
    const auto& verb = *question.begin();
    if (!answer && answer.error().code == Errc::timed_out)
      throw Error{ErrorCode::timed_out, verb == "get" ? "key '" + *(question.begin() + 1) +
                                                            "' didn't come into " + where()
                                                      : where() + " doesn't answer"};
    if (!answer) throw gone(answer.error());
    if (answer->front() == "error")
      throw Error{ErrorCode::invalid_argument,
                  where() + " refused: " + (answer->size() > 1 ? answer->at(1) : "")};
    const std::lock_guard lock{mutex_};
    idle_.push_back(std::move(line));
    return *std::move(answer);
  }

  // A question that waits keeps its line: each thread takes one for itself. One that failed isn't
  // put back.
  UniqueFd take(Deadline deadline) {
    {
      const std::lock_guard lock{mutex_};
      if (!idle_.empty()) {
        auto line = std::move(idle_.back());
        idle_.pop_back();
        return line;
      }
    }
    auto line = greet(address_, place_, std::min(deadline, Clock::now() + kPatience));
    if (!line) throw gone(line.error());
    return *std::move(line);
  }

  TcpStorePlace place_;
  SocketAddress address_;
  std::mutex mutex_;
  std::vector<UniqueFd> idle_;
  std::unique_ptr<TcpStoreServer> server_;  ///< rank 0's
};

// ---- rank 0 ----

/// Loopback where all ranks are said to be here; else all interfaces, as torch: the master's name
/// may mean another address here than it means elsewhere (127.0.1.1 in Debian's /etc/hosts).
std::vector<SocketAddress> places_to_bind(const TcpStorePlace& place, Deadline deadline) {
  if (place.host.empty()) return {SocketAddress::abstract(place.name)};
  std::vector<SocketAddress> bind;
  const auto add = [&](const char* host) {
    bind.push_back(*SocketAddress::numeric(host, place.port));
  };
  const auto named = resolve(place.host, place.port, deadline);
  const bool loopback = named && !named->empty() && named->front().is_loopback();
  if (loopback && place.local) return {named->front()};
  add("::");
  add("0.0.0.0");
  return bind;
}

std::shared_ptr<Store> serve(const TcpStorePlace& place, Deadline deadline) {
  std::string found;
  for (int i = 0; i < (place.host.empty() ? 1 : place.ports); ++i) {
    for (auto address : places_to_bind(place, deadline)) {
      address.set_port(static_cast<std::uint16_t>(place.port + i));
      auto listener = listen_at(address, SOMAXCONN);
      if (!listener) {
        found = listener.error().what;
        if (listener.error().errnum == EADDRINUSE) break;  // the next port
        continue;                                          // no IPv6, say: the next address
      }
      auto own = local_address(listener->get());
      if (address.host() == "::") own = *SocketAddress::numeric("::1", own.port());
      if (address.host() == "0.0.0.0") own = *SocketAddress::numeric("127.0.0.1", own.port());
      auto server = std::make_unique<TcpStoreServer>(*std::move(listener), place.job, place.size);
      auto first = greet(own, place, std::min(deadline, Clock::now() + 10s));
      if (!first)
        throw Error{ErrorCode::system, "rank 0 doesn't reach its own store: " + first.error().what};
      return std::make_shared<TcpStore>(place, own, *std::move(first), std::move(server));
    }
  }
  throw Error{
      ErrorCode::system,
      "rank 0 can't serve the store that the ranks meet at: " + found +
          (place.ports > 1 ? " (and the " + std::to_string(place.ports - 1) + " ports next to it)"
                           : "")};
}

// ---- the others ----

std::string describe(const TcpStorePlace& place) {
  if (place.host.empty()) return "@" + place.name;
  auto text = place.host + ":" + std::to_string(place.port);
  if (place.ports > 1) text += "-" + std::to_string(place.port + place.ports - 1);
  return text;
}

/// One look at each address and port. @return what is wrong with the most promising one.
acc::Error try_all(const TcpStorePlace& place, Deadline deadline, std::shared_ptr<Store>& opened) {
  std::vector<SocketAddress> addresses{SocketAddress::abstract(place.name)};
  if (!place.host.empty()) {
    auto named = resolve(place.host, place.port, deadline);
    if (!named) return named.error();
    addresses = *std::move(named);
  }
  std::optional<acc::Error> wrong;
  for (int i = 0; i < (place.host.empty() ? 1 : place.ports); ++i) {
    for (auto address : addresses) {
      address.set_port(static_cast<std::uint16_t>(place.port + i));
      auto line = greet(address, place, std::min(deadline, Clock::now() + kWelcomeTime));
      if (line) {
        opened = std::make_shared<TcpStore>(place, address, *std::move(line), nullptr);
        return {};
      }
      // A server that refused us says more than a port where nobody is.
      if (!wrong || line.error().code == Errc::malformed) wrong = line.error();
    }
  }
  return *std::move(wrong);
}

std::shared_ptr<Store> join(const TcpStorePlace& place, Deadline deadline) {
  const auto began = Clock::now();
  auto pause = 1ms;
  for (;;) {
    std::shared_ptr<Store> opened;
    const auto wrong = try_all(place, deadline, opened);
    if (opened) return opened;
    if (Clock::now() + pause >= deadline)
      throw Error{ErrorCode::timed_out,
                  "rank 0 of " + std::to_string(place.size) + " has not joined: no store at " +
                      describe(place) + " after " +
                      acc::describe(std::chrono::duration_cast<Millis>(Clock::now() - began)) +
                      ": " + wrong.what,
                  {0}};
    // There is nothing to wait on until rank 0 listens: a refused connection can only be retried.
    ::poll(nullptr, 0, static_cast<int>(pause.count()));
    pause = std::min(pause * 2, 100ms);
  }
}

}  // namespace

TcpStorePlace place_of(const Contract& contract) {
  TcpStorePlace place;
  place.job = contract.job;
  place.rank = contract.rank;
  place.size = contract.size;
  if (!contract.master_address.empty()) {
    place.host = contract.master_address;
    // torchrun's own store may have the port: the first free one of those after it is ours then.
    place.port =
        static_cast<std::uint16_t>(contract.master_port + (contract.master_port_is_taken ? 1 : 0));
    place.ports = std::min(contract.master_port_is_taken ? 16 : 17, 65536 - place.port);
    place.local = contract.all_local();
    return place;
  }
  if (!contract.all_local() || contract.job.empty())
    throw Error{ErrorCode::invalid_argument,
                "rank " + std::to_string(contract.rank) + " of " + std::to_string(contract.size) +
                    " (by " + contract.launcher +
                    ") doesn't know where to meet the others: set MASTER_ADDR to rank 0's host and "
                    "MASTER_PORT to a free port there, or start with acc-launch"};
  place.name =
      "acc-store/" + std::to_string(::geteuid()) + "/" + contract.launcher + "/" + contract.job;
  return place;
}

std::shared_ptr<Store> open_tcp_store(const TcpStorePlace& place, Deadline deadline) {
  return place.rank == 0 ? serve(place, deadline) : join(place, deadline);
}

}  // namespace acc::runtime
