#include "agent/gpu_sampler.hpp"

#include <catch2/catch.hpp>

#include <vector>

using namespace acc::agent::gpu;

namespace {

/// Process 11 is a child of the worker 10, 21 one of 20; others are strangers.
/// Those from 900 on aren't known here.
std::int64_t group(std::int64_t pid) { return pid < 0 || pid >= 900 ? -1 : pid / 10 * 10; }

using Used = std::vector<std::vector<std::uint32_t>>;

}  // namespace

TEST_CASE("samples are the same behind a pipe, and foreign bytes are none", "[agent][gpu]") {
  const std::vector<Sample> samples{{0, 93, 5, 10, {11, 12}}, {1, {}, 0, 0, {}}};
  CHECK(decode_samples(encode(samples)) == samples);
  for (const auto* bad : {"", "{}", "[1]", "[[]]", "[[0,\"x\",1,2,[]]]", "[[0,1,2,3,4]]", "[[["})
    CHECK(decode_samples(bad).value_or(std::vector<Sample>{}).empty());
}

TEST_CASE("a worker's GPUs are those that its processes use", "[agent][gpu]") {
  const std::vector<std::int64_t> workers{10, 20, 0};
  CHECK(gpus_of_workers({{0, 1, 0, 0, {21}}, {1, 1, 0, 0, {11, 12, 21}}, {2, 1, 0, 0, {99}}},
                        workers, group) == Used{{1}, {0, 1}, {}});
}

TEST_CASE("a rank without a GPU was shown with the one that another job uses", "[agent][gpu]") {
  CHECK(gpus_of_workers({{0, 93, 0, 0, {99}}, {1, 40, 0, 0, {}}}, {10, 20}, group) == Used{{}, {}});
}

TEST_CASE("where no GPU names a process, each rank has the one of its number", "[agent][gpu]") {
  CHECK(gpus_of_workers({{0, 1, 0, 0, {}}, {1, 1, 0, 0, {999}}}, {10, 20}, group) ==
        Used{{0}, {1}});
  CHECK(gpus_of_workers({{0, 1, 0, 0, {}}}, {10, 20}, group) == Used{{}, {}});
  // Any of them may be its own.
  CHECK(gpus_of_workers({{0, 1, 0, 0, {}}, {1, 1, 0, 0, {}}}, {10}, group) == Used{{}});
  CHECK(gpus_of_workers({}, {10}, group) == Used{{}});
}
