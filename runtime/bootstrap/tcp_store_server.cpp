#include "runtime/bootstrap/tcp_store_server.hpp"

#include "common/kept_fd.hpp"
#include "common/text.hpp"
#include "runtime/bootstrap/member.hpp"
#include "runtime/bootstrap/tcp_store_protocol.hpp"
#include "runtime/net/sockets.hpp"
#include "runtime/quiet_thread.hpp"
#include "runtime/wake_event.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <acc/error.hpp>
#include <algorithm>
#include <cerrno>
#include <initializer_list>
#include <iterator>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

namespace acc::runtime {

using namespace tcp_store;
using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

namespace {

/// For a refused client to read the reason. An immediate close would reset the connection and drop
/// data in flight.
constexpr auto kLeaveTime = 1s;
/// How long new connections wait while the last descriptor refuses one.
constexpr auto kExhaustedPause = 50ms;

struct Client {
  enum class State : std::uint8_t { greeting, welcome, leaving };
  KeptFd fd;
  State state = State::greeting;
  Clock::time_point until = Clock::now() + kGreetingTime;  ///< of `greeting` and `leaving`
  std::string in, out;
  std::size_t sent = 0;           ///< of `out`
  std::string waits_for;          ///< a key; empty: nothing
  bool is_own = false;            ///< from the server's process
  std::uint64_t accepted_in = 0;  ///< which call of accept_some()
  int rank = -1;

  void say(std::string_view frame) { out += framed(frame); }
  void leave() {
    state = State::leaving;
    until = Clock::now() + kLeaveTime;
  }
  [[nodiscard]] bool has_output() const { return sent < out.size(); }
};

}  // namespace

StoreClient this_process(int rank) {
  const auto host = host_facts();
  const auto pid = std::to_string(::getpid());
  return {rank, host.key + "/" + pid, "pid " + pid + " on host " + host.name};
}

class TcpStoreServer::Loop {
 public:
  Loop(UniqueFd listener, std::string job, StoreClient self, int size)
      : address_{local_address(listener.get())},
        listener_{std::move(listener)},
        job_{std::move(job)},
        most_clients_{static_cast<std::size_t>(size) * 16 + 64} {
    if (!wake_)
      throw Error{ErrorCode::system, "store server: " + system_error(errno, "socketpair").what};
    const int rank = self.rank;
    owners_[rank] = {std::move(self), 1};
    thread_ = quiet_thread([this] { run(); });
  }

  ~Loop() {
    {
      const std::lock_guard lock{mutex_};
      stopping_ = true;
    }
    wake_.set();
    thread_.join();
  }

  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  UniqueFd connect() {
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0)
      throw Error{ErrorCode::system, "store server: " + system_error(errno, "socketpair").what};
    UniqueFd ours{pair[0]}, theirs{pair[1]};
    {
      const std::lock_guard lock{mutex_};
      arrived_.emplace_back(std::move(ours));
    }
    wake_.set();
    return theirs;
  }

 private:
  using State = Client::State;
  struct Owner {
    StoreClient client;
    int connections = 0;
  };

  void run() {
    std::vector<pollfd> waits;
    while (take_own()) {
      const auto due = collect_waits(waits);
      const int ready = wake_.poll(waits, poll_time(due));
      if (ready < 0 && errno != EINTR) return;
      if (ready == 0) drop_closed();
      auto wait = waits.begin() + 2;
      for (auto client = clients_.begin(); client != clients_.end(); ++wait) {
        const bool late = client->state != Client::State::welcome && Clock::now() >= client->until;
        if (late || (wait->revents != 0 && !serve(*client)))
          client = drop(client);
        else
          ++client;
      }
      if (waits[1].revents != 0) accept_some();
    }
  }

  /// @return false: the server stops.
  bool take_own() {
    const std::lock_guard lock{mutex_};
    if (stopping_) return false;
    for (auto& fd : arrived_) {
      auto& client = clients_.emplace_back();
      client.fd = std::move(fd);
      client.is_own = true;
      client.state = Client::State::welcome;
    }
    arrived_.clear();
    return true;
  }

  Clock::time_point collect_waits(std::vector<pollfd>& waits) {
    auto due = Clock::time_point::max();
    if (!reserve_) reserve_ = KeptFd{UniqueFd{::open("/dev/null", O_RDONLY | O_CLOEXEC)}};
    if (!reserve_) due = Clock::now() + kExhaustedPause;
    if (!listener_.is_ours()) listen_anew();
    waits.assign({{}, {reserve_ ? listener_.get() : -1, POLLIN, 0}});
    for (auto& client : clients_) {
      waits.push_back(
          {client.fd.get(), static_cast<short>(client.has_output() ? POLLOUT : POLLIN), 0});
      if (client.state != Client::State::welcome) due = std::min(due, client.until);
    }
    return due;
  }

  std::list<Client>::iterator drop(std::list<Client>::iterator client) {
    const auto owner = owners_.find(client->rank);
    if (owner != owners_.end() && --owner->second.connections == 0) owners_.erase(owner);
    return clients_.erase(client);
  }

  /// Those whose descriptors the program has closed: sockets of its own that have their numbers may
  /// stay silent for ever.
  void drop_closed() {
    for (auto client = clients_.begin(); client != clients_.end();)
      client = client->fd.is_ours() ? std::next(client) : drop(client);
  }

  // ---- connections ----

  // The program has closed it. The ranks find the store at the same place again.
  void listen_anew() {
    listener_.reset();
    if (auto listener = listen_at(address_, SOMAXCONN)) listener_ = KeptFd{*std::move(listener)};
  }

  void accept_some() {
    // Others may connect faster than connections are taken: clients are served in between.
    constexpr int kMostAtOnce = 64;
    ++turn_;
    if (!listener_.is_ours()) return;  // the program has closed it
    for (int i = 0; i < kMostAtOnce; ++i) {
      auto fd = accept_from(listener_.get());
      if (!fd && fd.error().code == Errc::not_found) return;
      if (!fd) {
        if (evict({State::greeting})) continue;  // its descriptor is free now
        if (!any_unheard()) turn_away(fd.error());
        return;
      }
      while (clients_.size() >= most_clients_ && evict({State::greeting, State::leaving})) {
      }
      const bool is_full = clients_.size() >= most_clients_;
      if (is_full && !any_unheard()) continue;  // closes it
      keep_alive(fd->get());
      auto& client = clients_.emplace_back();
      client.fd = KeptFd{*std::move(fd)};
      client.accepted_in = turn_;
      if (is_full)
        return;  // one beyond the limit: read those of this call before more are accepted
    }
  }

  /// Drops a connection to make room for a new one, as the coordinator does (rendezvous/admission):
  /// otherwise idle connections would keep ranks out until they time out. The oldest that has sent
  /// nothing goes first, then the oldest of each of `states` in their order. Those accepted in this
  /// call stay: what they sent has not been read yet.
  /// @return false: there is none to drop.
  bool evict(std::initializer_list<State> states) {
    const auto drop_oldest = [this](State state, bool silent) {
      const auto victim = std::ranges::find_if(clients_, [&](const Client& client) {
        return client.state == state && client.accepted_in != turn_ &&
               (!silent || client.in.empty());
      });
      if (victim == clients_.end()) return false;
      drop(victim);
      return true;
    };
    return drop_oldest(State::greeting, true) ||
           std::ranges::any_of(states, [&](State state) { return drop_oldest(state, false); });
  }

  [[nodiscard]] bool any_unheard() const {
    return std::ranges::any_of(clients_, [this](const Client& client) {
      return client.state == State::greeting && client.accepted_in == turn_;
    });
  }

  // The reserve descriptor lets a rank be refused with a reason. The job can't form, so this
  // process's own waits end.
  void turn_away(const acc::Error& why) {
    const auto text = owners_.begin()->second.client.who + " can't take connections: " + why.what;
    for (auto& client : clients_) {
      if (!client.is_own || client.waits_for.empty()) continue;
      client.waits_for.clear();
      client.say(pack({"failed", "the store of rank 0 can't take connections: " + why.what}));
    }
    reserve_.reset();
    auto fd = accept_from(listener_.get());
    if (!fd) return;
    auto& client = clients_.emplace_back();
    client.fd = KeptFd{*std::move(fd)};
    client.out = magic();
    client.say(pack({"refused", kExhausted, text}));
    client.leave();
  }

  /// @return is it still connected?
  bool serve(Client& client) {
    if (!client.fd.is_ours()) return false;  // the program has closed it
    if (client.has_output()) return flush(client);
    char chunk[65536];
    const auto n = ::recv(client.fd.get(), chunk, sizeof chunk, MSG_DONTWAIT);
    if (n == 0) return false;
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    if (client.state == Client::State::leaving) return true;  // it was refused already
    client.in.append(chunk, static_cast<std::size_t>(n));
    if (!read_frames(client)) client.leave();
    return flush(client);
  }

  // Sends what the socket takes; poll sends the rest.
  static bool flush(Client& client) {
    while (client.has_output()) {
      const auto n = ::send(client.fd.get(), client.out.data() + client.sent,
                            client.out.size() - client.sent, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (n < 0) return errno == EAGAIN || errno == EINTR;
      client.sent += static_cast<std::size_t>(n);
    }
    client.out.clear();
    client.sent = 0;
    if (client.state == Client::State::leaving) ::shutdown(client.fd.get(), SHUT_WR);
    return true;
  }

  /// @return false: these bytes aren't of this protocol.
  bool read_frames(Client& client) {
    std::string_view rest = client.in;
    std::size_t head = sizeof(std::uint32_t);
    const bool is_new = client.state == Client::State::greeting;
    if (is_new) {
      if (rest.substr(0, head) != std::string_view{magic()}.substr(0, rest.size())) return false;
      head += sizeof kMagic;
    }
    while (rest.size() >= head) {
      std::uint32_t size = 0;
      std::memcpy(&size, rest.data() + head - sizeof size, sizeof size);
      if (size > (client.state == Client::State::greeting ? kMaxGreeting : kMaxFrame)) return false;
      if (rest.size() < head + size) break;
      const auto fields = unpack(rest.substr(head, size));
      if (!fields || fields->empty()) return false;
      client.state == Client::State::greeting ? greet(client, *fields) : answer(client, *fields);
      if (client.state == Client::State::leaving) return true;
      rest.remove_prefix(head + size);
      head = sizeof(std::uint32_t);
    }
    client.in.erase(0, client.in.size() - rest.size());
    return true;
  }

  void greet(Client& client, const std::vector<std::string>& hello) {
    client.out += magic();
    const auto refuse = [&](const char* kind, const std::string& why) {
      client.say(pack({"refused", kind, why}));
      client.leave();
    };
    const auto rank = hello.size() == 5 ? parse_number<int>(hello[2]) : std::nullopt;
    if (hello[0] != "hello" || !rank || *rank < 0) return refuse(kOtherJob, "no greeting of ours");
    if (hello[1] != job_)
      return refuse(kOtherJob, "it serves job '" + printable(job_, 80) + "', not '" +
                                   printable(hello[1], 80) + "'");
    auto& owner = owners_[*rank];
    if (owner.connections > 0 && owner.client.process != hello[3])
      return refuse(kRankTaken, owner.client.who);
    owner.client = {*rank, hello[3], printable(hello[4], 120)};
    ++owner.connections;
    client.rank = *rank;
    client.state = Client::State::welcome;
    client.say(pack({"welcome"}));
  }

  // ---- the store ----

  void answer(Client& client, const std::vector<std::string>& question) {
    const auto& verb = question[0];
    const std::size_t words = question.size();
    if (verb == "set" && words == 3) return set(client, question[1], question[2]);
    if (verb == "add" && words == 3) return add(client, question[1], question[2]);
    if (verb == "remove" && words == 2) return remove(client, question[1]);
    if ((verb == "get" || verb == "peek") && words == 2) {
      const auto found = values_.find(question[1]);
      if (found != values_.end()) return client.say(pack({"value", found->second}));
      if (verb == "peek") return client.say(pack({"missing"}));
      client.waits_for = question[1];
      return;
    }
    client.say(pack({"error", "can't be understood: '" + printable(verb, 40) + "'"}));
    client.leave();
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

  void remove(Client& client, const std::string& key) {
    if (const auto found = values_.find(key); found != values_.end()) {
      bytes_ -= key.size() + found->second.size();
      values_.erase(found);
    }
    client.say(pack({"ok"}));
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

  SocketAddress address_;
  KeptFd listener_, reserve_;
  WakeEvent wake_;
  std::string job_;
  std::size_t most_clients_;
  std::uint64_t turn_ = 0;
  std::list<Client> clients_;
  std::map<int, Owner> owners_;  ///< by rank; the server's own stays
  std::unordered_map<std::string, std::string> values_;
  std::size_t bytes_ = 0;
  std::mutex mutex_;
  std::vector<KeptFd> arrived_;
  bool stopping_ = false;
  std::thread thread_;
};

TcpStoreServer::TcpStoreServer(UniqueFd listener, std::string job, StoreClient self, int size)
    : loop_{std::make_unique<Loop>(std::move(listener), std::move(job), std::move(self), size)} {}

TcpStoreServer::~TcpStoreServer() = default;

UniqueFd TcpStoreServer::connect() { return loop_->connect(); }

}  // namespace acc::runtime
