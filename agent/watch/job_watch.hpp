#pragma once

#include "agent/heartbeat_board.hpp"
#include "agent/job_plan.hpp"
#include "agent/watch/goodput.hpp"
#include "agent/watch/hang_detector.hpp"
#include "agent/watch/page_holders.hpp"
#include "agent/watch/section_signs.hpp"
#include "agent/watch/shared_step.hpp"
#include "agent/watch/slow_restart.hpp"
#include "agent/watch/stack_collection.hpp"
#include "agent/watch/stall_detector.hpp"
#include "agent/watch/straggler_watch.hpp"
#include "agent/watch/suspects.hpp"
#include "agent/worker_group.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace acc::agent {

class RunFolder;
class UserMessages;

/// Looks at the workers while they run: once a second if they send heartbeats, at longer intervals
/// for --stall_timeout, and never if neither is in use. Of a hang it collects the stacks, and names
/// the rank that is behind.
class JobWatch {
 public:
  using Evidence = StackCollection::Evidence;
  struct Hang {
    LocalRank rank{0};
    std::string cause;
    std::string file;  ///< with the stacks; kOnStderr: no file took them; empty: none
  };
  /// In place of a file in the report.
  static constexpr const char* kOnStderr = "stderr";
  struct Hooks {
    std::function<void(const Hang&)> on_hang;
    /// After each look at heartbeats, once a second.
    std::function<void()> on_look;
    std::function<void(Rank, const StragglerWatch::Straggler&)> on_straggler;
    /// On several nodes: adds what the other nodes found about their silent ranks, now or later.
    /// Without `done`: takes back what this node told them.
    std::function<void(const evidence::NodeEvidence& mine, std::function<void(Evidence)>)> compare;
    /// On several nodes: tells all that ranks here are silent.
    std::function<void()> announce_hang;
    /// On several nodes: the workers here do nothing; calls back when that is so on all nodes.
    /// Nothing: they go on.
    std::function<void(std::function<void()> on_all)> tell_stalled;
    /// On several nodes.
    std::optional<SectionSigns::Hooks> section_signs;
    SharedStep::Exchange exchange_step;
  };
  /// All outlive the watch.
  struct Parts {
    boost::asio::io_context& io;
    const JobPlan& plan;
    const WorkerGroup& workers;
    const UserMessages& messages;
    RunFolder& run_folder;
    std::string job_id;
    std::string node;
  };
  JobWatch(const Parts& parts, Hooks hooks);

  // ---- the course of the job ----
  void round_started(HeartbeatBoard& board, Round round, Instant now);
  /// No worker is judged any more. @param is_lost  by a failure, or for another round
  void round_ended(bool is_lost, Instant now);
  /// Another round follows, of which a node whose workers have completed learns only now.
  /// @param now  the time of the failure
  void round_failed_elsewhere(Instant now) { goodput_.round_failed_elsewhere(now); }
  /// All workers are stopped for a while, and go on: Ctrl-Z and fg.
  void suspended();
  [[nodiscard]] bool is_suspended() const { return is_suspended_; }
  void resumed(Instant now);

  /// Ranks of some node are silent, and may wait for one here that sends no heartbeats, or those of
  /// one step.
  void look_for_others();

  // ---- what it knows ----
  [[nodiscard]] GoodputFigures goodput(Instant now) const { return goodput_.at(now); }
  [[nodiscard]] std::optional<heartbeat::Beat> beat(LocalRank worker) const;
  [[nodiscard]] std::optional<double> steps_per_second(LocalRank worker) const {
    return stragglers_.steps_per_second(worker, clock_now());
  }
  [[nodiscard]] bool saw_checkpoint() const;

  /// Of this node; others than the watch may ask for them at any time.
  [[nodiscard]] StackCollection& stacks() { return stacks_; }

 private:
  void arm();
  /// The workers, or this process, were stopped: what passed until now counts for nothing.
  void restart_clocks(Instant now);
  /// A debugger of ours held the workers.
  void leave_out(Instant from, Instant to);
  void look();
  /// Pages of programs that have ended say nothing of those that follow.
  void release_pages();
  void look_for_hangs(const std::vector<heartbeat::Beat>& beats, const std::vector<bool>& lives,
                      Instant now);
  void look_for_stragglers(const std::vector<heartbeat::Beat>& beats, Instant now);
  void look_for_stall(Instant now);
  void look_for_slow_restart(const std::vector<heartbeat::Beat>& beats);
  void on_silent(const HangDetector::Look& look);
  void on_section_signs(bool has_risen);
  void on_stall(Millis quiet);
  /// Those that stalled on other nodes are compared, too.
  void compare_stall(const evidence::NodeEvidence& mine);
  void take_back_stall();
  /// With --stall_action restart on several nodes: the round ends once all of them have stalled.
  void wait_for_stall_of_all();
  /// No hang after all.
  void go_on_watching();
  void call_off();
  void conclude(const Suspects& found, Result<evidence::Answer> answer);
  void conclude_for_others(const Suspects& found, Result<evidence::Answer> answer);
  /// What other nodes were told of ranks that go on would blame them at the next hang.
  void take_back_suspects(const std::vector<heartbeat::Beat>& beats);
  void tell_held(const HangDetector::Look& look, Instant now);
  void name_culprit(const std::vector<SilentRank>& silent, const std::string& file,
                    const Evidence& nodes);
  void report_hang(Hang hang, const Evidence& nodes);
  [[nodiscard]] std::vector<Rank> ranks_here() const;
  [[nodiscard]] Rank rank_of(LocalRank worker) const;
  [[nodiscard]] std::vector<std::uint32_t> ranks_of_workers(
      const std::vector<LocalRank>& workers) const;

  Parts parts_;
  Hooks hooks_;
  boost::asio::steady_timer timer_;
  boost::asio::steady_timer patience_;  ///< with the node of the culprit
  HeartbeatBoard* board_ = nullptr;     ///< null: no round runs
  Round round_{0};
  std::string times_file_;
  HangDetector hangs_;
  PageHolders holders_;
  std::optional<SectionSigns> section_signs_;  ///< of other nodes
  std::optional<SharedStep> shared_step_;      ///< of several nodes, with --hang_timeout auto
  StragglerWatch stragglers_;
  StallDetector stall_;
  Goodput goodput_;
  SlowRestart slow_restart_;
  StackCollection stacks_;
  std::optional<Instant> next_deadline_;
  Instant stall_look_{};
  Instant expected_{};  ///< when the timer fires
  /// For which silent ranks of other nodes may wait: these nodes know of them.
  std::optional<Suspects> told_suspects_;
  bool is_put_off_ = false;  ///< ranks are silent, and other nodes' sections aren't known
  bool is_judging_ = false;  ///< a hang was found and its evidence is being collected
  bool is_suspended_ = false;
  /// Of the stall that was told; an error: its stacks could not be read.
  std::optional<Result<evidence::Answer>> stall_found_;
  bool do_others_know_stall_ = false;  ///< the other nodes, of the one that was told
  bool is_unused_told_ = false;
  bool is_held_told_ = false;  ///< in this round
  bool saw_checkpoint_ = false;
};

}  // namespace acc::agent
