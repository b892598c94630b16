#pragma once

#include "tests/simulation/event_queue.hpp"
#include "tests/simulation/random.hpp"

#include <compare>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Hosts and TCP between them: ordered streams that may be slow, stall, time out or be reset. The
/// kernel's work continues here while a process sleeps.
namespace acc::simulation {

using HostId = std::uint32_t;

/// One side of a connection: 0 dialled, 1 accepted.
struct End {
  std::uint32_t connection = 0;
  std::uint8_t side = 0;
  friend auto operator<=>(const End&, const End&) = default;
};

struct DialOutcome {
  bool ok = false;
  bool refused = false;  ///< the host is up, no process listens
  std::string what;
};

/// A process with sockets.
class SocketOwner {
 public:
  virtual ~SocketOwner() = default;
  virtual void accepted(End end, HostId from) = 0;
  virtual void dialed(End end, const DialOutcome& outcome) = 0;
  /// `bytes` are valid during the call only.
  virtual void arrived(End end, std::string_view bytes) = 0;
  /// The peer closed or vanished: nothing follows on this end.
  virtual void ended(End end, const std::string& why) = 0;
};

struct NetworkOptions {
  Time delay{200'000};   ///< one way
  Time jitter{100'000};  ///< at most that much more
  double loss = 0;       ///< of a packet: its stream waits for the retransmission
  Time retransmit{200'000'000};
  Time user_timeout{5'000'000'000};  ///< TCP_USER_TIMEOUT
  bool handshake = false;  ///< a connection stands only when the accepting process has answered
  bool splits = false;     ///< frames arrive in pieces
  Time grain{0};  ///< arrivals are rounded up to it, so that a busy process finds several together
};

/// No packet passes from `from` to `to`, in one or both directions.
struct Cut {
  std::vector<bool> from;
  std::vector<bool> to;
  bool both = true;
};

using Bytes = std::shared_ptr<const std::string>;

class Network {
 public:
  Network(EventQueue& queue, Random random, const NetworkOptions& options)
      : queue_{queue}, random_{random}, options_{options} {}

  HostId add_host();
  void listen(HostId host, SocketOwner* owner) { hosts_[host].listener = owner; }
  /// Power off: its packets stop without notice.
  void host_down(HostId host);
  void host_up(HostId host);
  void slow_down(HostId host, Time extra) { hosts_[host].extra = extra; }
  std::size_t begin_cut(Cut cut);
  void end_cut(std::size_t number);
  void heal();

  /// Answered once by dialed(), unless close() is called first.
  End dial(SocketOwner& owner, HostId from, HostId to, Time limit);
  /// The accepting process has done its part of the handshake.
  void shake(End accepted);
  void send(End end, const Bytes& bytes);
  /// Data sent before is still delivered; no callback follows.
  void close(End end);
  /// The process died; some of its last data may be lost.
  void abort(End end);
  /// A middlebox forgot the connection: both sides see a reset.
  void reset(End end);
  /// True if a packet would reach the other host.
  [[nodiscard]] bool passes(HostId from, HostId to) const;
  [[nodiscard]] bool is_open(End end) const { return connections_[end.connection]->open[end.side]; }

 private:
  struct Host {
    bool up = true;
    Time extra{0};
    SocketOwner* listener = nullptr;
  };
  struct Chunk {
    Bytes bytes;  ///< empty: the end of the stream
    std::size_t begin = 0;
    std::size_t size = 0;
    Time arrival{0};  ///< kNever: held until the path is restored
  };
  enum class State : std::uint8_t { dialing, shaking, standing };
  struct Connection {
    HostId host[2]{};
    SocketOwner* owner[2]{};
    bool open[2]{};
    State state = State::dialing;
    std::deque<Chunk> flying[2];  ///< by the sending side
    Time last_arrival[2]{};
    std::optional<Time> stalled[2];  ///< since when sent data is unacknowledged
  };

  [[nodiscard]] bool is_cut(HostId from, HostId to) const;
  Time one_way(HostId from, HostId to);
  void try_syn(std::uint32_t id, Time wait);
  void syn_arrived(std::uint32_t id);
  void stand(std::uint32_t id);
  void fail_dial(std::uint32_t id, bool refused, const std::string& what);
  void push(std::uint32_t id, int side, Chunk chunk);
  void deliver(std::uint32_t id, int side);
  void answer_reset(std::uint32_t id, int to_side);
  void note_stall(std::uint32_t id, int side);
  void paths_changed();
  void release(std::uint32_t id, int side);
  void end(std::uint32_t id, int side, const std::string& why);

  EventQueue& queue_;
  Random random_;
  NetworkOptions options_;
  std::vector<Host> hosts_;
  std::vector<std::optional<Cut>> cuts_;
  std::size_t active_cuts_ = 0;
  std::vector<std::unique_ptr<Connection>> connections_;
};

}  // namespace acc::simulation
