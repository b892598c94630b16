#pragma once

#include "runtime/backend.hpp"

#include <acc/process_group.hpp>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace acc::testing {

/// `n` groups for as many threads of this process, over the simplest backend that can be right: one
/// mutex, barriers, and every rank computing its own result from the others' buffers, element by
/// element in the order of the ranks. Slow; what faster backends are compared with.
/// By default with a limit of 20 s for a call, so that a test that hangs ends.
[[nodiscard]] std::vector<runtime::ProcessGroup> thread_groups(int n,
                                                               runtime::GroupOptions options = {});

/// The backends alone, by rank.
[[nodiscard]] std::vector<std::unique_ptr<runtime::Backend>> thread_backends(
    int n, const std::string& group = "world");

/// Runs `body` with each of the groups on a thread of its own and waits for all. The first
/// exception (of the lowest rank) is thrown on; a thread that fails aborts its group, so that the
/// others end.
void on_all(std::vector<runtime::ProcessGroup>& groups,
            const std::function<void(runtime::ProcessGroup&)>& body);
/// With `n` new groups.
void on_ranks(int n, const std::function<void(runtime::ProcessGroup&)>& body);

}  // namespace acc::testing
