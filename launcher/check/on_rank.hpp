#pragma once

#include <span>
#include <string>

namespace acc::check {

/// First word of acc-test where it is started on each rank of another machine.
inline constexpr const char* kOnRank = "--on_rank";

/// On the first rank of a machine: looks at it and tells what was found, behind a mark. Then this
/// process becomes acc-test-worker with these words.
/// @return only if it fails: the exit code
int run_on_rank(std::span<const std::string> worker_words);

}  // namespace acc::check
