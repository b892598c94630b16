#include "tests/simulation/glue.hpp"

#include <algorithm>

namespace acc::simulation {

using rendezvous::Failure;

namespace {

Failure at(const rendezvous::RoundPlace& place, LocalRank local, const std::string& node) {
  Failure failure;
  failure.rank = Rank{place.first_rank.value() + local.value()};
  failure.local_rank = local;
  failure.node = failure.host = node;
  return failure;
}

}  // namespace

Failure failure_of(const agent::WorkerFailure& failure, const rendezvous::RoundPlace& place,
                   const std::string& node, Instant now) {
  auto told = at(place, failure.local_rank, node);
  if (const auto* signaled = std::get_if<Signaled>(&failure.status)) {
    told.kind = Failure::Kind::signaled;
    told.code = signaled->signo;
  } else {
    told.code = std::get<Exited>(failure.status).code;
  }
  told.cause = describe(failure.status);
  told.ago = std::max(std::chrono::duration_cast<Millis>(now - failure.when), Millis{0});
  return told;
}

Failure failure_of(const agent::StartFailure& failure, const rendezvous::RoundPlace& place,
                   const std::string& node) {
  auto told = at(place, failure.local_rank, node);
  told.kind = Failure::Kind::cannot_start;
  told.code = failure.errnum;
  told.cause = "could not be started (" + failure.step + ")";
  return told;
}

Failure unkillable_failure(const rendezvous::RoundPlace& place, const std::string& node) {
  auto told = at(place, LocalRank{0}, node);
  told.kind = Failure::Kind::unkillable;
  told.cause = "survived SIGKILL";
  return told;
}

std::string farewell_of(agent::Verdict verdict) {
  return "its agent ends: " + std::string{agent::to_string(verdict)};
}

}  // namespace acc::simulation
