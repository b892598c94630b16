#pragma once

#include "agent/group_state.hpp"
#include "agent/output/losses.hpp"
#include "agent/watch/goodput.hpp"
#include "common/error.hpp"
#include "common/exit_status.hpp"
#include "common/ids.hpp"

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

/// The control socket's language: one JSON line a request, one a reply (docs/operations.md). Pure.
namespace acc::agent::control {

inline constexpr std::size_t kMaxRequest = 4096;  ///< bytes, with the end of the line

// ---- requests ----
/// What costs more than the rest is measured for those who ask for it.
struct Status {
  bool last_lines = false;  ///< the last line of each worker's output
  bool gpus = false;        ///< what the GPUs of this node do
  friend bool operator==(const Status&, const Status&) = default;
};
struct Stop {
  std::optional<Millis> grace;  ///< nothing: the job's own
};
struct Signal {
  int signo = 0;  ///< one of kPassedSignals
};
struct Restart {};
/// The stacks of all workers of this node: takes up to 11 s.
struct Stacks {};
/// How requests that only look begin.
inline constexpr std::string_view kStatusRequest = R"({"do": "status")";
inline constexpr std::string_view kStacksRequest = R"({"do": "stacks"})";
/// What a worker of this node wrote in this round: the last 64 KiB are kept.
struct Output {
  LocalRank local_rank{0};
  bool is_stderr = false;
  std::uint64_t from = 0;  ///< offset in the stream
  friend bool operator==(const Output&, const Output&) = default;
};
using Request = std::variant<Status, Stop, Signal, Restart, Stacks, Output>;

/// Total: any bytes give a request or an error in words.
[[nodiscard]] Result<Request> decode(std::string_view line);

// ---- replies ----
/// {"ok": true}
[[nodiscard]] std::string done();
/// {"ok": true, "file": PATH or null, "text": "…"}
[[nodiscard]] std::string stacks_reply(std::string_view file, std::string_view text);
/// What is kept of a worker's stream.
struct OutputView {
  Round round{0};
  std::uint64_t from = 0;  ///< offset of the text; more than was asked for: the rest is forgotten
  std::uint64_t end = 0;   ///< bytes that the stream has had in this round
  std::string text;        ///< any bytes
  bool is_captured = true;  ///< false: it reaches its place without us, or as a part of stdout
};
/// {"ok": true, "round": N, "from": N, "end": N, "captured": true, "text": "…"}, bytes as in common/json_bytes.hpp.
[[nodiscard]] std::string output_reply(const OutputView& output);
/// {"error": "…", "code": "bad_request"}, as the daemon's API answers.
[[nodiscard]] std::string refusal(std::string_view code, std::string_view why);

struct ProcessUsage {
  std::uint64_t rss_bytes = 0;
  double cpu_s = 0;
  friend bool operator==(const ProcessUsage&, const ProcessUsage&) = default;
};
/// From the text of /proc/PID/stat; nothing if it isn't one.
[[nodiscard]] std::optional<ProcessUsage> usage_from_stat(std::string_view text,
                                                          std::uint64_t page_bytes,
                                                          std::uint64_t ticks_per_second);

struct WorkerView {
  Rank rank{0};
  LocalRank local_rank{0};
  pid_t pid = 0;
  std::optional<ExitStatus> status;  ///< none: it lives
  double seconds = 0;                ///< since its start, or for how long it ran
  std::optional<ProcessUsage> usage;
  struct Progress {
    std::uint64_t step = 0;
    double seconds_since_heartbeat = 0;
    std::optional<double> steps_per_second;
    std::string section;
  };
  std::optional<Progress> progress{};  ///< none: it has sent no heartbeat
  std::optional<std::string> last_line{};  ///< plain text; none: not asked for
  std::vector<std::uint32_t> gpus{};       ///< that it uses, if they were asked for
};

struct NodeView {
  std::string name;
  std::string host;
  RankRange ranks{Rank{0}, 0};
};

struct GpuView {
  std::uint32_t index = 0;
  std::optional<std::uint32_t> percent;  ///< none: not supported
  std::uint64_t memory_used = 0;         ///< bytes
  std::uint64_t memory_total = 0;
};

struct JobView {
  std::string name;
  std::string id;
  std::string_view state;
  Round round{0};
  RestartLedger ledger;
  std::uint32_t max_restarts = 0;
  std::string restart_reason;
  WorldSize world_size{1};
  std::string node;
  NodeRank node_rank{0};
  std::uint32_t nodes = 1;
  pid_t guardian = 0;
  pid_t agent = 0;
  std::string log_folder;  ///< empty: none holds logs
  double seconds = 0;      ///< since the agent's start
  std::vector<std::string> command;
  GoodputFigures goodput;  ///< of this node
  std::vector<WorkerView> workers;
  std::vector<GpuView> gpus{};  ///< of this node, if they were asked for and sampled already
  std::vector<NodeView> table;  ///< of several nodes, where the coordinator answered in time
  std::vector<Losses> losses{};  ///< of output, so far
};

inline constexpr std::array<std::string_view, 5> kStates{"starting", "running", "stopping",
                                                         "restarting", "waiting for nodes"};
/// One of kStates.
[[nodiscard]] std::string_view state_of(const GroupState& group);
[[nodiscard]] std::string encode(const JobView& job);

/// "NAME.PID.sock": of the job's name only what can't mean anything in a path.
[[nodiscard]] std::string socket_name(std::string_view job, pid_t pid);

}  // namespace acc::agent::control
