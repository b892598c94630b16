#include "common/ids.hpp"

namespace acc {

std::string describe(const RankRange& ranks) {
  const auto first = std::to_string(ranks.first.value());
  if (ranks.count <= 1) return "rank " + first;
  return "ranks " + first + "-" + std::to_string(ranks.first.value() + ranks.count - 1);
}

}  // namespace acc
