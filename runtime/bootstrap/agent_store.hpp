#pragma once

#include "common/agent_client.hpp"
#include "runtime/bootstrap/launch_environment.hpp"
#include "runtime/net/store.hpp"

#include <memory>

namespace acc::runtime {

/// The key-value store of the round that the agent serves on its socket. Values of any size: those
/// larger than the agent accepts are stored in parts.
/// @param patience  limit for each answer of the agent, including the connection
/// @return an error where the agent can't be reached (a container with a network of its own).
[[nodiscard]] Result<std::shared_ptr<Store>> connect_agent_store(const LaunchEnvironment& launch,
                                                                 Millis patience);

}  // namespace acc::runtime
