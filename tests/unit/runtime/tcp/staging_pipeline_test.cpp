#include "runtime/tcp/staging_pipeline.hpp"

#include <catch2/catch.hpp>

using acc::runtime::tcp::NodeSegment;
using acc::runtime::tcp::StagingPipeline;

TEST_CASE("with more than 65,536 ranks a collective over hosts moved nothing, for ever",
          "[tcp][hosts]") {
  constexpr std::size_t kMostRanks = 1'048'576;
  for (const std::size_t ranks : {1UL, 2UL, 3UL, 1000UL, 65'536UL, 65'537UL, kMostRanks}) {
    for (const std::size_t pieces : {0UL, 1UL, ranks / 2, ranks}) {
      CAPTURE(ranks, pieces);
      const auto slot = StagingPipeline::slot_bytes(pieces, ranks);
      CHECK(slot >= NodeSegment::kAlign);
      CHECK(slot % NodeSegment::kAlign == 0);  // no element lies in two passes
      CHECK(slot * pieces <= NodeSegment::staging_bytes(ranks));
    }
  }
}

TEST_CASE("the staging buffer of a group of usual size is 4 MiB, shared by its pieces",
          "[tcp][hosts]") {
  CHECK(NodeSegment::staging_bytes(2) == 4 << 20);
  CHECK(NodeSegment::staging_bytes(65'536) == 4 << 20);
  CHECK(StagingPipeline::slot_bytes(1, 8) == 4 << 20);
  CHECK(StagingPipeline::slot_bytes(8, 8) == 512 << 10);
}
