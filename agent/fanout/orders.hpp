#pragma once

#include "common/duration.hpp"
#include "common/error.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

/// What the acc-launch that runs a job on several hosts and the ones that it starts there say to
/// each other. Orders are lines on the standard input of the remote one, its life line; marks are
/// lines in its standard output, those of events and Here in its standard error. Decoding is total.
namespace acc::agent {

// ---- orders ----
/// The working directory of the job.
struct SetFolder {
  std::string path;
};
/// A variable of the environment, of --env.
struct SetVariable {
  std::string name;
  std::string value;
};
/// Report what happens, as marks: the lines of --events.
struct SendEvents {};
/// All that belongs to the start is known: check it, and answer with Prepared.
struct Prepare {
  std::string token;  ///< stands in all marks, so that no output of a worker is taken for one
};
/// All hosts are prepared: start.
struct Go {};
struct PassSignal {
  int signo = 0;
};
/// The job goes on by itself. Only to a transport that started it in the background.
struct Leave {};
/// Answer with Here: the launching host has heard nothing for a while. Of a running job.
struct AskContact {};
/// No host is in contact: the network of the launching one may be down. To a transport that leads
/// to a daemon, which waits longer for its own then.
struct WaitLonger {};
using LaunchOrder = std::variant<SetFolder, SetVariable, SendEvents, Prepare, Go, PassSignal, Leave,
                                 AskContact, WaitLonger>;

inline constexpr std::size_t kMaxOrder = std::size_t{256} << 10U;  ///< bytes of a line

/// One line with its end. Bytes that would end it are escaped.
[[nodiscard]] std::string encode(const LaunchOrder& order);
/// @param line  without its end
[[nodiscard]] Result<LaunchOrder> decode_order(std::string_view line);

/// Exit code of a transport that leads to a daemon: the node has no room for the job now.
inline constexpr int kNoRoomExit = 75;  // as EX_TEMPFAIL of sysexits.h
/// … or the node, or the daemon here, doesn't answer now, or takes no jobs now.
inline constexpr int kAwayExit = 69;  // as EX_UNAVAILABLE
/// What it says last where there is no room, for a launch that doesn't wait.
inline constexpr std::string_view kNoRoomCure =
    ": stop one of them, wait for it (--wait), or leave this host out";

// ---- marks ----
struct Prepared {
  std::string version;
  std::string daemon{};  ///< which one the transport leads to; empty: to none
};
/// Of a transport that leads to a daemon: the id of its job there.
struct JobStarted {
  std::string id;
};
struct JobEnded {
  int exit_code = 0;
};
/// Of a transport that leads to a daemon, which no longer answers.
struct ContactLost {
  Millis silent{0};  ///< since its last answer
  Millis limit{0};   ///< so long after it the transport gives up
};
struct ContactBack {};
/// In standard error: the answer to AskContact.
struct Here {};
/// One line of --events there.
struct HostEvent {
  std::string line;
};
/// Of a transport that leads to a daemon: what one destination of its job's output didn't take.
struct OutputLost {
  std::uint64_t lines = 0;
  std::uint64_t bytes = 0;
  std::string where;
  std::string why;
};
using LaunchMark = std::variant<Prepared, JobStarted, JobEnded, HostEvent, ContactLost, ContactBack,
                                Here, OutputLost>;

inline constexpr char kMarkBegin = '\x1e';
inline constexpr std::size_t kMaxMark = 256;  ///< bytes, but for an event's
inline constexpr std::size_t kMaxEventMark = std::size_t{64} << 10U;

[[nodiscard]] std::string encode(const LaunchMark& mark, std::string_view token);
/// @param line  from kMarkBegin on, without its end
[[nodiscard]] std::optional<LaunchMark> decode_mark(std::string_view line, std::string_view token);

/// Whether it begins a mark with this token, whatever follows.
[[nodiscard]] bool begins_mark(std::string_view text, std::string_view token);

}  // namespace acc::agent
