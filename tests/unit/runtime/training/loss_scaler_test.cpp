#include "tests/support/thread_groups.hpp"

#include <catch2/catch.hpp>

#include <acc/error.hpp>
#include <acc/loss_scaler.hpp>
#include <atomic>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

using namespace acc::runtime;
using acc::testing::on_ranks;

namespace {

struct OneWeight {
  std::vector<float> value{1};
  std::vector<float> gradient{0};
  Sgd sgd{{{"w", std::span<float>{value}, std::span<float>{gradient}}}, {.learning_rate = 1}};
};

}  // namespace

TEST_CASE("the scale starts at 65536 and is taken out of the gradient", "[runtime][training]") {
  OneWeight model;
  LossScaler scaler;
  CHECK(scaler.scale() == 65536);
  CHECK(scaler.scale(0.5) == 32768);
  model.gradient[0] = 65536 * 0.25F;
  CHECK(scaler.step(model.sgd));
  CHECK(model.value[0] == 0.75F);
  CHECK_THROWS_AS(scaler.step(model.sgd), Error);  // before update()
  scaler.update();
  CHECK(scaler.growth_tracker() == 1);
  CHECK_THROWS_AS(scaler.update(), Error);  // nothing since
}

TEST_CASE("an infinite gradient: the step is left out, told, and the scale halved",
          "[runtime][training]") {
  for (const float bad : {INFINITY, std::numeric_limits<float>::quiet_NaN()}) {
    OneWeight model;
    LossScaler scaler;
    std::vector<double> told;
    scaler.on_skip([&](double scale) { told.push_back(scale); });
    model.gradient[0] = bad;
    CHECK_FALSE(scaler.step(model.sgd));
    CHECK(scaler.step_was_skipped());
    scaler.update();
    CHECK(model.value[0] == 1);
    CHECK(model.sgd.steps() == 0);
    CHECK(scaler.scale() == 32768);
    CHECK(scaler.skipped_steps() == 1);
    CHECK(told == std::vector<double>{65536});
    model.gradient[0] = 32768;
    CHECK(scaler.step(model.sgd));
    CHECK_FALSE(scaler.step_was_skipped());
    CHECK(model.value[0] == 0);
  }
}

TEST_CASE("after enough good steps in a row the scale doubles, but never to infinity",
          "[runtime][training]") {
  OneWeight model;
  LossScaler scaler{{.initial_scale = 4, .growth_interval = 3}};
  const auto good = [&] {
    model.gradient[0] = 0;
    scaler.step(model.sgd);
    scaler.update();
  };
  good();
  good();
  CHECK(scaler.scale() == 4);
  good();
  CHECK(scaler.scale() == 8);
  good();
  good();
  model.gradient[0] = INFINITY;
  scaler.step(model.sgd);
  scaler.update();
  CHECK(scaler.scale() == 4);
  good();
  good();  // the row was broken
  CHECK(scaler.scale() == 4);
  good();
  CHECK(scaler.scale() == 8);

  LossScaler top{{.initial_scale = 0x1p127, .growth_interval = 1}};
  top.step(model.sgd);
  top.update();
  CHECK(top.scale() == 0x1p127);
}

TEST_CASE("gradients can be looked at between unscale and step", "[runtime][training]") {
  OneWeight model;
  LossScaler scaler;
  model.gradient[0] = 65536 * 2;
  CHECK(scaler.unscale(model.sgd));
  CHECK(model.gradient[0] == 2);
  CHECK_THROWS_AS(scaler.unscale(model.sgd), Error);
  model.gradient[0] = 0.5F;  // clipped, say
  CHECK(scaler.step(model.sgd));
  CHECK(model.value[0] == 0.5F);
  scaler.update();
  CHECK(scaler.unscale(model.sgd));
}

TEST_CASE("small gradients of f16 parameters became 0 when the scale was taken out",
          "[runtime][training]") {
  std::vector<Half> value{Half{0.0F}}, gradient{Half{2e-8F * 65536}};
  Sgd sgd{{{"w", std::span{value}, std::span{gradient}}}, {.learning_rate = 1000}};
  LossScaler scaler;
  CHECK(scaler.step(sgd));
  scaler.update();
  CHECK(static_cast<float>(value[0]) == Approx(-2e-5).epsilon(0.01));
  CHECK_THROWS_WITH(scaler.unscale(sgd), Catch::Contains("the gradient of 'w' is f16"));
  CHECK(scaler.step(sgd));  // unaffected by what was refused
  scaler.update();
  CHECK(static_cast<float>(value[0]) == Approx(-4e-5).epsilon(0.01));
  gradient[0] = Half{INFINITY};
  CHECK_FALSE(scaler.step(sgd));
  CHECK(scaler.bad_parameter() == "w");
  CHECK(static_cast<float>(value[0]) == Approx(-4e-5).epsilon(0.01));
  gradient[0] = Half{1.0F};
  sgd.step();  // a step without the scaler divides nothing
  CHECK(static_cast<float>(value[0]) == Approx(-1000).epsilon(0.01));
}

TEST_CASE("one bad optimizer of two halves the scale, the other one steps", "[runtime][training]") {
  OneWeight one, other;
  LossScaler scaler;
  one.gradient[0] = INFINITY;
  other.gradient[0] = 65536;
  CHECK_FALSE(scaler.step(one.sgd));
  CHECK(scaler.step(other.sgd));
  scaler.update();
  CHECK(scaler.scale() == 32768);
  CHECK(other.value[0] == 0);
}

TEST_CASE("all ranks leave a step out when one of them has to, sharded or not",
          "[runtime][training]") {
  for (const auto mode : {GradientMode::all_reduce, GradientMode::reduce_scatter}) {
    std::atomic<int> skipped = 0, right = 0;
    on_ranks(4, [&](ProcessGroup& group) {
      std::vector<float> values(1000, 1.0F);
      GradientReducer reducer{group, {{"w", std::span<float>{values}, {}}}, {.mode = mode}};
      Sgd sgd{reducer, {.learning_rate = 1}};
      LossScaler scaler{{.initial_scale = 2}};
      const auto step = [&](float extra) {
        sgd.zero_grad();
        auto* gradient = static_cast<float*>(reducer.gradient(0).data);
        for (std::size_t i = 0; i < 1000; ++i) gradient[i] = 1;
        if (group.rank() == 1) gradient[10] += extra;  // in the part of rank 0
        reducer.ready(0);
        reducer.finish();
        const bool stepped = scaler.step(sgd);
        scaler.update();
        return stepped;
      };
      step(0);
      skipped += step(INFINITY) ? 0 : 1;
      right += values[999] == 0.5F && values[10] == 0.5F && scaler.scale() == 1 ? 1 : 0;
    });
    CHECK(skipped == 4);
    CHECK(right == 4);
  }
}

TEST_CASE("without a reducer the ranks of the given group agree", "[runtime][training]") {
  std::atomic<int> skipped = 0;
  on_ranks(3, [&](ProcessGroup& group) {
    OneWeight model;
    LossScaler scaler{{}, group};
    model.gradient[0] = group.rank() == 2 ? INFINITY : 1.0F;
    skipped += scaler.step(model.sgd) ? 0 : 1;
  });
  CHECK(skipped == 3);
}

TEST_CASE("switched off, it is a plain step", "[runtime][training]") {
  OneWeight model;
  LossScaler scaler{{.enabled = false}};
  CHECK(scaler.scale() == 1);
  model.gradient[0] = 0.5F;
  CHECK(scaler.step(model.sgd));
  scaler.update();
  CHECK(model.value[0] == 0.5F);
}

TEST_CASE("its state goes on in another one", "[runtime][training]") {
  OneWeight model;
  LossScaler scaler{{.growth_interval = 5}};
  model.gradient[0] = INFINITY;
  scaler.step(model.sgd);
  scaler.update();
  model.gradient[0] = 0;
  scaler.step(model.sgd);
  scaler.update();
  LossScaler other;
  other.load_state_text(scaler.state_text());
  CHECK(other.scale() == 32768);
  CHECK(other.growth_tracker() == 1);
  CHECK(other.skipped_steps() == 1);
  CHECK_THROWS_AS(other.load_state_text("{}"), Error);
  CHECK_THROWS_AS(other.load_state_text("nonsense"), Error);
}

TEST_CASE("resumed with a shorter interval than there were good steps, the scale never grew",
          "[runtime][training]") {
  OneWeight model;
  LossScaler scaler{{.initial_scale = 4, .growth_interval = 10}};
  const auto good = [&](LossScaler& with) {
    model.gradient[0] = 0;
    with.step(model.sgd);
    with.update();
  };
  for (int i = 0; i < 5; ++i) good(scaler);
  LossScaler shorter{{.initial_scale = 4, .growth_interval = 3}};
  shorter.load_state_text(scaler.state_text());
  good(shorter);
  CHECK(shorter.scale() == 8);
  CHECK(shorter.growth_tracker() == 0);
}

TEST_CASE("factors that make no sense are refused", "[runtime][training]") {
  CHECK_THROWS_AS(LossScaler({.growth_factor = 1}), Error);
  CHECK_THROWS_AS(LossScaler({.backoff_factor = 1}), Error);
  CHECK_THROWS_AS(LossScaler({.initial_scale = 0}), Error);
  CHECK_THROWS_AS(LossScaler({.growth_interval = 0}), Error);
}

TEST_CASE("the rank of a NaN is named where it is known, and no other is blamed",
          "[runtime][training]") {
  const auto reduced = GENERATE(true, false);
  std::vector<std::string> told(3);
  std::vector<std::vector<int>> blamed(3, {-1});
  on_ranks(3, [&](ProcessGroup& group) {
    std::vector<float> value(4, 1), own(4, 1);
    std::unique_ptr<GradientReducer> reducer;
    std::unique_ptr<Sgd> sgd;
    if (reduced) {
      reducer = std::make_unique<GradientReducer>(
          group, std::vector<Parameter>{{"w", std::span<float>{value}}});
      sgd = std::make_unique<Sgd>(*reducer, SgdOptions{});
    } else {
      sgd = std::make_unique<Sgd>(
          std::vector<Parameter>{{"w", std::span<float>{value}, std::span<float>{own}}},
          SgdOptions{});
    }
    LossScaler scaler{{.initial_scale = 1, .min_scale = 1}, group};
    auto* gradient = reduced ? static_cast<float*>(reducer->gradient(0).data) : own.data();
    gradient[3] = group.rank() == 1 ? NAN : 1.0F;
    if (reduced) {
      reducer->ready(0);
      reducer->finish();
    }
    const auto rank = static_cast<std::size_t>(group.rank());
    try {
      if (!scaler.step(*sgd)) scaler.update();
    } catch (const Error& error) {
      told[rank] = error.what();
      blamed[rank].assign(error.ranks().begin(), error.ranks().end());
    }
  });
  const std::vector<int> whose = reduced ? std::vector<int>{} : std::vector<int>{1};
  CHECK(blamed == std::vector<std::vector<int>>(3, whose));
  CHECK(told == std::vector<std::string>(3, told[0]));
  CHECK_THAT(told[0],
             Catch::Contains("'w'") &&
                 Catch::Contains(reduced ? "any of which may have caused it" : " on rank 1.") &&
                 !Catch::Contains("rank 0"));
}

TEST_CASE("the scale has a floor, where the run ends and the first bad parameter is named",
          "[runtime][training]") {
  std::vector<std::string> told(3);
  std::atomic<int> right = 0;
  on_ranks(3, [&](ProcessGroup& group) {
    std::vector<float> good(4, 1), bad(4, 1);
    GradientReducer reducer{
        group,
        {{"good", std::span<float>{good}, {}}, {"bad", std::span<float>{bad}, {}}},
        {.mode = GradientMode::reduce_scatter}};
    Sgd sgd{reducer, {.learning_rate = 1}};
    LossScaler scaler{{.initial_scale = 4, .min_scale = 1}, group};
    const auto step = [&](float value) {
      reducer.zero_gradients();
      for (std::size_t i = 0; i < 2; ++i) {
        static_cast<float*>(reducer.gradient(i).data)[3] =
            i == 1 ? value : 1.0F;  // the last element: of the last rank
        reducer.ready(i);
      }
      reducer.finish();
      return scaler.step(sgd);
    };
    const float infinite = std::numeric_limits<float>::infinity();
    bool all = true;
    for (const double scale : {4.0, 2.0}) {
      all &= scaler.scale() == scale && !step(infinite) && scaler.step_was_skipped(sgd);
      scaler.update();
    }
    all &= scaler.scale() == 1 && !step(infinite);
    try {
      scaler.update();
    } catch (const Error& error) {
      told[static_cast<std::size_t>(group.rank())] = error.what();
    }
    all &= scaler.scale() == 1;
    // A program that goes on all the same does so with weights that are numbers.
    all &= step(1.0F) && !scaler.step_was_skipped(sgd);
    scaler.update();
    all &= std::isfinite(bad[3]) && bad[0] == 1;
    right += all ? 1 : 0;
  });
  CHECK(right == 3);
  CHECK_THAT(told[0], Catch::Contains("'bad'") && Catch::Contains("min_scale") &&
                          Catch::Contains("any of which may have caused it"));
  CHECK(told[1] == told[0]);
  CHECK(told[2] == told[0]);
  CHECK_THROWS_AS(LossScaler({.min_scale = 0}), Error);
}
