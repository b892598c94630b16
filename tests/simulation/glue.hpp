#pragma once

#include "agent/outcome.hpp"
#include "agent/supervisor.hpp"
#include "rendezvous/member.hpp"

#include <string>

/// Between the supervisor's words and the protocol's: pure, and the same in every agent.
namespace acc::simulation {

[[nodiscard]] rendezvous::Failure failure_of(const agent::WorkerFailure& failure,
                                             const rendezvous::RoundPlace& place,
                                             const std::string& node, Instant now);
[[nodiscard]] rendezvous::Failure failure_of(const agent::StartFailure& failure,
                                             const rendezvous::RoundPlace& place,
                                             const std::string& node);
[[nodiscard]] rendezvous::Failure unkillable_failure(const rendezvous::RoundPlace& place,
                                                     const std::string& node);

/// Why a node goes without having been told that the job is over.
[[nodiscard]] std::string farewell_of(agent::Verdict verdict);

}  // namespace acc::simulation
