#pragma once

#include <acc/error.hpp>
#include <acc/process_group.hpp>
#include <exception>
#include <functional>
#include <string>
#include <vector>

namespace acc::runtime::checkpoint {

/// Collective: the text of every rank, or the first failure of one on all.
/// @throws Error  "rank 2: …"
std::vector<std::string> agree(ProcessGroup& group, const std::function<std::string()>& mine);

/// The current exception as an Error, for the other ranks.
[[nodiscard]] Error as_error(const std::exception_ptr& thrown);

}  // namespace acc::runtime::checkpoint
