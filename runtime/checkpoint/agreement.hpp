#pragma once

#include <acc/call.hpp>
#include <acc/error.hpp>
#include <acc/process_group.hpp>
#include <chrono>
#include <exception>
#include <functional>
#include <string>
#include <vector>

namespace acc::runtime::checkpoint {

/// How long ranks wait for what one of them does with files, and in the functions that a program
/// registers: the group's own limit is one of calls in which all ranks only communicate, and may be
/// much shorter. A rank that ends is noticed at once all the same.
inline constexpr Millis kFilesTimeout = std::chrono::minutes{30};
/// With kFilesTimeout, or the group's limit where that is longer.
[[nodiscard]] CallOptions call_for_files(const ProcessGroup& group);

/// Collective: the text of every rank, or the first failure of one on all.
/// @throws Error  "rank 2: …"
std::vector<std::string> agree(ProcessGroup& group, const std::function<std::string()>& mine);

/// The current exception as an Error, for the other ranks.
[[nodiscard]] Error as_error(const std::exception_ptr& thrown);

}  // namespace acc::runtime::checkpoint
