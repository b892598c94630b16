#pragma once

#include <nlohmann/json.hpp>

#include <acc/types.hpp>
#include <string>

/// The words by which the recorded collectives say what each rank brings.
namespace acc::golden {

/// "[1 + rank, 2 * rank] float32", "scalar int64 rank", "2x3 int64 full of rank",
/// "1-D, rank + 1 elements, all rank + 1", "2 x (rank + 1), all rank",
/// "1-D of 2, dim out of range": with any numbers in it. @throws Malformed
[[nodiscard]] runtime::HostTensor rank_tensor(const std::string& words, int rank);

/// "[{'r': rank}]": Python's literals, and `rank`. @throws Malformed
[[nodiscard]] nlohmann::json rank_object(const std::string& words, int rank);

/// {"shape", "dtype", "data"}
[[nodiscard]] nlohmann::json describe(const runtime::HostTensor& tensor);

}  // namespace acc::golden
