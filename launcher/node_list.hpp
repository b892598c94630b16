#pragma once

#include "common/error.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace acc::launcher {

/// Slurm's short form of host names, as "node[1-3,07-09],gpu-a": all names, in its order, leading
/// zeros kept. Several brackets in one name multiply, the last one fastest. Total; more than
/// 100,000 names are refused.
Result<std::vector<std::string>> expand_node_list(std::string_view text);

/// Slurm's "2(x3),1": 2, 2, 2, 1.
Result<std::vector<std::uint32_t>> expand_counts(std::string_view text);

/// "a,b[1,2],c" cut at the commas outside of brackets; an empty text is one empty entry.
[[nodiscard]] std::vector<std::string_view> list_entries(std::string_view text);

}  // namespace acc::launcher
