#include "tests/support/thread_groups.hpp"

#include <catch2/catch.hpp>

#include <acc/accelerator.hpp>
#include <acc/error.hpp>
#include <atomic>
#include <cmath>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

using namespace acc::runtime;
using acc::testing::on_ranks;

namespace {

template <class Work>
std::string refusal(const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

/// Three parameters, each in a bucket of its own.
struct Model {
  std::vector<std::vector<float>> values = std::vector<std::vector<float>>(3, {1, 1, 1, 1});
  std::vector<Parameter> parameters() {
    std::vector<Parameter> all;
    for (std::size_t i = 0; i < values.size(); ++i)
      all.push_back({"p" + std::to_string(i), TensorView{std::span{values[i]}}, {}});
    return all;
  }
};

ReducerOptions in_buckets(GradientMode mode, bool unused) {
  return {
      .bucket_bytes = 16, .first_bucket_bytes = 16, .mode = mode, .find_unused_parameters = unused};
}

void add(GradientReducer& reducer, std::size_t index, float what) {
  const TensorView& gradient = reducer.gradient(index);
  for (std::size_t i = 0; i < gradient.count(); ++i) static_cast<float*>(gradient.data)[i] += what;
  reducer.ready(index);
}

}  // namespace

TEST_CASE("a backward that all ranks gave up is taken back, wherever each of them stood",
          "[runtime][training]") {
  const auto mode = GENERATE(GradientMode::all_reduce, GradientMode::reduce_scatter);
  const auto unused = GENERATE(false, true);
  const auto before = GENERATE(0, 2);  // good backwards
  std::mutex guard;
  std::vector<std::vector<float>> ends;
  on_ranks(3, [&](ProcessGroup& group) {
    Accelerator accelerator{group};
    Model model;
    GradientReducer& reducer =
        accelerator.prepare_model(model.parameters(), in_buckets(mode, unused));
    Sgd optimizer{reducer, {.learning_rate = 1}};
    const auto good = [&] {
      accelerator.backward([&](double) {
        for (std::size_t i = 3; i-- > 0;) add(reducer, i, 1.0F + static_cast<float>(group.rank()));
      });
      accelerator.step(optimizer);
      accelerator.zero_grad(optimizer);
    };
    for (int i = 0; i < before; ++i) good();
    try {
      accelerator.backward([&](double) {
        for (int i = 0; i < group.rank(); ++i) add(reducer, 2 - static_cast<std::size_t>(i), 77);
        throw std::runtime_error{"a bad batch"};
      });
    } catch (const std::runtime_error&) {
      accelerator.cancel_backward();
    }
    for (std::size_t i = 0; i < 3; ++i)
      for (std::size_t k = 0; k < 4; ++k)
        if (static_cast<float*>(reducer.gradient(i).data)[k] != 0)
          throw std::runtime_error{"a gradient is left"};
    good();
    const std::lock_guard lock{guard};
    for (const auto& values : model.values) ends.push_back(values);
  });
  const float expected = 1.0F - 2.0F * static_cast<float>(before + 1);
  for (const auto& values : ends) CHECK(values == std::vector<float>(4, expected));
}

TEST_CASE(
    "a batch that some ranks gave up before backward() is cancelled with scattered means, too",
    "[runtime][training]") {
  const auto own_loop = GENERATE(false, true);  // without Accelerator::backward()
  std::atomic<int> right = 0;
  on_ranks(3, [&](ProcessGroup& group) {
    Accelerator accelerator{group};
    Model first, second;
    const auto how = in_buckets(GradientMode::reduce_scatter, false);
    std::vector<GradientReducer*> models{&accelerator.prepare_model(first.parameters(), how)};
    if (!own_loop) models.push_back(&accelerator.prepare_model(second.parameters(), how));
    std::vector<std::unique_ptr<Sgd>> optimizers;
    for (GradientReducer* model : models)
      optimizers.push_back(std::make_unique<Sgd>(*model, SgdOptions{.learning_rate = 1}));
    const auto backward = [&](bool bad) {
      const auto pass = [&](double) {
        for (GradientReducer* model : models)
          for (std::size_t i = 3; i-- > 0;) {
            if (bad && i + 1 == static_cast<std::size_t>(group.rank()))
              throw std::runtime_error{"a bad batch"};
            add(*model, i, 1);
          }
      };
      if (!own_loop) return accelerator.backward(pass);
      models[0]->gather_means();
      pass(1);
      models[0]->finish();
    };
    const auto step = [&] {
      for (auto& optimizer : optimizers) {
        optimizer->step();
        optimizer->zero_grad();
      }
    };
    for (int i = 0; i < 2; ++i) {
      backward(false);
      step();
    }
    backward(false);
    try {
      if (group.rank() == 0) throw std::runtime_error{"an unreadable batch"};
      backward(true);
    } catch (const std::runtime_error&) {
      if (own_loop)
        models[0]->cancel();
      else
        accelerator.cancel_backward();
    }
    backward(false);
    step();
    right += first.values[2] == std::vector<float>(4, -2) ? 1 : 0;
    right += own_loop || second.values[2] == std::vector<float>(4, -2) ? 1 : 0;
  });
  CHECK(right == 6);
}

TEST_CASE("a cancelled batch takes what was accumulated with it", "[runtime][training]") {
  std::atomic<int> right = 0;
  on_ranks(2, [&](ProcessGroup& group) {
    AcceleratorOptions options;
    options.gradient_accumulation_steps = 2;
    Accelerator accelerator{group, options};
    Model model;
    GradientReducer& reducer = accelerator.prepare_model(model.parameters());
    const auto batch = [&](float what, bool bad) {
      const auto accumulating = accelerator.accumulate();
      try {
        accelerator.backward([&](double) {
          for (std::size_t i = 0; i < 3; ++i) {
            if (bad && i == 1) throw std::runtime_error{"a bad batch"};
            add(reducer, i, what);
          }
        });
      } catch (const std::runtime_error&) {
        accelerator.cancel_backward();
      }
    };
    batch(5, false);
    batch(7, true);  // it would have ended the step
    batch(1, false);
    batch(2, false);
    bool all = accelerator.sync_gradients();
    for (std::size_t i = 0; i < 3; ++i)
      all &= static_cast<float*>(reducer.gradient(i).data)[0] == 3.0F;
    right += all ? 1 : 0;
  });
  CHECK(right == 2);
}

TEST_CASE("a backward that one rank alone cancels is a mismatch, and no other weights",
          "[runtime][training]") {
  std::vector<std::string> told(2);
  std::vector<bool> finite(2, true);
  on_ranks(2, [&](ProcessGroup& group) {
    Accelerator accelerator{group};
    Model model;
    GradientReducer& reducer =
        accelerator.prepare_model(model.parameters(), in_buckets(GradientMode::all_reduce, false));
    reducer.keep_layout();
    told[static_cast<std::size_t>(group.rank())] = refusal([&] {
      try {
        accelerator.backward([&](double) {
          add(reducer, 2, 1);
          if (group.rank() == 1) throw std::runtime_error{"a bad batch"};
          add(reducer, 1, 1);
          add(reducer, 0, 1);
        });
        finite[0] = std::isfinite(static_cast<float*>(reducer.gradient(0).data)[0]);
        group.all_reduce(std::span{model.values[0]});  // what comes next in its loop
      } catch (const std::runtime_error& error) {
        if (std::string{error.what()} != "a bad batch") throw;
        accelerator.cancel_backward();
      }
    });
  });
  CHECK_FALSE(finite[0]);
  CHECK_THAT(told[0], Catch::Contains("barrier"));
  CHECK_THAT(told[1], Catch::Contains("all_reduce"));
}

TEST_CASE("in the middle of a backward nothing else is done with its gradients",
          "[runtime][training]") {
  AcceleratorOptions options;
  options.mixed_precision = MixedPrecision::fp16;
  Accelerator accelerator{ProcessGroup::single(), options};
  Model model;
  GradientReducer& reducer = accelerator.prepare_model(model.parameters());
  Sgd optimizer{reducer, {.learning_rate = 1}};
  accelerator.prepare(optimizer);
  const std::vector<std::pair<std::string, std::function<void()>>> calls{
      {"step", [&] { optimizer.step(); }},
      {"LossScaler::step", [&] { accelerator.step(optimizer); }},
      {"zero_gradients", [&] { accelerator.zero_grad(optimizer); }},
      {"zero_gradients", [&] { reducer.zero_gradients(); }},
      {"LossScaler::unscale", [&] { accelerator.clip_grad_norm(optimizer, 1); }},
      {"clip_grad_norm", [&] { clip_grad_norm(reducer, 1); }},
      {"clip_grad_norm", [&] { clip_grad_norm(optimizer, 1); }},
      {"clip_grad_value", [&] { clip_grad_value(reducer, 1); }},
      {"clip_grad_value", [&] { clip_grad_value(optimizer, 1); }},
      {"save_state", [&] { accelerator.save_state("/never/made"); }},
      {"load_state", [&] { accelerator.load_state("/never/made"); }},
      {"load_model", [&] { accelerator.load_model("/never/made"); }},
      {"clear", [&] { accelerator.clear(); }},
      {"no_sync", [&] { const auto quiet = reducer.no_sync(); }},
  };
  reducer.ready(1);
  for (const auto& [name, call] : calls) {
    INFO(name);
    CHECK_THAT(refusal(call), Catch::Contains(name + " in the middle of a backward"));
  }
  reducer.ready(0);
  reducer.ready(2);
  accelerator.end_backward();
  CHECK(accelerator.step(optimizer));
}

TEST_CASE("an Accelerator that was moved from says so", "[runtime][training]") {
  Accelerator first{ProcessGroup::single()};
  const Accelerator second{std::move(first)};
  CHECK(second.num_processes() == 1);
  const auto moved = Catch::Contains("moved from");
  CHECK_THAT(refusal([&] { first.wait_for_everyone(); }), moved);
  CHECK_THAT(refusal([&] { (void)first.group(); }), moved);
  CHECK_THAT(refusal([&] { (void)first.sync_gradients(); }), moved);
  CHECK_THAT(refusal([&] { (void)first.scaler(); }), moved);
  CHECK_THAT(refusal([&] { first.print("x"); }), moved);
}
