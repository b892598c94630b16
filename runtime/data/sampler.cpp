#include <acc/error.hpp>
#include <acc/sampler.hpp>
#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

namespace acc::runtime {

namespace {

__extension__ using Product = unsigned __int128;

constexpr std::uint64_t mix(std::uint64_t z) noexcept {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

template <class Index>
std::shared_ptr<const std::vector<Index>> shuffle(std::size_t size, Random random) {
  auto order = std::make_shared<std::vector<Index>>(size);
  std::iota(order->begin(), order->end(), Index{0});
  for (std::size_t i = size; i-- > 1;)
    std::swap((*order)[i], (*order)[static_cast<std::size_t>(random.below(i + 1))]);
  return order;
}

}  // namespace

Random::Random(std::uint64_t seed, std::uint64_t stream) noexcept
    : state_{mix(seed) ^ mix(~stream)} {}

std::uint64_t Random::next() noexcept {
  state_ += 0x9E3779B97F4A7C15;
  return mix(state_);
}

std::uint64_t Random::below(std::uint64_t bound) noexcept {
  if (bound <= 1) return 0;
  Product product = static_cast<Product>(next()) * bound;
  if (static_cast<std::uint64_t>(product) < bound) {
    const std::uint64_t uneven = (0 - bound) % bound;  // 2^64 mod bound
    while (static_cast<std::uint64_t>(product) < uneven)
      product = static_cast<Product>(next()) * bound;
  }
  return static_cast<std::uint64_t>(product >> 64);
}

double Random::uniform() noexcept { return static_cast<double>(next() >> 11) * 0x1p-53; }

IndexOrder IndexOrder::sequential(std::size_t size) {
  IndexOrder order;
  order.size_ = size;
  order.largest_ = size > 0 ? size - 1 : 0;
  return order;
}

IndexOrder IndexOrder::shuffled(std::size_t size, std::uint64_t seed, std::uint64_t epoch) {
  if (size > kMostSamples)
    throw Error{ErrorCode::invalid_argument, "a shuffled order of " + std::to_string(size) +
                                                 " samples: at most 2^40 can be shuffled"};
  IndexOrder order = sequential(size);
  const Random random{seed, epoch};
  if (size <= std::numeric_limits<std::uint32_t>::max()) {
    order.narrow_ = shuffle<std::uint32_t>(size, random);
  } else {
    order.wide_ = shuffle<std::size_t>(size, random);
  }
  return order;
}

IndexOrder IndexOrder::of(std::vector<std::size_t> indices) {
  IndexOrder order;
  order.size_ = indices.size();
  if (!indices.empty()) order.largest_ = *std::ranges::max_element(indices);
  order.wide_ = std::make_shared<const std::vector<std::size_t>>(std::move(indices));
  return order;
}

}  // namespace acc::runtime
