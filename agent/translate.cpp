#include "agent/translate.hpp"

#include <algorithm>
#include <type_traits>

namespace acc::agent {

using rendezvous::Failure;

namespace {

struct ToEvent {
  std::string_view own_name;
  Instant now;

  std::optional<Event> operator()(const rendezvous::OrderRound& order) const {
    return RoundOrdered{order.place.epoch.round, order.place.ledger, now};
  }
  std::optional<Event> operator()(const rendezvous::OrderStop& order) const {
    const bool for_good = order.stop.why == rendezvous::Stop::Why::end;
    const bool is_asked_elsewhere = !order.stop.by.empty() && order.stop.by != own_name;
    const Millis failed_ago = order.stop.failure ? order.stop.failure->ago : Millis{0};
    return StopOrdered{order.stop.signo,   order.stop.grace, for_good, now,
                       is_asked_elsewhere, failed_ago};
  }
  std::optional<Event> operator()(const rendezvous::OrderSignal& order) const {
    return SignalOrdered{order.signal.signo};
  }
  std::optional<Event> operator()(const rendezvous::OrderClose& order) const {
    return JobClosed{{order.close.outcome, order.close.exit_code}, now};
  }
  std::optional<Event> operator()(const rendezvous::OrderKill&) const { return LeaseOver{now}; }
  std::optional<Event> operator()(const rendezvous::GiveUp& order) const {
    using Why = rendezvous::GiveUp::Why;
    const bool is_refused = order.why == Why::refused || order.why == Why::not_authentic;
    const auto code = is_refused ? ExitCode::refused : ExitCode::nodes_missing;
    return GaveUp{{Outcome::nodes_missing, to_int(code)}, is_refused, now};
  }
  std::optional<Event> operator()(const rendezvous::LinkChanged& order) const {
    return LinkChanged{order.is_connected};
  }
  template <class Other>
  std::optional<Event> operator()(const Other&) const {
    return std::nullopt;
  }
};

Failure failure_at(const NodeFacts& node, LocalRank local) {
  Failure failure;
  failure.rank = node.ranks.of(local);
  failure.local_rank = local;
  failure.host = node.host;
  return failure;
}

}  // namespace

std::optional<Event> event_of(const rendezvous::NodeOrder& order, std::string_view own_name,
                              Instant now) {
  return std::visit(ToEvent{own_name, now}, order);
}

Failure failure_of(const WorkerFailure& failure, const NodeFacts& node, Instant now) {
  auto told = failure_at(node, failure.local_rank);
  if (const auto* signaled = std::get_if<Signaled>(&failure.status)) {
    told.kind = Failure::Kind::signaled;
    told.code = signaled->signo;
  } else {
    told.code = std::get<Exited>(failure.status).code;
  }
  told.cause = failure.hang.empty() ? describe(failure.status) : failure.hang;
  told.is_final = failure.is_final;
  told.ago = std::max(std::chrono::duration_cast<Millis>(now - failure.when), Millis{0});
  return told;
}

Failure failure_of(const StartFailure& failure, const NodeFacts& node) {
  auto told = failure_at(node, failure.local_rank);
  told.kind = Failure::Kind::cannot_start;
  told.code = failure.errnum;
  told.cause = "could not be started (" + failure.step + ")";
  return told;
}

Failure unkillable_failure(const NodeFacts& node) {
  auto told = failure_at(node, LocalRank{0});
  told.kind = Failure::Kind::unkillable;
  told.cause = "processes survived SIGKILL; this node needs attention";
  return told;
}

std::string leave_words(Outcome outcome, const std::string& why) {
  if (outcome == Outcome::unfit) return why;
  if (outcome != Outcome::guardian_lost) return std::string{to_string(outcome)};
  return why.empty() ? "its acc-launch was killed" : why;
}

}  // namespace acc::agent
