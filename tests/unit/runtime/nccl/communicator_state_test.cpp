#include "runtime/nccl/communicator_state.hpp"

#include <catch2/catch.hpp>

using namespace acc::runtime::nccl;

namespace {

const std::vector<Phase> kAllPhases{Phase::idle,   Phase::initialising, Phase::ready,
                                    Phase::broken, Phase::finalising,   Phase::done};
const std::vector<Happening> kAllHappenings{Happening::begin, Happening::succeeded,
                                            Happening::failed, Happening::close};

}  // namespace

TEST_CASE("the life of a communicator, step by step", "[runtime][nccl]") {
  struct Row {
    Phase from;
    Happening what;
    Step expected;
  };
  const Row rows[] = {
      {Phase::idle, Happening::begin, {Phase::initialising, Deed::init}},
      {Phase::idle, Happening::succeeded, {Phase::idle, Deed::nothing}},
      {Phase::idle, Happening::failed, {Phase::broken, Deed::nothing}},
      {Phase::idle, Happening::close, {Phase::done, Deed::nothing}},
      {Phase::initialising, Happening::begin, {Phase::initialising, Deed::nothing}},
      {Phase::initialising, Happening::succeeded, {Phase::ready, Deed::nothing}},
      {Phase::initialising, Happening::failed, {Phase::broken, Deed::abort}},
      {Phase::initialising, Happening::close, {Phase::broken, Deed::abort}},
      {Phase::ready, Happening::begin, {Phase::ready, Deed::nothing}},
      {Phase::ready, Happening::succeeded, {Phase::ready, Deed::nothing}},
      {Phase::ready, Happening::failed, {Phase::broken, Deed::abort}},
      {Phase::ready, Happening::close, {Phase::finalising, Deed::finalize}},
      {Phase::finalising, Happening::begin, {Phase::finalising, Deed::nothing}},
      {Phase::finalising, Happening::succeeded, {Phase::done, Deed::destroy}},
      {Phase::finalising, Happening::failed, {Phase::broken, Deed::abort}},
      {Phase::finalising, Happening::close, {Phase::finalising, Deed::nothing}},
  };
  for (const auto& row : rows) {
    INFO(to_string(row.from) << ", happening " << static_cast<int>(row.what));
    CHECK(step(row.from, row.what) == row.expected);
  }
}

TEST_CASE("what has ended stays ended", "[runtime][nccl]") {
  for (const auto phase : {Phase::broken, Phase::done}) {
    for (const auto what : kAllHappenings) CHECK(step(phase, what) == Step{phase, Deed::nothing});
  }
}

TEST_CASE("an initialised communicator is destroyed or aborted exactly once, whatever happens",
          "[runtime][nccl]") {
  // Every walk of seven steps from idle.
  std::size_t walks = 1;
  for (int i = 0; i < 7; ++i) walks *= kAllHappenings.size();
  for (std::size_t walk = 0; walk < walks; ++walk) {
    auto phase = Phase::idle;
    int made = 0;
    int ended = 0;
    auto rest = walk;
    for (int i = 0; i < 7; ++i, rest /= kAllHappenings.size()) {
      const auto next = step(phase, kAllHappenings[rest % kAllHappenings.size()]);
      phase = next.phase;
      made += next.deed == Deed::init;
      ended += next.deed == Deed::destroy || next.deed == Deed::abort;
    }
    REQUIRE(made <= 1);
    REQUIRE(ended <= made);
    if (phase == Phase::broken || phase == Phase::done) REQUIRE(ended == made);
  }
}

TEST_CASE("each phase has a name of its own", "[runtime][nccl]") {
  for (const auto a : kAllPhases) {
    for (const auto b : kAllPhases) CHECK((a == b) == (to_string(a) == to_string(b)));
  }
}
