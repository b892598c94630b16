#include "runtime/training/step_means.hpp"
#include "tests/support/thread_groups.hpp"
#include "tests/unit/runtime/training/toy_net.hpp"

#include <catch2/catch.hpp>

#include <acc/accelerator.hpp>
#include <acc/error.hpp>
#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <mutex>
#include <string>
#include <vector>

// Several reduced backwards before one step.
using namespace acc::runtime;
using acc::testing::on_ranks;
using acc::testing::random_floats;

namespace {

using Floats = std::vector<float>;

std::span<float> floats(const TensorView& view) {
  return {static_cast<float*>(view.data), view.count()};
}

const std::vector<std::size_t> kSizes{100, 3, 57, 64};

/// A model on one rank. What a backward adds depends on the rank and the backward's number.
struct Model {
  std::vector<Floats> values, own;
  GradientReducer reducer;
  Sgd sgd;
  std::uint32_t backwards = 0;

  Model(ProcessGroup& group, GradientMode mode, bool own_memory)
      : reducer{group, parameters(own_memory), options(mode)},
        sgd{reducer, {.learning_rate = 0.1, .momentum = 0.9}} {}

  std::vector<Parameter> parameters(bool own_memory) {
    for (const std::size_t size : kSizes) {
      values.emplace_back(size, 1.0F);
      own.emplace_back(size, 0.0F);
    }
    std::vector<Parameter> all;
    for (std::size_t i = 0; i < kSizes.size(); ++i)
      all.push_back({"p" + std::to_string(i), std::span{values[i]},
                     own_memory ? TensorView{std::span{own[i]}} : TensorView{}});
    return all;
  }
  static ReducerOptions options(GradientMode mode) {
    return {.bucket_bytes = 256, .first_bucket_bytes = 128, .mode = mode};
  }

  /// As a loss with several terms does: all is added up before the first is ready.
  void add() {
    ++backwards;
    for (std::size_t i = 0; i < kSizes.size(); ++i) {
      const auto gradient = floats(reducer.gradient(i));
      const auto given =
          random_floats(gradient.size(), 100 * backwards + 10 * static_cast<std::uint32_t>(i) +
                                             static_cast<std::uint32_t>(reducer.group().rank()));
      for (std::size_t e = 0; e < gradient.size(); ++e) gradient[e] += given[e];
    }
  }
  void finish() {
    for (std::size_t i = kSizes.size(); i-- > 0;) reducer.ready(i);
    reducer.finish();
  }
  void backward() {
    add();
    finish();
  }
  [[nodiscard]] Floats all_values() const {
    Floats all;
    for (const Floats& one : values) all.insert(all.end(), one.begin(), one.end());
    return all;
  }
};

/// Runs `train` in either mode, and compares the values on every rank, bit by bit.
template <class Train>
void same_in_both_modes(int ranks, const Train& train) {
  for (const bool own_memory : {false, true}) {
    std::mutex mutex;
    std::vector<Floats> results;
    for (const auto mode : {GradientMode::all_reduce, GradientMode::reduce_scatter}) {
      on_ranks(ranks, [&](ProcessGroup& group) {
        Model model{group, mode, own_memory};
        train(model);
        const std::scoped_lock lock{mutex};
        results.push_back(model.all_values());
      });
    }
    INFO(ranks << " ranks, gradients in memory of their own: " << own_memory);
    for (const Floats& result : results) CHECK(result == results[0]);
  }
}

}  // namespace

TEST_CASE("a discriminator that sees real and generated samples has the same gradients sharded",
          "[runtime][training]") {
  for (const int ranks : {1, 2, 3, 4}) {
    same_in_both_modes(ranks, [](Model& model) {
      for (int step = 0; step < 4; ++step) {
        model.sgd.zero_grad();
        for (int of_step = 0; of_step < 2; ++of_step) model.backward();
        model.sgd.step();
      }
    });
  }
}

TEST_CASE("gradients added up by hand, with a step at every fourth batch, are the same sharded",
          "[runtime][training]") {
  same_in_both_modes(3, [](Model& model) {
    for (int batch = 1; batch <= 18; ++batch) {
      model.backward();
      if (batch % 4 != 0 && batch != 18) continue;
      const auto found = clip_grad_norm(model.sgd, 0.5);
      if (!found.clipped) throw Error{ErrorCode::system, "this test wants clipped gradients"};
      model.sgd.step();
      model.sgd.zero_grad();
    }
  });
}

TEST_CASE("gradients clipped after each of several backwards are the same sharded",
          "[runtime][training]") {
  same_in_both_modes(2, [](Model& model) {
    for (int step = 0; step < 3; ++step) {
      for (int of_step = 0; of_step < 3; ++of_step) {
        model.reducer.gather_means();
        model.backward();
        clip_grad_norm(model.sgd, 0.5);
      }
      model.sgd.step();
      model.sgd.zero_grad();
    }
  });
}

TEST_CASE("a step with more backwards than any before is the same sharded, after gather_means()",
          "[runtime][training]") {
  same_in_both_modes(3, [](Model& model) {
    for (const int count : {1, 1, 3, 1, 2, 4}) {
      for (int of_step = 0; of_step < count; ++of_step) {
        model.reducer.gather_means();
        if (of_step == 1) {  // and one that isn't reduced
          const auto quiet = model.reducer.no_sync();
          model.backward();
        }
        model.backward();
      }
      model.sgd.step();
      model.sgd.zero_grad();
    }
  });
}

TEST_CASE("a backward that adds to parts of means is refused on every rank, not averaged with them",
          "[runtime][training]") {
  std::atomic<int> refused = 0;
  on_ranks(2, [&](ProcessGroup& group) {
    Model model{group, GradientMode::reduce_scatter, false};
    for (int step = 0; step < 2; ++step) {
      model.backward();
      model.sgd.step();
      model.sgd.zero_grad();
    }
    const auto is_refused = [&](const auto& call) {
      try {
        call();
      } catch (const Error& error) {
        refused += error.code() == ErrorCode::invalid_argument &&
                           std::string{error.what()}.find("gather_means()") != std::string::npos
                       ? 1
                       : 0;
      }
    };
    model.backward();
    model.add();
    is_refused([&] { model.reducer.ready(0); });
    is_refused([&] { model.reducer.finish(); });
    model.reducer.zero_gradients();  // and all is well
    model.backward();
    model.sgd.step();
  });
  CHECK(refused == 4);
}

TEST_CASE("a loop that overwrites its gradients needs no zero_grad(), also when sharded",
          "[runtime][training]") {
  constexpr float kEnd = 1 - 0.1F * 2 - 0.1F * (0.9F * 2 + 6);  // means 2 and 6, momentum 0.9
  same_in_both_modes(2, [&](Model& model) {
    for (int step = 0; step < 4; ++step) {
      // A program's own zeros behind a step, too: that has taken the means.
      for (std::size_t i = 0; i < kSizes.size(); ++i)
        std::ranges::fill(floats(model.reducer.gradient(i)), 0.0F);
      const auto given = static_cast<float>(2 * step + 1 + 2 * model.reducer.group().rank());
      for (std::size_t i = 0; i < kSizes.size(); ++i)
        std::ranges::fill(floats(model.reducer.gradient(i)), given);
      model.finish();
      step % 2 == 0 ? model.sgd.step() : model.sgd.skip_step();
    }
    for (const float one : model.all_values())
      if (std::abs(one - kEnd) > 1e-6F) throw Error{ErrorCode::system, "other values"};
  });
}

TEST_CASE("one step with many backwards doesn't make all later ones reduce in full",
          "[runtime][training]") {
  enum class Gathers { never, once, always };
  for (const auto gathers : {Gathers::never, Gathers::once, Gathers::always}) {
    training::StepMeans means;
    const auto step = [&](int backwards) {
      int scattered = 0;
      for (int i = 0; i < backwards; ++i) {
        if (gathers == Gathers::always || (gathers == Gathers::once && backwards == 4 && i == 1)) {
          means.asked_to_gather();
          if (means.are_parts()) means.gathered();
        }
        const bool scatters = means.is_last();
        scattered += scatters ? 1 : 0;
        means.reduced(scatters);
      }
      means.step_ended();  // step()
      means.step_ended();  // zero_grad()
      return scattered;
    };
    CHECK(step(1) == 0);
    CHECK(step(1) == 1);
    step(4);
    for (std::size_t i = 0; i < training::StepMeans::kRecent; ++i) CHECK(step(1) == 0);
    // Without gather_means() before each backward the next step of four would be refused.
    CHECK(step(1) == (gathers == Gathers::always ? 1 : 0));
    CHECK(step(2) == (gathers == Gathers::always ? 2 : 0));
    CHECK(step(2) == (gathers == Gathers::always ? 1 : 0));
  }
}

TEST_CASE("Accelerator::backward() makes means whole that the next one adds to",
          "[runtime][training]") {
  std::mutex mutex;
  std::vector<Floats> results;
  for (const auto mode : {GradientMode::all_reduce, GradientMode::reduce_scatter}) {
    on_ranks(3, [&](ProcessGroup& group) {
      Accelerator accelerator{group};
      Floats values(50, 1.0F);
      auto& reducer = accelerator.prepare_model({{"w", std::span{values}, {}}}, {.mode = mode});
      Sgd sgd{reducer, {.learning_rate = 0.1}};
      accelerator.prepare(sgd);
      std::uint32_t batch = 0;
      for (const int count : {1, 2, 1, 4}) {
        for (int of_step = 0; of_step < count; ++of_step) {
          ++batch;
          accelerator.backward([&](double) {
            const auto gradient = floats(reducer.gradient(0));
            const auto given = random_floats(gradient.size(),
                                             10 * batch + static_cast<std::uint32_t>(group.rank()));
            for (std::size_t e = 0; e < gradient.size(); ++e) gradient[e] += given[e];
            reducer.ready(0);
          });
        }
        accelerator.step(sgd);
        accelerator.zero_grad(sgd);
      }
      const std::scoped_lock lock{mutex};
      results.push_back(values);
    });
  }
  REQUIRE(results.size() == 6);
  for (const Floats& result : results) CHECK(result == results[0]);
}
