#include "runtime/bootstrap/tcp_store_server.hpp"

#include "common/text.hpp"
#include "runtime/bootstrap/quiet_thread.hpp"
#include "runtime/bootstrap/tcp_store_protocol.hpp"

#include <poll.h>
#include <sys/eventfd.h>

#include <acc/error.hpp>
#include <cerrno>
#include <list>
#include <map>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

namespace acc::runtime {

using namespace tcp_store;
using Clock = std::chrono::steady_clock;

namespace {

struct Client {
  UniqueFd fd;
  std::string in, out;
  std::size_t sent = 0;  ///< of `out`
  bool welcome = false;
  bool closing = false;   ///< once `out` is sent
  std::string waits_for;  ///< a key; empty: nothing
  Clock::time_point must_greet_by = Clock::now() + kGreetingTime;

  void say(std::string_view frame) { out += framed(frame); }
};

}  // namespace

class TcpStoreServer::Loop {
 public:
  Loop(UniqueFd listener, std::string job, int size)
      : listener_{std::move(listener)},
        stop_{::eventfd(0, EFD_CLOEXEC)},
        job_{std::move(job)},
        size_{size},
        most_clients_{static_cast<std::size_t>(size) * 16 + 64} {
    if (!stop_)
      throw Error{ErrorCode::system, "store server: " + system_error(errno, "eventfd").what};
    thread_ = quiet_thread([this] { run(); });
  }

  ~Loop() {
    const std::uint64_t one = 1;
    // An eventfd takes 8 bytes as long as it isn't full, and nobody else writes to it.
    [[maybe_unused]] const auto n = ::write(stop_.get(), &one, sizeof one);
    thread_.join();
  }

  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

 private:
  void run() {
    std::vector<pollfd> waits;
    for (;;) {
      waits.assign({{stop_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}});
      Clock::time_point wake = Clock::time_point::max();
      for (auto& client : clients_) {
        const bool more = client.sent < client.out.size();
        waits.push_back({client.fd.get(), static_cast<short>(more ? POLLOUT : POLLIN), 0});
        if (!client.welcome) wake = std::min(wake, client.must_greet_by);
      }
      if (::poll(waits.data(), waits.size(), poll_time(wake)) < 0 && errno != EINTR) return;
      if (waits[0].revents != 0) return;
      auto wait = waits.begin() + 2;
      for (auto client = clients_.begin(); client != clients_.end(); ++wait) {
        const bool late = !client->welcome && Clock::now() >= client->must_greet_by;
        if (late || (wait->revents != 0 && !serve(*client)))
          client = clients_.erase(client);
        else
          ++client;
      }
      if (waits[1].revents != 0) accept_some();
    }
  }

  void accept_some() {
    while (auto fd = accept_from(listener_.get())) {
      if (clients_.size() >= most_clients_) continue;  // hangs up
      clients_.emplace_back().fd = *std::move(fd);
    }
  }

  /// @return is it still there?
  bool serve(Client& client) {
    if (client.sent < client.out.size()) return flush(client);
    char chunk[65536];
    const auto n = ::recv(client.fd.get(), chunk, sizeof chunk, MSG_DONTWAIT);
    if (n == 0) return false;
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    client.in.append(chunk, static_cast<std::size_t>(n));
    return read_frames(client) && flush(client);
  }

  // What comes for others is sent by the next round of poll; here a good part goes at once.
  static bool flush(Client& client) {
    while (client.sent < client.out.size()) {
      const auto n = ::send(client.fd.get(), client.out.data() + client.sent,
                            client.out.size() - client.sent, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (n < 0) return errno == EAGAIN || errno == EINTR;
      client.sent += static_cast<std::size_t>(n);
    }
    client.out.clear();
    client.sent = 0;
    return !client.closing;
  }

  bool read_frames(Client& client) {
    std::string_view rest = client.in;
    std::size_t head = sizeof(std::uint32_t);
    if (!client.welcome) {
      if (rest.substr(0, head) != std::string_view{magic()}.substr(0, rest.size())) return false;
      head += sizeof kMagic;
    }
    while (rest.size() >= head) {
      std::uint32_t size = 0;
      std::memcpy(&size, rest.data() + head - sizeof size, sizeof size);
      if (size > (client.welcome ? kMaxFrame : kMaxGreeting)) return false;
      if (rest.size() < head + size) break;
      const auto fields = unpack(rest.substr(head, size));
      if (!fields || fields->empty()) return false;
      client.welcome ? answer(client, *fields) : greet(client, *fields);
      if (client.closing) break;
      rest.remove_prefix(head + size);
      head = sizeof(std::uint32_t);
    }
    client.in.erase(0, client.in.size() - rest.size());
    return true;
  }

  void greet(Client& client, const std::vector<std::string>& hello) {
    client.out += magic();
    std::string why;
    if (hello.size() != 4 || hello[0] != "hello")
      why = "no greeting of ours";
    else if (hello[1] != job_)
      why = "it serves job '" + job_ + "', not '" + printable(hello[1], 80) + "'";
    else if (hello[2] != std::to_string(size_))
      why = "rank 0 has a world size of " + std::to_string(size_) + ", rank " +
            printable(hello[3], 20) + " of " + printable(hello[2], 20);
    client.closing = !why.empty();
    client.welcome = why.empty();
    client.say(why.empty() ? pack({"welcome"}) : pack({"refused", why}));
  }

  void answer(Client& client, const std::vector<std::string>& question) {
    const auto& verb = question[0];
    const std::size_t words = question.size();
    if (verb == "set" && words == 3) return set(client, question[1], question[2]);
    if (verb == "add" && words == 3) return add(client, question[1], question[2]);
    if ((verb == "get" || verb == "peek") && words == 2) {
      const auto found = values_.find(question[1]);
      if (found != values_.end()) return client.say(pack({"value", found->second}));
      if (verb == "peek") return client.say(pack({"missing"}));
      client.waits_for = question[1];
      return;
    }
    client.say(pack({"error", "can't be understood: '" + printable(verb, 40) + "'"}));
    client.closing = true;
  }

  void set(Client& client, const std::string& key, const std::string& value) {
    if (!store(key, value))
      return client.say(pack(
          {"error", "the store is full: at most " + std::to_string(kMaxStored >> 20) + " MiB"}));
    client.say(pack({"ok"}));
  }

  void add(Client& client, const std::string& key, const std::string& text) {
    const auto delta = parse_number<std::int64_t>(text);
    const auto found = values_.find(key);
    const auto before = found == values_.end() ? 0 : parse_number<std::int64_t>(found->second);
    if (!delta || !before)
      return client.say(pack({"error", "key '" + printable(key, 80) + "' holds no number"}));
    const auto sum = std::to_string(*before + *delta);
    if (!store(key, sum)) return client.say(pack({"error", "the store is full"}));
    client.say(pack({"number", sum}));
  }

  bool store(const std::string& key, const std::string& value) {
    auto [at, is_new] = values_.try_emplace(key);
    const auto bytes = bytes_ - at->second.size() + value.size() + (is_new ? key.size() : 0);
    if (bytes > kMaxStored) {
      if (is_new) values_.erase(at);
      return false;
    }
    bytes_ = bytes;
    at->second = value;
    for (auto& client : clients_) {
      if (client.waits_for.empty() || client.waits_for != key) continue;
      client.waits_for.clear();
      client.say(pack({"value", value}));
      flush(client);  // a broken one is found by poll
    }
    return true;
  }

  UniqueFd listener_, stop_;
  std::string job_;
  int size_;
  std::size_t most_clients_;
  std::list<Client> clients_;
  std::unordered_map<std::string, std::string> values_;
  std::size_t bytes_ = 0;
  std::thread thread_;
};

TcpStoreServer::TcpStoreServer(UniqueFd listener, std::string job, int size)
    : loop_{std::make_unique<Loop>(std::move(listener), std::move(job), size)} {}

TcpStoreServer::~TcpStoreServer() = default;

}  // namespace acc::runtime
