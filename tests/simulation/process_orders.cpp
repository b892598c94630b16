#include "agent/translate.hpp"
#include "rendezvous/codec.hpp"
#include "tests/simulation/process.hpp"
#include "tests/simulation/world.hpp"

// Actions of the coordinator client and of the membership.
namespace acc::simulation {

using namespace rendezvous;

namespace {

Bytes bytes_of(const Frame& frame) {
  return std::make_shared<const std::string>(encode(frame.epoch, frame.message));
}

}  // namespace

void Process::carry_out(const ClientActions& actions) {
  if (ended_) return;
  for (const auto& action : actions) {
    std::visit(
        [this]<class A>(const A& a) {
          act(a);
          if constexpr (std::is_constructible_v<NodeOrder, A>) obey(a);
        },
        action);
  }
  if (!client_) return;
  if (const auto change = client_->take_link_change()) obey(*change);
  seek_in_etcd();
}

// As the agent handles orders of the coordinator, or their absence.
void Process::obey(const NodeOrder& order) {
  if (const auto event = agent::event_of(order, name(), now())) feed(*event);
}

void Process::carry_out(const MembershipActions& actions) {
  if (ended_) return;
  for (const auto& action : actions) std::visit([this](const auto& a) { act(a); }, action);
}

// ---- of the coordinator client ----

void Process::act(const DialTo& dial) {
  if (uplink_) world_.network().close(*uplink_);
  uplink_splitter_ = FrameSplitter{kMaxFrame};  // as Dial
  uplink_recent_.clear();
  const auto host = dial.here ? std::optional{host_} : world_.host_at(dial.to);
  dialed_ = dial.to.host + (dial.here ? " (here)" : "");
  if (!host) {
    dispatch([this] { carry_out(client_->dial_failed({false, false, "unknown host"}, now())); });
    return;
  }
  uplink_ = world_.network().dial(*this, host_, *host, dial.limit);
}

void Process::act(const Hang&) {
  if (uplink_) world_.network().close(*uplink_);
  uplink_.reset();
}

void Process::act(const Send& send) {
  if (uplink_) this->send(*uplink_, send.frame, bytes_of(send.frame));
}

void Process::act(const OrderPort&) {
  const auto port = static_cast<std::uint16_t>(world_.random().between(20'000, 60'000));
  carry_out(client_->port_reserved(port, now()));
}

void Process::act(const OrderRound& order) { place_ = order.place; }

void Process::act(const OrderClose& order) {
  if (world_.history().is_on()) note("learns that the job is over: " + order.close.reason);
}

void Process::act(const SetLease& lease) {
  const auto ends = std::chrono::nanoseconds{lease.end.time_since_epoch()}.count();
  renewals_ += ends > guardian_.terms.ends_ns ? 1 : 0;
  guardian_.terms.ends_ns = ends;
  guardian_.terms.ahead_ns = world_.clocks(host_).ahead().count();
  guardian_.in_use = true;
  watch_lease();
  plan_lease_timer();
}

void Process::act(const ClearLease&) {
  guardian_.terms = {};
  guardian_.in_use = false;
}

void Process::act(const OrderKill& order) {
  note("must kill its workers: " + order.why);
  world_.stats().lease_kills += living() > 0 ? 1 : 0;
}

void Process::act(const GiveUp& end) {
  note("gives up: " + end.text);
  ++world_.stats().given_up;
}

void Process::act(const Tell& tell) {
  if (world_.history().is_on()) note("says: " + tell.text);
}

void Process::act(const RefuseVote& refuse) {
  const auto end = end_of(refuse.peer);
  if (!end) return;
  const Frame frame{{}, refuse.refused};
  send(*end, frame, bytes_of(frame));
  act(ClosePeer{refuse.peer});
}

void Process::act(const TakeOver& take) {
  elected_ = true;
  ++world_.stats().elections;
  membership_id_ = world_.next_membership();
  MembershipActions actions;
  membership_.emplace(spec_.membership, take.result, now(), actions);
  is_successor_ = true;
  for (const auto& vote : take.result.votes) {
    if (const auto end = end_of(vote.peer)) peers_.at(*end).role = Peer::Role::of_membership;
  }
  carry_out(actions);
  announce_to_seed();
}

// ---- of the membership ----

void Process::note_start(const Frame& frame) const {
  auto& checker = world_.checker();
  if (std::holds_alternative<Start>(frame.message))
    checker.start_sent(membership_id_, frame.epoch, is_successor_);
  if (const auto* stop = std::get_if<Stop>(&frame.message))
    checker.stop_sent(frame.epoch, stop->why);
  const auto* reply = std::get_if<RestartReply>(&frame.message);
  if (reply && reply->why_not.empty() && membership_->phase() == MembershipPhase::stopping)
    checker.restart_promised(frame.epoch);
}

void Process::act(const SendTo& send) {
  note_start(send.frame);
  if (const auto end = end_of(send.peer)) this->send(*end, send.frame, bytes_of(send.frame));
}

void Process::act(const SendAll& send) {
  note_start(send.frame);
  const auto bytes = bytes_of(send.frame);
  for (const auto peer : send.peers) {
    if (const auto end = end_of(peer)) this->send(*end, send.frame, bytes);
  }
}

void Process::act(const ClosePeer& close) {
  const auto end = end_of(close.peer);
  if (!end) return;
  world_.network().close(*end);
  peers_.erase(*end);
  end_of_peer_.erase(close.peer);
  if (membership_) carry_out(membership_->left(close.peer, {"closed by us"}, membership_time()));
}

void Process::act(const ResetStore&) {}

void Process::act(const TellHere& tell) {
  if (world_.history().is_on()) note("as coordinator says: " + tell.text);
}

void Process::act(const StepDown& down) {
  note("steps down: " + down.why);
  ++world_.stats().step_downs;
  for (const auto& [end, peer] : peers_) world_.network().close(end);
  peers_.clear();
  end_of_peer_.clear();
  if (leadership_) carry_out(leadership_->resign(now()));
  membership_.reset();
  elected_ = false;
  const std::string why = down.why;
  if (client_) carry_out(client_->stepped_down(why, now()));
  if (!client_) job_over_ = true;
}

void Process::act(const JobOver& over) {
  if (world_.history().is_on())
    note("as coordinator ends the job: outcome " +
         std::to_string(static_cast<int>(over.close.outcome)) + ", code " +
         std::to_string(over.close.exit_code) + ", " + over.close.reason);
  job_over_ = true;
  world_.checker().closed(membership_id_, over.close);
}

}  // namespace acc::simulation
