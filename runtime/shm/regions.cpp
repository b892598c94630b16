#include "runtime/shm/regions.hpp"

#include <algorithm>
#include <utility>

namespace acc::runtime::shm {

std::size_t Regions::bytes_for(std::size_t part) const noexcept {
  return page_up(part) * static_cast<std::size_t>(size_);
}

SharedBuffer Regions::add(UniqueFd memory, std::size_t part) {
  struct Held {
    std::shared_ptr<Mapping> mapping;
    std::shared_ptr<std::atomic<bool>> in_use = std::make_shared<std::atomic<bool>>(true);
    ~Held() { in_use->store(false); }
  };
  auto held = std::make_shared<Held>();
  held->mapping = Mapping::of(std::move(memory), bytes_for(part));
  auto* const base = held->mapping->data();
  const auto stride = page_up(part);
  regions_.push_back({base, stride, part, held->in_use});
  return {base + stride * static_cast<std::size_t>(rank_), part, std::move(held)};
}

std::uint64_t Regions::look_up(const void* data, std::size_t bytes) const noexcept {
  const auto* const at = static_cast<const std::byte*>(data);
  for (std::size_t i = 0; i < std::min(regions_.size(), kMostNumbers); ++i) {
    const Region& region = regions_[i];
    const std::byte* const own = region.base + region.stride * static_cast<std::size_t>(rank_);
    if (at < own || at + bytes > own + region.part || !*region.in_use) continue;
    return std::uint64_t{1} << 63 | static_cast<std::uint64_t>(i) << kOffsetBits |
           static_cast<std::uint64_t>(at - own);
  }
  return 0;
}

std::byte* Regions::at(std::uint64_t where, int rank) const noexcept {
  const auto index = (where & ~(std::uint64_t{1} << 63)) >> kOffsetBits;
  const auto offset = where & ((std::uint64_t{1} << kOffsetBits) - 1);
  const Region& region = regions_[static_cast<std::size_t>(index)];
  return region.base + region.stride * static_cast<std::size_t>(rank) + offset;
}

}  // namespace acc::runtime::shm
