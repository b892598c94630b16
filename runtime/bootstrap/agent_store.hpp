#pragma once

#include "common/agent_client.hpp"
#include "runtime/bootstrap/contract.hpp"
#include "runtime/bootstrap/store.hpp"

#include <memory>

namespace acc::runtime {

/// The store that our agent keeps for the round, behind its socket. Values of any size: larger
/// ones than the agent takes are kept in parts.
/// @param patience  for each answer of the agent, connecting included
/// @return an error where the agent can't be reached from here (a container's own network).
[[nodiscard]] Result<std::shared_ptr<Store>> connect_agent_store(const Contract& contract,
                                                                 Millis patience);

}  // namespace acc::runtime
