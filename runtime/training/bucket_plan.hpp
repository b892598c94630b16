#pragma once

#include <acc/parameter.hpp>
#include <cstddef>
#include <span>
#include <vector>

namespace acc::runtime::training {

struct BucketLimits {
  std::size_t first = 1024 * 1024;  ///< bytes
  std::size_t others = 25 * 1024 * 1024;
};

/// The order of the first backward, before anybody knows better: the last parameter first.
[[nodiscard]] std::vector<std::size_t> reversed_order(std::size_t parameters);

/// Which parameters travel together: those of one type on one device, in `order`, as many as fit
/// into the limit; one that is larger than the limit goes alone. Buckets stand in the order in
/// which they become complete, so that none waits for a later one. The same on every rank.
[[nodiscard]] std::vector<std::vector<std::size_t>> plan_buckets(
    std::span<const Parameter> parameters, std::span<const std::size_t> order,
    const BucketLimits& limits);

}  // namespace acc::runtime::training
