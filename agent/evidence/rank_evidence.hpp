#pragma once

#include "common/duration.hpp"
#include "common/error.hpp"
#include "common/heartbeat_slot.hpp"
#include "common/ids.hpp"

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// What was found out about the processes of a node while they live: stacks, and facts of /proc.
namespace acc::agent::evidence {

/// Why stacks are collected, which decides what the workers may be exposed to for them.
enum class Purpose : std::uint8_t {
  look,  ///< they go on: none is stopped for longer than some milliseconds
  end,   ///< of a hang that was found, or before they are ended: the more is seen the better
};

struct Frame {
  std::string function;
  std::string place;  ///< "train.py:31", "libc.so.6"; empty: unknown
  friend bool operator==(const Frame&, const Frame&) = default;
};

/// The innermost frame first.
struct ThreadStack {
  std::string title;
  std::vector<Frame> frames;
  friend bool operator==(const ThreadStack&, const ThreadStack&) = default;
};

/// What is compared over all ranks, also with those of other nodes.
struct RankSummary {
  Rank rank{0};
  LocalRank local_rank{0};
  std::string node;
  pid_t pid = 0;
  char state = '?';        ///< as in /proc/PID/stat
  bool is_silent = false;  ///< it should have sent a heartbeat
  bool has_beaten = false;
  std::uint64_t step = 0;
  std::uint64_t collectives = 0;  ///< of our runtime: number of the last one; 0: none
  bool is_inside = false;         ///< … it waits in it
  std::string operation;          ///< … "all_reduce"
  /// By its stack: it waits for other ranks, or doesn't; nothing: the stack isn't known.
  std::optional<bool> waits_for_others;
  std::string stack_key;  ///< equal for equal stacks; empty: unknown
  std::string at;         ///< the innermost frame of its own: "spin (train.cpp:31)"
  bool is_overdue = false;  ///< silent as it is in a section for longer than that may take
  bool is_stuck = false;    ///< it sends heartbeats, but for long none of a later step
  /// Fewer than heartbeat::kFirstBeats: it is in its first step, or a rank that sends none. Its
  /// silence says nothing.
  bool is_starting = false;
  std::string tracer{};  ///< the debugger that holds it (state t), "gdb (pid 71)"; empty: not known
  friend bool operator==(const RankSummary&, const RankSummary&) = default;
};

/// Whether a signal may ask it for its Python stack (pure). A handler breaks off waits that no stop
/// does, of poll or nanosleep: torch raises an error of it while a rank waits for rank 0's store.
/// After its first heartbeat it is past that.
[[nodiscard]] bool may_signal(Purpose purpose, const RankSummary& rank);

/// Equal for ranks in the same place and state: a stopped rank isn't like one that waits there.
[[nodiscard]] std::string group_key(const RankSummary& rank);

/// A collective in a dump of torch's flight recorder.
struct FlightCall {
  std::uint64_t number = 0;  ///< of the calls of its process group
  std::string name;          ///< "all_reduce"
  std::string state;         ///< scheduled, started, completed
  friend bool operator==(const FlightCall&, const FlightCall&) = default;
};
struct FlightGroup {
  std::string name;  ///< of this group alone, the same on all of its ranks: "0", "1"
  FlightCall last;
  std::optional<FlightCall> open{};  ///< the first one that isn't completed
  std::string description{};         ///< "default_pg"; not of this group alone; empty: none
  friend bool operator==(const FlightGroup&, const FlightGroup&) = default;
};

struct RankEvidence {
  RankSummary summary;
  std::optional<heartbeat::Beat> beat;
  double seconds_since_beat = 0;
  pid_t worker_pid = 0;  ///< differs from the summary's where the worker started the reporting one
  std::string command;
  std::string wait_channel;
  std::string system_call;
  std::vector<ThreadStack> python;
  std::vector<ThreadStack> native;  ///< the main thread first
  std::vector<std::string> notes;   ///< why something is missing, where a record lies
  std::vector<FlightGroup> flight;  ///< what torch's flight recorder says
};

/// A worker that has exited with code 0 while others go on. They may wait for it, or be those that
/// have more to do: nothing of it is left to look at.
struct FinishedRank {
  Rank rank{0};
  Millis before{0};  ///< so long before the look, or before the hang was found
  friend bool operator==(const FinishedRank&, const FinishedRank&) = default;
};

/// What a node asks the others for.
struct Question {
  std::string why;
  Purpose purpose = Purpose::look;
  friend bool operator==(const Question&, const Question&) = default;
};

/// Totals of one look, for the text.
struct Facts {
  std::string job;
  std::string node;  ///< of several: all that answered, "a, b"
  std::uint64_t round = 0;
  std::string why;   ///< "no heartbeat for 10 s", "asked for by acc-ctl stacks"
  Purpose purpose = Purpose::look;
  std::string when;  ///< in UTC
  std::vector<std::string> tools;
  std::vector<std::string> missing;  ///< nodes without an answer: "b (ranks 4-7)"
  std::vector<std::string> without_native_tool{};  ///< nodes
  std::vector<FinishedRank> finished{};
};

/// What a node found about its ranks, for the text of all nodes. Of ranks in the same place only the
/// first one's stacks are kept.
struct NodeEvidence {
  std::string node;
  std::vector<RankEvidence> ranks;
  std::vector<std::string> tools;
  bool lacks_native_tool = false;  ///< none that may be used is installed
  std::vector<FinishedRank> finished{};  ///< not among `ranks`
};
/// Drops what is the least needed until encode() takes at most so many bytes: other threads, outer
/// frames, in the end all stacks. Fewer than the summaries it can't be.
void fit(NodeEvidence& evidence, std::size_t bytes);

/// What the agent hands to the collecting process, and gets back.
struct Request {
  struct Worker {
    Rank rank{0};
    LocalRank local_rank{0};
    pid_t pid = 0;
    bool is_silent = false;
    bool is_overdue = false;
    bool is_stuck = false;
  };
  Facts facts;
  std::vector<Worker> workers;
  bool has_page = false;  ///< on descriptor 3
  std::int64_t limit_ms = 10'000;
  /// The text is written to the first of them that takes it; empty: nowhere.
  std::vector<std::string> files;
  /// What several nodes found: no worker is looked at, the text is made of this.
  std::vector<NodeEvidence> gathered;
};
struct Answer {
  std::string text;
  NodeEvidence evidence;
  std::string file;          ///< where the text lies; empty: nowhere
  std::string not_saved{};   ///< why files that were to be tried before it could not be written
};

[[nodiscard]] std::string encode(const Request& request);
[[nodiscard]] Result<Request> decode_request(std::string_view text);
[[nodiscard]] std::string encode(const Answer& answer);
[[nodiscard]] Result<Answer> decode_answer(std::string_view text);
[[nodiscard]] std::string encode(const NodeEvidence& evidence);
[[nodiscard]] Result<NodeEvidence> decode_node(std::string_view text);
[[nodiscard]] std::string encode(const Question& question);
/// Total: a text of another form is the reason itself, of a look.
[[nodiscard]] Question decode_question(std::string_view text);

}  // namespace acc::agent::evidence
