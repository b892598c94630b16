#pragma once

#include "agent/control_protocol.hpp"
#include "agent/coordinated_job.hpp"
#include "agent/lease_timer.hpp"
#include "agent/node_stacks.hpp"
#include "agent/stalled_nodes.hpp"
#include "agent/watch/section_signs.hpp"
#include "agent/watch/shared_step.hpp"
#include "common/worker_socket.hpp"
#include "rendezvous/coordinator_client.hpp"

#include <boost/asio/io_context.hpp>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace acc::agent {

class JobCourse;
class JobRecorder;
struct NodeFacts;
class RoundStarter;
class RoundTerms;

/// What a job on several nodes adds to this node's agent: carries out what the coordinator's orders
/// require besides the supervisor's decision, reports to the coordinator, and exchanges stacks with
/// the other nodes.
///
/// Used on the loop's thread only.
class CoordinatorLink {
 public:
  /// All outlive it: the agent owns them.
  struct Parts {
    boost::asio::io_context& io;
    const JobPlan& plan;
    const GuardianLink& guardian;
    JobRecorder& recorder;
    RoundTerms& terms;
    RoundStarter& starter;
    JobCourse& course;
    StackCollection& stacks;  ///< of this node
  };
  struct Hooks {
    std::function<void(const Event&)> on_event;  ///< for the supervisor
    /// The end of the lease, which may come while another event is on its way to the supervisor.
    std::function<void(const LeaseOver&)> on_lease_over;
    /// This node ends without the coordinator. An event follows.
    std::function<void(const std::string& why)> on_give_up;
    /// To the workers here, before they are stopped.
    std::function<void(const std::vector<worker_socket::LostRank>&)> tell_lost;
    CoordinatedJob::OnClockSkew on_clock_skew;
    /// It has come to this node, or is no longer here.
    std::function<void(bool is_here)> on_coordinator_here;
    /// The round has failed, or ends for another one, also where the workers here have completed.
    /// @param at  of a failure its time
    std::function<void(Instant at)> on_round_lost;
    std::function<void()> on_hang;  ///< as NodeStacks::Parts; null: hangs aren't looked for
  };
  CoordinatorLink(const Parts& parts, Hooks hooks);

  /// Begins to look for the other nodes.
  void join();
  [[nodiscard]] CoordinatedJob& job() { return job_; }
  [[nodiscard]] const CoordinatedJob& job() const { return job_; }
  /// Of the round's nodes; may not be answered.
  void table(std::function<void(std::vector<control::NodeView>)> answer);

  // ---- reports ----
  void report(const ReportFailed& a);
  void report(const ReportStartFailed& a);
  void report(const ReportCompleted& a);
  void report(const ReportUnkillable& a);
  void report(const AskJob& a);

  // ---- the course of a round ----
  /// Nothing of the last one is left.
  void begin_round() { lease_bound_.clear(); }
  /// A worker's process group: it dies with the lease.
  void worker_made(pid_t group) { lease_bound_.add(group); }
  void round_started();
  /// @param workers  of the round
  void round_ended(const std::vector<WorkerRecord>& workers);
  /// The guardian may have ended the lease before our own clock did: its victims are no failures.
  void heed_lease();

  // ---- stacks ----
  /// Of all ranks of the job.
  void collect_stacks(const evidence::Question& question, StackCollection::Collected done);
  void announce_hang() { stacks_.announce_hang(); }
  /// As NodeStacks::compare.
  void compare(const evidence::NodeEvidence& mine,
               std::function<void(StackCollection::Evidence)> done);
  /// As StalledNodes::stalled; nothing: the workers here go on.
  void tell_stalled(std::function<void()> on_all);
  /// Counts them up in the store of the round, and tells their number; without an answer within a
  /// second nothing.
  void count_section_signs(std::int64_t more, std::function<void(SectionSigns::Count)> done);
  /// As SharedStep::Exchange, in the store of the round.
  void exchange_step(std::string expected, std::string value, SharedStep::Answer done);

 private:
  void on_order(const rendezvous::NodeOrder& order);
  /// What an order requires before it reaches the supervisor.
  void prepare(const rendezvous::OrderPort& order);
  void prepare(const rendezvous::OrderRound& order);
  void prepare(const rendezvous::OrderStop& order);
  void prepare(const rendezvous::StopOfCompleted& order);
  void prepare(const rendezvous::OrderKill& order);
  void prepare(const rendezvous::GiveUp& order);
  void prepare(const rendezvous::Tell& order);
  template <class Other>
  void prepare(const Other&) {}
  void note_lost_round(const rendezvous::Stop& stop);
  [[nodiscard]] NodeFacts node_facts() const;

  Parts parts_;
  Hooks hooks_;
  CoordinatedJob job_;
  NodeStacks stacks_;
  StalledNodes stalled_;
  LeaseBoundGroups lease_bound_;
};

}  // namespace acc::agent
