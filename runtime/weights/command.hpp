#pragma once

#include "runtime/weights/merge.hpp"

#include <filesystem>
#include <span>
#include <string>
#include <vector>

/// The words of `acc merge-weights` and `acc estimate-memory` (pure).
namespace acc::weights {

struct MergeCommand {
  fs::path from;
  std::string part = kModelPart;
  MergeOptions options;
  bool help = false;
  std::vector<std::string> complaints;  ///< when not empty, the rest must not be used
};
[[nodiscard]] MergeCommand parse_merge(std::span<const std::string> words);
[[nodiscard]] std::string merge_help();

struct EstimateCommand {
  std::vector<std::string> paths;
  std::vector<std::string> dtypes;
  std::string part = kModelPart;
  bool json = false;
  bool help = false;
  std::vector<std::string> complaints;
};
[[nodiscard]] EstimateCommand parse_estimate(std::span<const std::string> words);
[[nodiscard]] std::string estimate_help();

}  // namespace acc::weights
