#pragma once

#include "common/duration.hpp"
#include "common/ids.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

/// What the launcher has decided and the agent carries out: everything about a job except what only
/// shows at run time. Same input, same plan (P9). Made by launcher/plan, printed by --print_plan.
namespace acc::agent {

enum class JobKind {
  process,    ///< one plain worker without rank variables
  elastic,    ///< N workers with rank variables
  mpirun,     ///< an outer mpirun is run as the one worker
  deepspeed,  ///< an outer deepspeed is run as the one worker
};

/// Which of a worker's two streams: torchrun's numbers.
enum class Streams : std::uint8_t { none = 0, out = 1, err = 2, both = 3 };
[[nodiscard]] constexpr bool has_out(Streams s) { return (static_cast<unsigned>(s) & 1U) != 0; }
[[nodiscard]] constexpr bool has_err(Streams s) { return (static_cast<unsigned>(s) & 2U) != 0; }

/// "3" or "0:1,1:3": one value for all local ranks, or a value for some and none for the others.
struct StreamsPerRank {
  Streams all = Streams::none;
  std::map<LocalRank, Streams> some;  ///< when not empty, `all` is none
  [[nodiscard]] Streams of(LocalRank rank) const {
    const auto found = some.find(rank);
    return found != some.end() ? found->second : all;
  }
  [[nodiscard]] bool any() const { return all != Streams::none || !some.empty(); }
  friend bool operator==(const StreamsPerRank&, const StreamsPerRank&) = default;
};

enum class Choice { automatic, yes, no };

struct OutputPlan {
  StreamsPerRank redirects;        ///< to a file only
  StreamsPerRank tee;              ///< to a file and, with a prefix, to the console
  std::vector<LocalRank> console;  ///< --local_ranks_filter: only these on the console; empty = all
  std::string log_dir;             ///< empty: no log files
  std::string prefix =
      "[${role_name}${local_rank}]:";  ///< as torchrun 1.13; TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE
  std::uint64_t rotate_bytes =
      0;  ///< 0: never; else a log file is renamed to .1, .2 … at this size
  std::uint32_t rotate_keep = 4;  ///< old files kept by rotation
  /// Whether worker output comes through us. automatic: yes, but a single worker on a terminal
  /// keeps the terminal.
  Choice capture = Choice::automatic;
  Choice color = Choice::automatic;  ///< automatic: on a terminal, unless NO_COLOR is set
  bool quiet = false;                ///< of our own lines only errors, restarts and the report
};

/// Inclusive range of exit codes; a signal counts as 128 + its number.
struct CodeRange {
  int first = 0;
  int last = 0;
  friend bool operator==(const CodeRange&, const CodeRange&) = default;
};

struct RestartPolicy {
  std::uint32_t max_restarts = 0;
  /// Delays are 0, base, 2 × base, 4 × base … up to max, each ± jitter; a healthy round starts
  /// again at 0.
  Millis delay_base{1000};
  Millis delay_max{60'000};
  double jitter = 0.1;           ///< fraction of the delay
  Millis healthy_after{60'000};  ///< a round that lived so long was healthy
  Millis refill_after{0};  ///< each healthy time of this length gives one restart back; 0: never
  std::uint32_t max_no_progress =
      0;  ///< stop after so many failed rounds in a row without progress; 0: off
  std::string progress_file;  ///< a change of its content is progress; empty: a healthy round is
  std::vector<CodeRange> never_retry;  ///< --no_restart_codes: end the job at once
};

struct StopPolicy {
  Millis grace{15'000};              ///< from SIGTERM to SIGKILL
  std::vector<int> preempt_signals;  ///< these end the job with 75 (requeue)
  Millis preempt_grace{30'000};      ///< grace after one of them
  Millis give_up{10'000};            ///< after SIGKILL: then a process counts as unkillable
};

/// The original's launch parameters, kept for --print_plan and for the rendezvous.
struct Rendezvous {
  std::uint32_t nnodes_min = 1;
  std::uint32_t nnodes_max = 1;
  NodeRank node_rank{0};
  std::string backend = "static";
  std::string endpoint;
  std::string id = "none";
  std::map<std::string, std::string> conf;
  bool standalone = false;
};

struct Master {
  std::string addr = "127.0.0.1";  ///< where rank 0's worker serves its store
  std::uint16_t port = 29500;
  /// True: the user named the port, every round uses it. False: a fresh one from the second round
  /// on.
  bool port_is_given = false;
};

struct JobPlan {
  JobKind kind = JobKind::process;
  std::vector<std::string>
      command;  ///< argv of each worker; [0] is looked up on PATH if it has no slash
  std::map<std::string, std::string> env;  ///< added to or replaced in the caller's environment
  std::uint32_t local_world_size = 1;      ///< workers on this node
  WorldSize world_size{1};
  Rank first_rank{0};  ///< rank of this node's local rank 0 (static rendezvous)
  std::string role = "default";
  double monitor_interval =
      0.1;  ///< accepted for the original's sake: we wait for events and never poll
  std::string start_method = "spawn";
  Rendezvous rendezvous;
  Master master;
  RestartPolicy restart;
  StopPolicy stop;
  OutputPlan output;
  std::string report_file;              ///< --report: JSON is written there at the end; empty: none
  std::optional<LocalRank> stdin_rank;  ///< --stdin: this worker gets our stdin
  std::map<std::string, std::string> defaulted;  ///< what was guessed and told to the user
  std::vector<std::string> warnings;             ///< told to the user before the start
};

}  // namespace acc::agent
