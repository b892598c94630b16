#pragma once

#include "tests/simulation/checker.hpp"
#include "tests/simulation/etcd.hpp"
#include "tests/simulation/event_queue.hpp"
#include "tests/simulation/history.hpp"
#include "tests/simulation/network.hpp"
#include "tests/simulation/process.hpp"
#include "tests/simulation/scenario.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace acc::simulation {

/// Frames that are repeated forever without news.
[[nodiscard]] bool is_beat(const rendezvous::Message& message);

/// From the loss of a coordinator until another one has taken over.
struct Succession {
  std::uint64_t seed = 0;
  Time took{0};
  Time bound{0};  ///< promised
};

/// Events of one seed, or of many.
struct Stats {
  std::uint64_t events = 0;
  std::uint64_t frames = 0;
  std::uint64_t rounds = 0;
  std::uint64_t elections = 0;
  std::uint64_t step_downs = 0;
  std::uint64_t leases_over = 0;
  std::uint64_t lease_kills = 0;  ///< ordered by the agent itself
  std::uint64_t given_up = 0;     ///< agents without a coordinator
  std::uint64_t replays = 0;
  std::uint64_t writes = 0;          ///< checkpoints made valid
  std::uint64_t refused_writes = 0;  ///< … and refused, as another round had begun
  std::uint64_t doubts = 0;          ///< about a clock
  std::uint64_t kernel_kills = 0;    ///< by the lease timer, under a frozen node
  std::uint64_t succeeded = 0;       ///< jobs
  std::uint64_t closed = 0;          ///< jobs that ended otherwise, with a report
  std::vector<Succession> successions;
  void add(const Stats& other);
};

/// One seed: hosts, network, processes and their faults.
class World {
 public:
  static constexpr std::uint16_t kPort = 29501;  ///< every agent listens there on its own host

  World(const Scenario& scenario, bool with_history);
  /// Runs to the end of the job; throws Violation.
  void run();

  // ---- for the processes ----
  EventQueue& queue() { return queue_; }
  Network& network() { return network_; }
  Etcd& etcd() { return etcd_; }
  [[nodiscard]] bool reaches_etcd(HostId host) const;
  History& history() { return history_; }
  Checker& checker() { return checker_; }
  Random& random() { return random_; }
  Stats& stats() { return stats_; }
  [[nodiscard]] const Clock& clock(HostId host) const { return hosts_[host].clock; }
  /// All clocks of that host, now.
  [[nodiscard]] Clocks clocks(HostId host) const;
  [[nodiscard]] std::string address(HostId host) const { return "h" + std::to_string(host); }
  [[nodiscard]] std::optional<HostId> host_at(const rendezvous::HostPort& where) const;
  /// The messages of its rounds are counted: no others may be sent.
  [[nodiscard]] bool is_quiet() const { return scenario_.quiet; }
  [[nodiscard]] bool keeps_frames() const { return scenario_.replays; }
  MembershipId next_membership() { return ++memberships_; }
  void count_tick(HostId host);
  /// Between the agent on that host and the coordinator, in either direction.
  void count_frame(HostId agent, const rendezvous::Frame& frame);
  void process_ended(const Process& process);
  struct Life {
    Time length;
    ExitStatus status;
  };
  Life draw_life(std::uint32_t world_size);
  /// From SIGTERM to the worker's exit; nothing: it ignores the signal.
  std::optional<Time> draw_reaction();
  Time draw_spawn_time();
  int draw_start_error();

  // ---- observers, for the end ----
  /// The largest number of frames, except heartbeats, to or from one node in one round.
  [[nodiscard]] std::uint32_t most_frames_per_node_and_round() const;
  [[nodiscard]] std::uint64_t frames_but_beats() const { return frames_but_beats_; }

 private:
  struct Host {
    Clock clock;
    /// Suspended or paused, since when.
    std::optional<std::pair<FaultKind, Time>> stopped;
    Time suspended{0};  ///< in total: time that the monotonic clock excludes
    Time ahead{0};      ///< of the wall clock, relative to `clock`
    std::string name;   ///< of the node on this host
    bool up = true;
    Process* process = nullptr;  ///< the running one
    std::uint32_t starts = 0;
    std::int64_t tick_millisecond = -1;
    std::uint32_t ticks = 0;
  };

  void make_hosts();
  void start_process(HostId host, const std::string& name);
  ProcessSpec spec_of(HostId host, const std::string& name);
  rendezvous::JobPolicy policy() const;
  void apply(const Fault& fault);
  void apply_to(HostId host, const Fault& fault);
  void stop_machine(HostId host, const Fault& fault);
  bool machine_goes_on(HostId host);
  void come_back(HostId host);
  void lose_coordinator(const Fault& fault);
  [[nodiscard]] Process* coordinator_above(rendezvous::Term above) const;
  [[nodiscard]] bool can_succeed(const Process& lost) const;
  void watch_succession(Time since, rendezvous::Term of);
  void heal();
  void watch_waiting();
  [[nodiscard]] const Process* running_coordinator_of(const Process& agent) const;
  [[nodiscard]] bool could_be_larger(const Process& coordinator) const;
  [[nodiscard]] bool is_over() const;
  void check_end() const;

  Scenario scenario_;
  EventQueue queue_;
  Random random_;
  Network network_;
  Etcd etcd_;
  History history_;
  Checker checker_;
  Stats stats_;
  std::vector<Host> hosts_;
  std::vector<std::unique_ptr<Process>> processes_;
  std::size_t living_ = 0;
  std::size_t to_come_ = 0;  ///< nodes that will still start
  MembershipId memberships_ = 0;
  bool is_healed_ = false;
  /// Agents without a place in the running round of their coordinator, since when.
  std::map<const Process*, Time> waiting_since_;
  rendezvous::Term last_lost_;  ///< of the latest coordinator that was lost
  std::uint64_t frames_but_beats_ = 0;
  std::map<std::pair<HostId, std::uint64_t>, std::uint32_t> frames_by_node_and_round_;
};

}  // namespace acc::simulation
