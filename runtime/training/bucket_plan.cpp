#include "runtime/training/bucket_plan.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace acc::runtime::training {
namespace {

/// The bucket that is being filled for one type on one device.
struct Open {
  DType dtype;
  Device device;
  std::vector<std::size_t> parameters;
  std::size_t bytes = 0;
  std::size_t limit;
};

struct Closed {
  std::vector<std::size_t> parameters;
  std::size_t complete_at;  ///< position in the order of its last parameter
};

}  // namespace

std::vector<std::size_t> reversed_order(std::size_t parameters) {
  std::vector<std::size_t> order(parameters);
  std::iota(order.rbegin(), order.rend(), std::size_t{0});
  return order;
}

std::vector<std::vector<std::size_t>> plan_buckets(std::span<const Parameter> parameters,
                                                   std::span<const std::size_t> order,
                                                   const BucketLimits& limits) {
  std::vector<Open> open;
  std::vector<Closed> closed;
  std::vector<std::size_t> position(parameters.size());
  const auto close = [&](Open& bucket) {
    const std::size_t last = position[bucket.parameters.back()];
    closed.push_back({std::exchange(bucket.parameters, {}), last});
    bucket.bytes = 0;
    bucket.limit = limits.others;
  };

  for (std::size_t at = 0; at < order.size(); ++at) {
    const std::size_t index = order[at];
    position[index] = at;
    const TensorView& value = parameters[index].value;
    auto bucket = std::ranges::find_if(open, [&](const Open& candidate) {
      return candidate.dtype == value.dtype && candidate.device == value.device;
    });
    if (bucket == open.end())
      bucket = open.insert(open.end(), Open{value.dtype, value.device, {}, 0, limits.first});
    if (!bucket->parameters.empty() && bucket->bytes + value.bytes() > bucket->limit)
      close(*bucket);
    bucket->parameters.push_back(index);
    bucket->bytes += value.bytes();
    if (bucket->bytes >= bucket->limit) close(*bucket);
  }
  for (Open& bucket : open)
    if (!bucket.parameters.empty()) close(bucket);

  std::ranges::sort(closed, {}, &Closed::complete_at);
  std::vector<std::vector<std::size_t>> buckets;
  buckets.reserve(closed.size());
  for (Closed& bucket : closed) buckets.push_back(std::move(bucket.parameters));
  return buckets;
}

}  // namespace acc::runtime::training
