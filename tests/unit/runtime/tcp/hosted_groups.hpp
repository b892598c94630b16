#pragma once

#include "runtime/world/group_builder.hpp"

#include <acc/process_group.hpp>
#include <functional>
#include <string>
#include <vector>

namespace acc::testing {

/// Groups for threads of this process that believe to be on several hosts: "aab" is two ranks on
/// host a and one on b. Between "hosts" they have real sockets over loopback.
[[nodiscard]] std::vector<runtime::ProcessGroup> hosted_groups(const std::string& layout,
                                                               runtime::GroupOptions options = {});

/// Runs `body` on a thread for each group. @return "well", or the error, of each rank.
std::vector<std::string> on_ranks(std::vector<runtime::ProcessGroup>& groups,
                                  const std::function<void(runtime::ProcessGroup&)>& body);

}  // namespace acc::testing
