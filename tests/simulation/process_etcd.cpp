#include "tests/simulation/process.hpp"
#include "tests/simulation/world.hpp"

// Finding, and being, the coordinator with etcd: the part of RendezvousClient and Coordinator
// around the production state machine.
namespace acc::simulation {

using namespace rendezvous;

// Before each event of the membership: its leadership may be over before it is notified.
Instant Process::membership_time() {
  if (spec_.by_etcd && membership_) {
    const auto leadership_term = leadership_ ? leadership_->leadership_term() : std::nullopt;
    leadership_term ? membership_->lead_until(leadership_term->until, leadership_term->asked)
                    : membership_->lead_until(Instant::min());
  }
  return now();
}

void Process::seek_in_etcd() {
  if (!spec_.by_etcd || !client_ || membership_ || ended_) return;
  const bool seeks = seeks_coordinator(client_->phase());
  if (seeks == leadership_.has_value()) return;
  leadership_.reset();
  ++leadership_number_;
  if (!seeks) return;
  LeadershipOptions options;
  options.job = spec_.membership.job;
  options.me = spec_.client->self.node;
  options.at = {world_.address(host_), World::kPort};
  options.ttl = leadership_ttl(spec_.membership.timings);
  options.lowest_term = client_->term().number + 1;
  options.nodes = spec_.membership.nodes_max;
  options.seed = spec_.client->seed;
  leadership_.emplace(std::move(options));
  carry_out(leadership_->begin(now()));
}

void Process::carry_out(const LeadershipActions& actions) {
  for (const auto& action : actions) {
    // Events are delivered on the loop, later; a request is sent immediately.
    if (const auto* const question = std::get_if<AskEtcd>(&action)) {
      act(*question);
      continue;
    }
    world_.queue().after(Time{0}, [this, action, number = leadership_number_] {
      dispatch([this, action, number] {
        if (number == leadership_number_) std::visit([this](const auto& a) { act(a); }, action);
      });
    });
  }
}

void Process::act(const AskEtcd& question) {
  const auto path = [this] { return world_.reaches_etcd(host_); };
  const auto done = [this, id = question.id,
                     number = leadership_number_](const Result<EtcdAnswer>& answer) {
    dispatch([this, id, number, answer] {
      if (leadership_ && number == leadership_number_)
        carry_out(leadership_->answered(id, answer, now()));
    });
  };
  world_.etcd().ask(question, path, done);
}

void Process::act(const FollowLeader& follow) {
  if (!membership_) carry_out(client_->coordinator_is_at(follow.leader.at, now()));
}

void Process::act(const BecomeLeader& won) {
  if (membership_ || !leadership_) return;
  if (is_job_gone(won, client_->state())) {
    note("wins a key without a table: its job is gone");
    carry_out(leadership_->end(true, now()));
    carry_out(client_->job_is_gone("etcd knows nothing of the job", now()));
    return;
  }
  note("leads by etcd, term " + std::to_string(won.term) +
       (won.last ? ", after round " + std::to_string(won.last->epoch.round.value()) : ""));
  ++world_.stats().elections;
  auto options = spec_.membership;
  options.external_leader = true;
  options.term = {won.term, 0};
  membership_id_ = world_.next_membership();
  membership_.emplace(std::move(options), now());
  is_successor_ = won.last.has_value();
  continues_record_ = won.last.has_value();
  world_.checker().elected_by_etcd(client_->term().number > 0);
  if (won.last) carry_out(membership_->recover(*won.last, membership_time()));
  if (membership_)
    carry_out(client_->coordinator_is_here({world_.address(host_), World::kPort}, now()));
}

void Process::act(const StopLeading& stop) {
  if (membership_ && !job_over_) act(StepDown{stop.why});
}

void Process::act(const RoundCommitted& committed) {
  if (membership_) carry_out(membership_->committed(committed.epoch, membership_time()));
}

void Process::act(const EtcdTrouble& trouble) {
  note("has trouble with etcd: " + trouble.text);
  if (membership_) membership_->note_etcd_trouble(trouble.text);
}

// The round in etcd was of an earlier run without surviving agents: the job begins anew, with all
// its restarts.
void Process::act(const CommitRound& commit) {
  if (std::exchange(continues_record_, false) && commit.record.ledger == RestartLedger{})
    world_.checker().begins_anew();
  if (leadership_) carry_out(leadership_->commit(commit.record, now()));
}

}  // namespace acc::simulation
