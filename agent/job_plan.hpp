#pragma once

#include "agent/watch/hang_policy.hpp"
#include "common/duration.hpp"
#include "common/ids.hpp"
#include "common/restart_policy.hpp"
#include "rendezvous/serve_seed.hpp"
#include "rendezvous/timings.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace acc::rendezvous {
struct Secret;
}

/// What the launcher has decided and the agent carries out: everything about a job that is known
/// before it runs. Same input, same plan (P9). Made by launcher/plan, printed by --print_plan.
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
  bool is_log_dir_closed = false;  ///< nothing can be made in it, as the user was told already
  std::string prefix =
      "[${role_name}${local_rank}]:";  ///< as torchrun 1.13; TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE
  std::uint64_t rotate_bytes =
      0;  ///< 0: never; else a log file is renamed to .1, .2 … at this size
  std::uint32_t rotate_keep = 4;  ///< old files kept by rotation
  /// Whether worker output goes through the agent. automatic: yes, but a single worker on a
  /// terminal keeps the terminal.
  Choice capture = Choice::automatic;
  /// Workers' stdout is a pseudo-terminal, not a pipe, so that C programs write each line at once.
  bool pty = false;
  /// A reader or disk that takes nothing for this long no longer holds up workers (P4).
  Millis patience{60'000};
  Choice color = Choice::automatic;  ///< automatic: on a terminal, unless NO_COLOR is set
  bool quiet = false;                ///< of our own lines only errors, restarts and the report
  /// Another node reports the course and the end of the job on the same terminal.
  bool is_reported_elsewhere = false;
};

using acc::CodeRange;
using acc::RestartPolicy;

struct StopPolicy {
  Millis grace{15'000};              ///< from SIGTERM to SIGKILL
  std::vector<int> preempt_signals;  ///< these end the job with 75 (requeue)
  Millis preempt_grace{30'000};      ///< grace after one of them
  Millis give_up{10'000};            ///< after SIGKILL: then a process counts as unkillable
  /// Signals come from acc-launch --hosts: the first one to one node, each further one to all.
  bool is_from_one_launch = false;
};

struct Master {
  std::string addr = "127.0.0.1";  ///< where rank 0's worker serves its store
  std::uint16_t port = 29500;
  /// True: the user named the port, every round uses it. False: a fresh one from the second round
  /// on.
  bool port_is_given = false;
};

/// Where the machines of a job meet.
enum class Backend {
  fixed,  ///< --rdzv_backend static: the user numbers the machines
  tcp,    ///< also c10d: at the endpoint of a coordinator
  etcd,   ///< the coordinator is found, and chosen, through etcd v3
};

enum class ScaleUp {
  next_round,  ///< a node that joins late waits for the next restart
  now,         ///< it asks for a round, as torchrun does
};

/// What nodes compare when they join (rendezvous/join_rules.hpp), with its whole value:
/// {"precision", "bf16"}.
struct JobFact {
  std::string name;
  std::string value;
  friend bool operator==(const JobFact&, const JobFact&) = default;
};

/// The machines of a job and how this one finds the others. Only JobKind::elastic has one, and for
/// a job of one machine only its name counts. With several, master.addr is not used
/// (rank 0's node announces its own in each round); master.port is used if it is given, and with
/// `fixed` in round 0. world_size is that of nodes_max nodes with as many workers as this one; each
/// round has its own.
struct Cluster {
  std::uint32_t nodes_min = 1;
  std::uint32_t nodes_max = 1;
  std::optional<NodeRank> wanted;  ///< the user's or the scheduler's order; `fixed` always has it
  std::string node_name;           ///< --node_name; empty: the agent makes one up
  std::string job = "none";        ///< rdzv_id: the same on all nodes of a job
  bool standalone = false;         ///< this machine alone, with a random name and any free port
  Backend backend = Backend::fixed;
  std::string control_host;        ///< of the coordinator, without brackets; empty with etcd
  std::uint16_t control_port = 0;  ///< of the coordinator; with etcd this node's own, 0: any
  rendezvous::ServeSeed serve_seed = rendezvous::ServeSeed::never;
  /// Address of this node's own listener (the coordinator's or a standby's); empty: all
  /// interfaces. Loopback where the endpoint is.
  std::string listen;
  /// --local_addr: how workers and agents of other nodes reach this node; empty: the local
  /// address of the connection to the coordinator.
  std::string address;
  std::string secret_file;  ///< empty: ACC_SECRET_FILE, else the usual places
  /// --secret_fd: instead of a file, on loopback too.
  std::shared_ptr<const rendezvous::Secret> secret;
  bool insecure = false;  ///< plain also where more than loopback is involved
  bool loopback = false;  ///< the endpoint is on loopback: plain, and no secret is needed
  Millis join_timeout{600'000};
  std::optional<Millis> last_call;  ///< empty: 30 s while previous members are missing, else 1 s
  rendezvous::Timings timings;      ///< --dead_after, --lease
  Millis clock_skew{1'000};         ///< --clock_skew; 0: any
  ScaleUp scale_up = ScaleUp::next_round;
  std::vector<JobFact> facts;
  std::vector<std::string> etcd_endpoints;  ///< "https://10.0.0.5:2379"
  std::string etcd_prefix = "/acc";
  std::string etcd_ca_file;    ///< CAs of its certificates; empty: the system's
  std::string etcd_cert_file;  ///< this client's, with etcd_key_file; empty: none
  std::string etcd_key_file;
  std::string etcd_user_file;  ///< one line NAME:PASSWORD; empty: the variable ACC_ETCD_USER
  /// A job that can't have a second machine needs no network, whatever its backend.
  [[nodiscard]] bool several() const { return nodes_max > 1; }
};

/// When this node's health is checked, and what besides (health_check.hpp).
struct HealthPlan {
  bool before_rounds = false;       ///< --health, or one of the others
  Millis interval{0};               ///< also that often while workers run; 0: never
  Millis patience{5'000};           ///< of each probe
  std::string command{};            ///< --health_check, for a shell; empty: none
  std::string checkpoint_folder{};  ///< --health_folder
};

/// Whether workers are forked from a process that has imported their modules (preload/preloader.hpp).
struct PreloadPlan {
  /// "torch,transformers"; "auto": what the script imports at its top level; empty: they start cold.
  std::string modules{};
  Millis patience{60'000};  ///< for the imports
};

/// Where metrics are served.
struct MetricsAddress {
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;  ///< 0: any
};

/// The launcher found that the script can't be started on this machine.
struct ScriptProblem {
  int errnum = 0;  ///< 0: none
  std::string what;
};

/// A variable of the workers' environment.
struct Variable {
  std::string name;
  std::string value;
  bool overrides = false;  ///< also what the caller has set
};

/// This process was started by the acc-launch of another host, which orders on `fd` and stops the
/// job here by closing it (life_line.hpp).
struct LifeLine {
  int fd = -1;
  std::string token;          ///< of the marks on standard output
  bool wants_events = false;  ///< as marks on standard error
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
  bool pmi = false;  ///< workers are MPI programs of MPICH's family: they connect by PMI-1
  Cluster cluster;
  Master master;
  ScriptProblem script_problem;  ///< only of a job on several machines: reported to the other nodes
  RestartPolicy restart;
  std::string progress_file;  ///< --progress_file, watched on each node; empty: none
  StopPolicy stop;
  HangPolicy hang;
  OutputPlan output;
  std::string events_file;  ///< --events: lines of JSON are appended; empty: none
  /// What acc-agent takes of this node for the job; acc-launch itself takes nothing.
  struct Share {
    std::optional<std::uint32_t> slots;  ///< nothing: one for each worker
    std::uint32_t gpus = 0;
  } share;
  std::uint64_t events_size = 0;  ///< of the file, which is then renamed to .1; 0: any
  HealthPlan health;
  PreloadPlan preload;                    ///< --preload
  std::optional<MetricsAddress> metrics;  ///< --metrics
  std::string report_file;              ///< --report: JSON is written there at the end; empty: none
  std::optional<LocalRank> stdin_rank;  ///< --stdin: this worker gets our stdin
  /// --numa_binding, --enable_cpu_affinity: the cores of each local rank; empty: none is bound.
  std::vector<std::vector<std::uint32_t>> cores;
  std::optional<LifeLine> life_line;             ///< --life_line
  std::map<std::string, std::string> defaulted;  ///< guessed values, shown to the user
  std::vector<std::string> warnings;             ///< shown to the user before the start
};

}  // namespace acc::agent
