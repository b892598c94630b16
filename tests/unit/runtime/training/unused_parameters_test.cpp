#include "tests/support/thread_groups.hpp"

#include <catch2/catch.hpp>

#include <acc/checkpoint.hpp>
#include <acc/clip.hpp>
#include <acc/error.hpp>
#include <acc/gradient_reducer.hpp>
#include <acc/loss_scaler.hpp>
#include <acc/optimizer.hpp>
#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
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

/// A step for each character of `used`, '1': 'back' has a gradient in it; and the values of 'back'
/// and 'head' after the last.
struct Frozen {
  std::string_view kind, used;
  float back, head;
  double back_in_double, head_in_double;
};

/// Of torch 1.13, with zero_grad(set_to_none=True) and the gradients of train_frozen().
const std::vector<Frozen> kFrozenOfTorch{
    {"AdamW", "000001111100000", 0.482065439F, -0.458335489F, 0.48206541290316302,
     -0.45833556931494146},
    {"AdamW", "0000", 1, 0.583302796F, 1, 0.58330270765492775},
    {"AdamW", "1010101", 0.566556156F, 0.288127512F, 0.56655612576159664, 0.28812744216458036},
    {"AdamW", "1100110", 0.57919848F, 0.288127512F, 0.57919843077835087, 0.28812744216458036},
    {"Sgd", "000001111100000", 0.754947782F, -0.544046164F, 0.75494777440000005,
     -0.54404622180808404},
    {"Sgd", "0000", 1, 0.615571082F, 1, 0.61557105999999995},
    {"Sgd", "1010101", 0.862085998F, 0.300778031F, 0.86208603499999992, 0.30077798394694},
    {"Sgd", "1100110", 0.812583506F, 0.300778031F, 0.81258353500000002, 0.30077798394694},
    {"momentum", "000001111100000", 0.55613023F, -3.03224826F, 0.5561303004, -3.032248535809392},
    {"momentum", "0000", 1, 0.466754079F, 1, 0.46675408249999983},
    {"momentum", "1010101", 0.783454776F, -0.302212983F, 0.78345482937499999, -0.30221304069862931},
    {"momentum", "1100110", 0.737317026F, -0.302212983F, 0.73731701687499995, -0.30221304069862931},
    {"nesterov", "000001111100000", 0.194839567F, -6.32369423F, 0.19483955237050601,
     -6.3236953062251704},
    {"nesterov", "0000", 1, -0.142495602F, 1, -0.14249558287400005},
    {"nesterov", "1010101", 0.586842358F, -1.65700424F, 0.58684233207349989, -1.6570043313596983},
    {"nesterov", "1100110", 0.45592472F, -1.65700424F, 0.45592468457349994, -1.6570043313596983},
};

std::unique_ptr<Optimizer> optimizer_of(std::string_view kind, GradientReducer& reducer) {
  if (kind == "AdamW")
    return std::make_unique<AdamW>(reducer,
                                   AdamWOptions{.learning_rate = 0.1, .weight_decay = 0.1});
  SgdOptions options{.learning_rate = 0.1, .weight_decay = 0.1};
  if (kind != "Sgd") options.momentum = 0.9;
  if (kind == "momentum") options.dampening = 0.5;
  options.nesterov = kind == "nesterov";
  return std::make_unique<Sgd>(reducer, options);
}

template <class Real>
struct Net {
  std::vector<Real> back = std::vector<Real>(9, Real(1.0F));
  std::vector<Real> head = std::vector<Real>(9, Real(1.0F));
  GradientReducer reducer;
  std::unique_ptr<Optimizer> optimizer;

  Net(ProcessGroup& group, GradientMode mode, std::string_view kind)
      : reducer{group,
                {{"back", std::span<Real>{back}, {}}, {"head", std::span<Real>{head}, {}}},
                {.mode = mode, .find_unused_parameters = true}},
        optimizer{optimizer_of(kind, reducer)} {}

  void add(std::size_t index, double each) {
    const TensorView& view = reducer.gradient(index);
    for (Real& one : std::span<Real>{static_cast<Real*>(view.data), view.count()})
      one = Real(static_cast<float>(one) + static_cast<float>(each));
    reducer.ready(index);
  }
  void step(bool uses_back, std::size_t number) {
    add(1, 0.5 * static_cast<double>(1 + number % 3));
    // Of two ranks the second alone.
    if (uses_back && reducer.group().rank() == 1) add(0, 0.5 * static_cast<double>(1 + number % 2));
    reducer.finish();
    optimizer->step();
    optimizer->zero_grad();
  }
  void train(std::string_view used, std::size_t from, std::size_t until) {
    for (std::size_t i = from; i < until; ++i) step(used[i] == '1', i);
  }
};

constexpr std::array kModes{GradientMode::all_reduce, GradientMode::reduce_scatter};

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

TEST_CASE("a loop that overwrites its gradients gets no values or old means of unused parameters",
          "[runtime][training]") {
  constexpr std::string_view kUsersOfZ[] = {"0", "01", "0", "1", "01"};
  for (const auto mode : kModes) {
    for (const bool skips : {false, true}) {
      std::atomic<int> right = 0;
      on_ranks(2, [&](ProcessGroup& group) {
        std::vector<float> w(9, 1.0F), z(9, 1.0F);
        GradientReducer reducer{group,
                                {{"w", std::span{w}, {}}, {"z", std::span{z}, {}}},
                                {.mode = mode, .find_unused_parameters = true}};
        Sgd sgd{reducer, {.learning_rate = 1}};
        float expected = 1;
        for (const std::string_view users : kUsersOfZ) {
          const bool uses = users.find(group.rank() == 0 ? '0' : '1') != users.npos;
          for (std::size_t i = 0; i < (uses ? 2U : 1U); ++i) {
            std::ranges::fill(floats(reducer.gradient(i)), 2.0F);
            reducer.ready(i);
          }
          reducer.finish();
          if (skips && users == "01") {
            sgd.skip_step();
          } else {
            sgd.step();
            expected -= static_cast<float>(users.size());
          }
          right += z == std::vector<float>(9, expected) ? 1 : 0;
        }
        right += w == std::vector<float>(9, skips ? -5.0F : -9.0F) ? 1 : 0;
      });
      INFO("scattered: " << (mode == kModes[1]) << ", skips: " << skips);
      CHECK(right == 2 * 6);
    }
  }
}

TEST_CASE("what lies in the memory of an unused gradient isn't clipped, nor an infinite gradient",
          "[runtime][training]") {
  for (const int ranks : {1, 2}) {
    for (const auto mode : kModes) {
      std::atomic<int> right = 0;
      on_ranks(ranks, [&](ProcessGroup& group) {
        std::vector<float> w(16, 1.0F), z(48, INFINITY), z_gradient(48, NAN);
        GradientReducer reducer{
            group,
            {{"w", std::span{w}, {}}, {"z", std::span{z}, std::span{z_gradient}}},
            {.mode = mode, .find_unused_parameters = true}};
        Sgd sgd{reducer, {.learning_rate = 0.25}};
        LossScaler scaler{{.initial_scale = 1}};
        // Where a step leaves values in it, z has a gradient in the first.
        const std::size_t first = mode == GradientMode::reduce_scatter ? 2 : 1;
        for (const std::size_t used : {first, std::size_t{1}, std::size_t{1}}) {
          for (std::size_t i = 0; i < used; ++i) {
            std::ranges::fill(floats(reducer.gradient(i)), 2.0F);
            reducer.ready(i);
          }
          reducer.finish();
          scaler.unscale(sgd);
          right += clip_grad_norm(sgd, 100).norm == (used == 2 ? 16 : 8) ? 1 : 0;
          right += clip_grad_norm(sgd, 100, Norm::max).norm == 2 ? 1 : 0;
          clip_grad_value(sgd, 1);
          right += scaler.step(sgd) ? 1 : 0;
          scaler.update();
        }
        right += w == std::vector<float>(16, 0.25F) ? 1 : 0;
      });
      INFO("ranks: " << ranks << ", scattered: " << (mode == GradientMode::reduce_scatter));
      CHECK(right == ranks * 10);
    }
  }
}

TEST_CASE("what a program's own memory held before its first backward isn't sent as a gradient",
          "[runtime][training]") {
  for (const auto mode : kModes) {
    std::atomic<int> right = 0;
    on_ranks(2, [&](ProcessGroup& group) {
      std::vector<float> w(9, 1.0F), z(9, 1.0F), own(9, std::nanf(""));
      GradientReducer reducer{
          group,
          {{"w", std::span{w}, {}}, {"z", std::span{z}, TensorView{std::span{own}}}},
          {.mode = mode, .find_unused_parameters = true}};
      Sgd sgd{reducer, {.learning_rate = 1}};
      reducer.ready(0);
      if (group.rank() == 0) {
        std::ranges::fill(own, 2.0F);
        reducer.ready(1);
      }
      reducer.finish();
      sgd.step();
      right += z == std::vector<float>(9, 0.0F) ? 1 : 0;
    });
    INFO("scattered: " << (mode == kModes[1]));
    CHECK(right == 2);
  }
}

TEST_CASE("sums that weren't reduced yet are sent although a step was left out meanwhile",
          "[runtime][training]") {
  std::atomic<int> right = 0;
  on_ranks(2, [&](ProcessGroup& group) {
    Net<float> net{group, GradientMode::all_reduce, "Sgd"};
    {
      const auto quiet = net.reducer.no_sync();
      net.add(1, 1);
      if (group.rank() == 1) net.add(0, 4);
      net.reducer.finish();
    }
    net.optimizer->skip_step();
    net.add(1, 1);
    net.reducer.finish();
    for (const float one : floats(net.reducer.gradient(0))) right += one == 2 ? 1 : 0;
  });
  CHECK(right == 2 * 9);
}

TEST_CASE("a resumed accumulation sends no mean of the step before it", "[runtime][training]") {
  for (const auto mode : kModes) {
    std::atomic<int> right = 0;
    on_ranks(2, [&](ProcessGroup& group) {
      Net<float> net{group, mode, "Sgd"};
      net.add(1, 1);
      net.add(0, 6);
      net.reducer.finish();
      net.optimizer->step();
      const auto accumulate = [&] {
        const auto quiet = net.reducer.no_sync();
        std::ranges::fill(floats(net.reducer.gradient(1)), 1.0F);
        net.reducer.ready(1);
        net.reducer.finish();
      };
      accumulate();
      std::vector<HostTensor> sums;
      for (std::size_t i = 0; i < 2; ++i) {
        auto& sum = sums.emplace_back(DType::f32, std::vector<std::int64_t>{9});
        std::ranges::copy(floats(net.reducer.gradient(i)), sum.as<float>().begin());
      }
      Net<float> second{group, mode, "Sgd"};
      second.reducer.restore_gradients(std::move(sums), net.reducer.used());
      if (group.rank() == 0) {
        std::ranges::fill(floats(second.reducer.gradient(0)), 2.0F);
        second.reducer.ready(0);
      }
      second.add(1, 1);
      second.reducer.finish();
      for (const GradientRange& range : second.reducer.ranges())
        for (const float one :
             floats(second.reducer.gradient(range.parameter)).subspan(range.offset, range.count))
          right += one == (range.parameter == 0 ? 1 : 2) ? 1 : 0;
    });
    INFO("scattered: " << (mode == kModes[1]));
    CHECK(right == (mode == kModes[1] ? 18 : 36));
  }
}

TEST_CASE("a frozen parameter isn't moved by weight decay and momentum, and counts its own steps",
          "[runtime][training]") {
  for (const auto mode : kModes) {
    for (const Frozen& row : kFrozenOfTorch) {
      std::mutex mutex;
      on_ranks(2, [&](ProcessGroup& group) {
        Net<float> net{group, mode, row.kind};
        net.train(row.used, 0, row.used.size());
        Net<double> in_double{group, mode, row.kind};
        in_double.train(row.used, 0, row.used.size());
        const std::scoped_lock lock{mutex};
        INFO(row.kind << " " << row.used << " scattered: " << (mode == kModes[1]));
        for (std::size_t i = 0; i < net.back.size(); ++i) {
          CHECK(net.back[i] == Approx(row.back).epsilon(1e-6));
          CHECK(net.head[i] == Approx(row.head).epsilon(1e-6));
          CHECK(in_double.back[i] == Approx(row.back_in_double).epsilon(1e-13));
          CHECK(in_double.head[i] == Approx(row.head_in_double).epsilon(1e-13));
        }
        if (row.used == "0000") CHECK(net.back == std::vector<float>(9, 1.0F));
        CHECK(net.optimizer->steps() == row.used.size());
      });
    }
  }
}

TEST_CASE("frozen parameters of 16 bits stay as they are, and have the same bits sharded",
          "[runtime][training]") {
  std::mutex mutex;
  std::vector<std::vector<float>> results;
  for (const auto mode : kModes) {
    on_ranks(2, [&](ProcessGroup& group) {
      Net<BFloat16> net{group, mode, "AdamW"};
      const auto back = [&] {
        std::vector<float> floats;
        for (const BFloat16 one : net.back) floats.push_back(static_cast<float>(one));
        return floats;
      };
      net.train("000111", 0, 3);
      const bool stayed = back() == std::vector<float>(9, 1.0F);
      net.train("000111", 3, 6);
      const std::scoped_lock lock{mutex};
      CHECK(stayed);
      results.push_back(back());
    });
  }
  for (const auto& result : results) CHECK(result == results[0]);
  CHECK(results[0][0] == Approx(0.68).margin(0.03));  // three steps of 0.1, and decay
}

TEST_CASE("a run that is resumed counts the steps of a parameter that was frozen",
          "[runtime][training]") {
  constexpr std::string_view kUsed = "0001101";
  for (const auto mode : kModes) {
    std::mutex mutex;
    on_ranks(2, [&](ProcessGroup& group) {
      Net<float> whole{group, mode, "AdamW"};
      whole.train(kUsed, 0, kUsed.size());
      Net<float> first{group, mode, "AdamW"};
      first.train(kUsed, 0, 5);
      Net<float> second{group, mode, "AdamW"};
      second.back = first.back;
      second.head = first.head;
      second.optimizer->load_state_text(first.optimizer->state_text());
      const auto from = first.optimizer->state(), to = second.optimizer->state();
      for (std::size_t i = 0; i < from.size(); ++i)
        std::ranges::copy(floats(from[i].view), floats(to[i].view).begin());
      second.train(kUsed, 5, kUsed.size());
      const std::scoped_lock lock{mutex};
      CHECK(second.back == whole.back);
      CHECK(second.head == whole.head);
    });
  }
}

TEST_CASE("steps of single parameters in a checkpoint: none in an older one, refused where wrong",
          "[runtime][training]") {
  on_ranks(1, [&](ProcessGroup& group) {
    Net<float> net{group, GradientMode::all_reduce, "AdamW"};
    net.optimizer->load_state_text(
        R"({"steps": 4, "learning_rate": 0.1, "skipped": {"back": 3, "gone": 1}})");
    CHECK_THAT(net.optimizer->state_text(), Catch::Contains(R"("skipped":{"back":3})"));
    for (const char* wrong : {R"({"back": 5})", R"({"back": -1})", "3", R"({"back": "x"})"})
      CHECK_THROWS_AS(
          net.optimizer->load_state_text(
              std::string{R"({"steps": 4, "learning_rate": 0.1, "skipped": )"} + wrong + "}"),
          Error);
    net.optimizer->load_state_text(R"({"steps": 4, "learning_rate": 0.1})");
    CHECK_THAT(net.optimizer->state_text(), !Catch::Contains("skipped"));
  });
}

TEST_CASE("a parameter used in the first of two backwards alone is updated, also when resumed",
          "[runtime][training]") {
  for (const auto mode : kModes) {
    for (const bool resumes : {false, true}) {
      std::atomic<int> right = 0;
      on_ranks(2, [&](ProcessGroup& group) {
        Net<float> net{group, mode, "Sgd"};
        net.add(1, 1);
        net.add(0, 1);
        net.reducer.finish();
        if (resumes) {  // as with sync_each_batch
          std::vector<HostTensor> sums;
          for (std::size_t i = 0; i < 2; ++i) {
            auto& sum = sums.emplace_back(DType::f32, std::vector<std::int64_t>{9});
            std::ranges::copy(floats(net.reducer.gradient(i)), sum.as<float>().begin());
          }
          const std::string used = net.reducer.used();
          net.reducer.zero_gradients();
          net.reducer.restore_gradients(std::move(sums), used);
          net.reducer.zero_gradients();
        }
        net.reducer.gather_means();
        net.add(1, 1);
        net.reducer.finish();
        right += net.reducer.has_gradient(0) ? 1 : 0;
        net.optimizer->step();
        for (const float one : net.back) right += one == Approx(1 - 0.1 * 1.1) ? 1 : 0;
        net.optimizer->zero_grad();
        net.step(false, 0);
        right += net.back[0] == Approx(1 - 0.1 * 1.1) ? 1 : 0;
      });
      INFO("scattered: " << (mode == kModes[1]) << ", resumes: " << resumes);
      CHECK(right == 2 * 11);
    }
  }
}

TEST_CASE("what a rank itself put into the gradient of a parameter that none used stays there",
          "[runtime][training]") {
  std::atomic<int> right = 0;
  on_ranks(2, [&](ProcessGroup& group) {
    Net<float> net{group, GradientMode::reduce_scatter, "Sgd"};
    net.step(false, 0);
    const auto mine = static_cast<float>(7 + group.rank());
    std::ranges::fill(floats(net.reducer.gradient(0)), mine);
    net.add(1, 1);
    net.reducer.finish();
    net.reducer.gather_means();
    const auto stayed = floats(net.reducer.gradient(0)), means = floats(net.reducer.gradient(1));
    right += std::ranges::all_of(stayed, [&](float one) { return one == mine; }) ? 1 : 0;
    right += std::ranges::all_of(means, [&](float one) { return one == 1; }) ? 1 : 0;
  });
  CHECK(right == 4);
}
