#pragma once

#include <string_view>

/// Names of what the launcher says of a job, and nodes compare when they join
/// (rendezvous/join_rules.hpp).
namespace acc::job_facts {

inline constexpr std::string_view kWorldSize = "world size";
/// Only of a line that counts its own machine's processes, as torchrun's: its world size is a
/// multiple of that, and needn't be equal on nodes that both have this.
inline constexpr std::string_view kPerNode = "processes per node";
inline constexpr std::string_view kScript = "script";
inline constexpr std::string_view kArguments = "arguments";
inline constexpr std::string_view kPrecision = "precision";

}  // namespace acc::job_facts
