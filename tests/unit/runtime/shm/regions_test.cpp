#include "runtime/shm/regions.hpp"

#include <catch2/catch.hpp>

#include <sys/mman.h>
#include <unistd.h>

using namespace acc;
using namespace acc::runtime;
using namespace acc::runtime::shm;

namespace {

SharedBuffer next_of(Regions& regions) {
  UniqueFd memory{::memfd_create("acc-test", MFD_CLOEXEC)};
  REQUIRE(memory);
  REQUIRE(::ftruncate(memory.get(), static_cast<off_t>(regions.bytes_for(64))) == 0);
  return regions.add(std::move(memory), 64);
}

}  // namespace

TEST_CASE("the 32,769th registered buffer of a group was taken for the first one",
          "[runtime][shm]") {
  Regions regions{0, 2};
  const auto first = next_of(regions);
  CHECK(Regions::is_place(regions.where(first.data(), 64)));
  for (int i = 1; i < 32'767; ++i) (void)next_of(regions);
  const auto last = next_of(regions);
  const auto where = regions.where(last.data(), 64);
  CHECK(Regions::is_place(where));
  CHECK(regions.at(where, 0) == static_cast<const std::byte*>(last.data()));
  const auto beyond = next_of(regions);
  CHECK(regions.where(beyond.data(), 64) == 0);  // as memory of any kind
}
