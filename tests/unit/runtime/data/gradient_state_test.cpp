#include <catch2/catch.hpp>

#include <acc/gradient_state.hpp>

using namespace acc::runtime;

TEST_CASE("gradients are exchanged every so many batches and with the last one",
          "[runtime][data]") {
  GradientState state{3};
  const auto loader = std::make_shared<LoaderStatus>();
  state.enter(loader);
  for (int epoch = 0; epoch < 3; ++epoch) {
    loader->end_of_dataloader = false;
    CHECK_FALSE(state.next_batch());
    CHECK_FALSE(state.next_batch());
    CHECK(state.next_batch());
    CHECK_FALSE(state.next_batch());
    loader->end_of_dataloader = true;
    CHECK(state.next_batch());
    CHECK(state.batches() == 0);  // the next epoch counts anew
  }
}

TEST_CASE("without sync_with_dataloader counting goes on over epochs", "[runtime][data]") {
  GradientState state{3, false};
  const auto loader = std::make_shared<LoaderStatus>(LoaderStatus{true, 0});
  state.enter(loader);
  CHECK_FALSE(state.next_batch());
  CHECK_FALSE(state.next_batch());
  CHECK(state.next_batch());
}

TEST_CASE("exchanging in each batch doesn't change when the optimizer steps", "[runtime][data]") {
  GradientState state{2, true, true};
  CHECK_FALSE(state.next_batch());
  CHECK(state.exchange());
  CHECK(state.next_batch());
  CHECK(state.exchange());
}

TEST_CASE("counting goes on behind a restart", "[runtime][data]") {
  GradientState before{3};
  before.next_batch();
  before.next_batch();
  GradientState after{3};
  after.restore(before.batches());
  CHECK(after.next_batch());
}

TEST_CASE("the innermost loader is asked", "[runtime][data]") {
  GradientState state;
  CHECK_FALSE(state.in_dataloader());
  CHECK(state.remainder() == -1);
  const auto training = std::make_shared<LoaderStatus>(LoaderStatus{true, 3});
  const auto evaluation = std::make_shared<LoaderStatus>(LoaderStatus{false, 5});
  state.enter(training);
  state.enter(evaluation);
  CHECK_FALSE(state.end_of_dataloader());
  CHECK(state.remainder() == 5);
  state.leave(evaluation);
  CHECK(state.end_of_dataloader());
  CHECK(state.remainder() == 3);
  state.leave(training);
  CHECK_FALSE(state.in_dataloader());
}

TEST_CASE("a loader that was entered twice is left once", "[runtime][data]") {
  GradientState state;
  const auto loader = std::make_shared<LoaderStatus>();
  state.enter(loader);
  state.enter(loader);
  state.leave(loader);
  CHECK(state.in_dataloader());
  state.leave(loader);
  CHECK_FALSE(state.in_dataloader());
  state.leave(loader);
}

TEST_CASE("no steps count as one", "[runtime][data]") {
  GradientState state{0};
  CHECK(state.next_batch());
}
