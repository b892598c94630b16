#include "tests/support/thread_groups.hpp"

#include <catch2/catch.hpp>

#include <acc/gradient_reducer.hpp>
#include <acc/optimizer.hpp>
#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// Parameters that some ranks don't use, in some backwards or in all.
using namespace acc::runtime;
using acc::testing::on_ranks;

namespace {

std::span<float> floats(const TensorView& view) {
  return {static_cast<float*>(view.data), view.count()};
}

void add(GradientReducer& reducer, std::size_t index, float each) {
  for (float& one : floats(reducer.gradient(index))) one += each;
  reducer.ready(index);
}

/// Backwards of one step on two ranks: which of them use `z` in each, and the gradients of `w`,
/// which all use, and `z` at the end.
struct Recorded {
  std::vector<std::string_view> users;
  float w;
  float z;
};

/// Of torch 1.13, DistributedDataParallel with find_unused_parameters and gloo, from gradients
/// that are None as from zeros, with the loss of backward() below.
const std::vector<Recorded> kOfTorch{{{"0", "1"}, 4.5F, 5},     {{"1", "0"}, 4.5F, 4},
                                     {{"0", ""}, 4.5F, 1},      {{"", "0"}, 4.5F, 2},
                                     {{"01", "0"}, 4.5F, 5},    {{"01", ""}, 4.5F, 3},
                                     {{"0", "0"}, 4.5F, 3},     {{"", ""}, 4.5F, 0},
                                     {{"0", "1", "01"}, 9, 14}, {{"", "1", "0", ""}, 15, 7}};

/// Of the loss f * (sum(w) + 2 * sum(z)), where f = (rank + 1) * number.
void backward(GradientReducer& reducer, bool uses_z, std::size_t number) {
  const auto factor = static_cast<float>((reducer.group().rank() + 1) * static_cast<int>(number));
  add(reducer, 0, factor);
  if (uses_z) add(reducer, 1, 2 * factor);
  reducer.finish();
}

}  // namespace

TEST_CASE("a parameter that other ranks use in each of several backwards has torch's gradient",
          "[runtime][training]") {
  for (const bool own_memory : {false, true}) {
    for (const auto mode : {GradientMode::all_reduce, GradientMode::reduce_scatter}) {
      std::atomic<int> wrong = 0;
      on_ranks(2, [&](ProcessGroup& group) {
        std::array<std::vector<float>, 2> values, own;
        std::vector<Parameter> parameters;
        for (std::size_t i = 0; i < 2; ++i) {
          values[i].resize(9);
          own[i].resize(9);
          parameters.push_back({i == 0 ? "w" : "z", std::span{values[i]},
                                own_memory ? TensorView{std::span{own[i]}} : TensorView{}});
        }
        GradientReducer reducer{group, parameters, {.mode = mode, .find_unused_parameters = true}};
        for (const Recorded& one : kOfTorch) {
          for (int again = 0; again < 2; ++again) {  // the number of backwards is new, then known
            reducer.zero_gradients();
            for (std::size_t i = 0; i < one.users.size(); ++i) {
              reducer.gather_means();
              const bool uses =
                  one.users[i].find(group.rank() == 0 ? '0' : '1') != one.users[i].npos;
              backward(reducer, uses, i + 1);
            }
            for (const GradientRange& range : reducer.ranges()) {
              const float expected = range.parameter == 0 ? one.w : one.z;
              const auto part =
                  floats(reducer.gradient(range.parameter)).subspan(range.offset, range.count);
              wrong += std::ranges::all_of(part, [&](float g) { return g == expected; }) ? 0 : 1;
            }
          }
        }
      });
      INFO("scattered: " << (mode == GradientMode::reduce_scatter) << ", own: " << own_memory);
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("a sharded loop that overwrites its gradients gets no values as gradients of unused ones",
          "[runtime][training]") {
  std::atomic<int> right = 0;
  on_ranks(2, [&](ProcessGroup& group) {
    std::vector<float> w(9, 1.0F), z(9, 1.0F);
    GradientReducer reducer{group,
                            {{"w", std::span{w}, {}}, {"z", std::span{z}, {}}},
                            {.mode = GradientMode::reduce_scatter, .find_unused_parameters = true}};
    Sgd sgd{reducer, {.learning_rate = 1}};
    for (int step = 0; step < 3; ++step) {
      for (std::size_t i = 0; i < (group.rank() == 0 ? 2U : 1U); ++i) {
        std::ranges::fill(floats(reducer.gradient(i)), 2.0F);
        reducer.ready(i);
      }
      reducer.finish();
      sgd.step();
    }
    right += w == std::vector<float>(9, -5.0F) && z == std::vector<float>(9, -2.0F) ? 1 : 0;
  });
  CHECK(right == 2);
}
