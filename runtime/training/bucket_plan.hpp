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

/// The assumed order of the first backward: the last parameter first.
[[nodiscard]] std::vector<std::size_t> reversed_order(std::size_t parameters);

/// Groups parameters into buckets: those of one type on one device, in `order`, as many as fit into
/// the limit; a larger one alone. Buckets are ordered by completion, so that none waits for a later
/// one. The same on every rank.
[[nodiscard]] std::vector<std::vector<std::size_t>> plan_buckets(
    std::span<const Parameter> parameters, std::span<const std::size_t> order,
    const BucketLimits& limits);

}  // namespace acc::runtime::training
