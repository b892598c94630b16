#pragma once

#include "agent/fanout/orders.hpp"
#include "common/duration.hpp"
#include "launcher/ctl/bridge_command.hpp"
#include "launcher/ctl/bridge_requests.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

/// Pure state machine of `acc-ctl bridge`: the transport of acc-launch --hosts to one node, over
/// the acc-agent of this one. Orders arrive on its standard input as on any transport's; what is to
/// be done there becomes requests to the daemon's API.
namespace acc::ctl {

enum class BridgePhase { reading, checking, prepared, submitting, running, finished };
enum class BridgeTimer { contact, silence, state, find, stop, signal, end, out, err };
inline constexpr auto kBridgeTimers = static_cast<std::size_t>(BridgeTimer::err) + 1;

struct BridgeStream {
  std::optional<std::uint64_t> offset = 0;  ///< nothing: the end, which the daemon tells
  bool is_open = false;                     ///< a request for it is under way
  bool is_whole = false;                    ///< all of it was copied
  bool has_moved = false;                   ///< since the state was last asked
  unsigned failures = 0;
};

struct BridgeState {
  BridgeWish wish;
  BridgePhase phase = BridgePhase::reading;
  BridgeContext context;
  std::string job;
  std::array<BridgeStream, 2> streams;  ///< stdout, stderr
  std::optional<int> ended;             ///< the job's exit code
  unsigned looks = 0;                   ///< for a submission whose answer was lost
  unsigned stops = 0;                   ///< signals that end a job, passed on so far
  std::vector<int> held_signals;        ///< that came before the job's id
  std::vector<int> signals;             ///< to be passed on in this order; the first is under way
  bool is_signal_late = false;          ///< it was told that the first one isn't passed on yet
  bool is_line_closed = false;
  Millis patience{0};          ///< without contact
  bool is_silent = false;      ///< acc-launch knows that there is no contact
  bool is_stop_heard = false;  ///< the daemon took the order to stop
  std::string last_failure;    ///< why there is no contact; empty: there is
  std::string stop_failure;    ///< why the last request to stop wasn't heard
  std::string output_refusal;  ///< why output isn't kept there, as told; empty: it is
};

// ---- events ----
struct BridgeOrdered {
  agent::LaunchOrder order;
};
/// The life line has ended: acc-launch is gone, or lets this node go.
struct BridgeLineClosed {};
struct BridgeAnswered {
  BridgeAsk ask{};
  unsigned status = 0;
  std::string body;
};
/// No answer: the local daemon is gone, or it closed the connection.
struct BridgeUnanswered {
  BridgeAsk ask{};
  std::string why;
};
/// The daemon answers with the bytes from there on.
struct BridgeStreamBegun {
  bool is_err = false;
  std::uint64_t from = 0;
};
struct BridgeCopied {
  bool is_err = false;
  std::uint64_t bytes = 0;
};
struct BridgeStreamEnded {
  bool is_err = false;
  unsigned status = 0;  ///< 0: there was no answer
  bool is_whole = false;
  std::string body;  ///< of a refusal
};
/// The reader of our output is gone.
struct BridgeOutputGone {};
struct BridgeTimerFired {
  BridgeTimer timer{};
};
using BridgeEvent = std::variant<BridgeOrdered, BridgeLineClosed, BridgeAnswered, BridgeUnanswered,
                                 BridgeStreamBegun, BridgeCopied, BridgeStreamEnded,
                                 BridgeOutputGone, BridgeTimerFired>;

// ---- actions ----
struct OpenStream {
  bool is_err = false;
  std::string target;
};
struct CloseStream {
  bool is_err = false;
};
/// Behind the output that was copied so far.
struct SendMark {
  agent::LaunchMark mark;
};
struct TellBridge {
  std::string text;
};
struct ArmBridgeTimer {
  BridgeTimer timer{};
  Millis delay{0};
};
/// When all output is written.
struct FinishBridge {
  int code = 0;
};
using BridgeAction = std::variant<AskDaemon, OpenStream, CloseStream, SendMark, TellBridge,
                                  ArmBridgeTimer, FinishBridge>;
using BridgeActions = std::vector<BridgeAction>;

[[nodiscard]] BridgeState bridge_of(BridgeWish wish);
BridgeActions step(BridgeState& state, const BridgeEvent& event);

}  // namespace acc::ctl
