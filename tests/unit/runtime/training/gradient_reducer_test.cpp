#include "tests/support/thread_groups.hpp"

#include <catch2/catch.hpp>

#include <acc/error.hpp>
#include <acc/gradient_reducer.hpp>
#include <algorithm>
#include <atomic>
#include <mutex>
#include <numeric>
#include <random>

using namespace acc::runtime;
using acc::testing::on_ranks;
using acc::testing::thread_groups;

namespace {

/// Parameters with values of their own, made of whole numbers so that sums are exact.
struct Model {
  std::vector<std::vector<float>> values;
  std::vector<Parameter> parameters;

  explicit Model(const std::vector<std::size_t>& sizes, float start = 0) {
    for (std::size_t i = 0; i < sizes.size(); ++i) values.emplace_back(sizes[i], start);
    for (std::size_t i = 0; i < sizes.size(); ++i)
      parameters.push_back({"p" + std::to_string(i), std::span<float>{values[i]}, {}});
  }
};

std::span<float> floats(const TensorView& view) {
  return {static_cast<float*>(view.data), view.count()};
}

/// What rank `rank` adds to element `element` of parameter `index` in backward `round`.
float given(int rank, std::size_t index, std::size_t element, int round = 0) {
  return static_cast<float>((rank + 1) * 7 + static_cast<int>(index) * 3 + round +
                            static_cast<int>(element % 11));
}

void add_gradient(GradientReducer& reducer, std::size_t index, int round = 0) {
  auto gradient = floats(reducer.gradient(index));
  for (std::size_t e = 0; e < gradient.size(); ++e)
    gradient[e] += given(reducer.group().rank(), index, e, round);
}

float mean_of(int ranks, std::size_t index, std::size_t element, int round = 0) {
  float sum = 0;
  for (int r = 0; r < ranks; ++r) sum += given(r, index, element, round);
  return sum / static_cast<float>(ranks);
}

bool holds_mean(const GradientReducer& reducer, std::size_t index, int round = 0) {
  const auto gradient = floats(reducer.gradient(index));
  for (std::size_t e = 0; e < gradient.size(); ++e)
    if (gradient[e] != mean_of(reducer.group().size(), index, e, round)) return false;
  return true;
}

const std::vector<std::size_t> kSizes{1000, 3, 0, 517, 64, 129};
const ReducerOptions kSmallBuckets{.bucket_bytes = 2048, .first_bucket_bytes = 256};

template <class Work>
Error error_of(const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    return error;
  }
  throw std::logic_error{"no error"};
}

}  // namespace

TEST_CASE("every rank gets the mean, in whatever order its gradients become ready",
          "[runtime][training]") {
  for (const int ranks : {1, 2, 3, 8}) {
    on_ranks(ranks, [](ProcessGroup& group) {
      Model model{kSizes};
      GradientReducer reducer{group, model.parameters, kSmallBuckets};
      std::mt19937 engine{static_cast<std::uint32_t>(group.rank())};
      std::vector<std::size_t> order(kSizes.size());
      std::iota(order.begin(), order.end(), std::size_t{0});
      for (int round = 0; round < 5; ++round) {
        reducer.zero_gradients();
        std::shuffle(order.begin(), order.end(), engine);
        for (const std::size_t index : order) {
          add_gradient(reducer, index, round);
          reducer.ready(index);
        }
        reducer.finish();
        for (std::size_t index = 0; index < kSizes.size(); ++index)
          if (!holds_mean(reducer, index, round))
            throw Error{ErrorCode::system, "parameter " + std::to_string(index)};
      }
    });
  }
}

TEST_CASE("gradients in memory of the loop's own are copied in and out", "[runtime][training]") {
  std::atomic<int> right = 0;
  on_ranks(3, [&](ProcessGroup& group) {
    Model model{kSizes};
    std::vector<std::vector<float>> own;
    for (const std::size_t size : kSizes) own.emplace_back(size, 0.0F);
    for (const std::size_t i : {0U, 3U, 5U})  // some of them
      model.parameters[i].gradient = std::span<float>{own[i]};
    GradientReducer reducer{group, model.parameters, kSmallBuckets};
    for (std::size_t i = kSizes.size(); i-- > 0;) {
      add_gradient(reducer, i);
      reducer.ready(i);
    }
    reducer.finish();
    bool all = true;
    for (std::size_t i = 0; i < kSizes.size(); ++i) all &= holds_mean(reducer, i);
    all &= reducer.gradient(3).data == own[3].data();
    right += all ? 1 : 0;
  });
  CHECK(right == 3);
}

TEST_CASE("rank 0's parameters and buffers go to all at the start", "[runtime][training]") {
  std::atomic<int> right = 0;
  on_ranks(4, [&](ProcessGroup& group) {
    Model model{{5, 6}, static_cast<float>(group.rank() + 10)};
    std::vector<double> running(3, group.rank());
    ReducerOptions options;
    options.buffers.push_back({"running", std::span<double>{running}});
    GradientReducer reducer{group, model.parameters, options};
    bool all = model.values[0] == std::vector<float>(5, 10.0F) &&
               model.values[1] == std::vector<float>(6, 10.0F) && running[2] == 0;
    running[2] = group.rank() + 5;
    reducer.broadcast_buffers();
    all &= running[2] == 5;
    right += all ? 1 : 0;
  });
  CHECK(right == 4);
}

TEST_CASE("models that differ are told with the parameter and both shapes, on every rank",
          "[runtime][training]") {
  auto groups = thread_groups(3);
  std::mutex mutex;
  std::vector<std::string> told;
  acc::testing::on_all(groups, [&](ProcessGroup& group) {
    Model model{{4, group.rank() == 1 ? 8U : 9U}};
    const Error error = error_of([&] { GradientReducer{group, model.parameters}; });
    const std::scoped_lock lock{mutex};
    CHECK(error.code() == ErrorCode::mismatch);
    CHECK(error.ranks() == std::vector{1});
    told.push_back(error.what());
  });
  REQUIRE(told.size() == 3);
  CHECK_THAT(told[0], Catch::Contains("rank 0 has parameter 'p1' f32 [9]") &&
                          Catch::Contains("rank 1 has parameter 'p1' f32 [8]"));
  CHECK(told[1] == told[0]);
}

TEST_CASE("what the options in acc:: are filled with is in acc::, too", "[runtime][training]") {
  const acc::ReducerOptions options{.mode = acc::GradientMode::reduce_scatter,
                                    .compression = acc::Compression::bf16};
  CHECK(options.mode == GradientMode::reduce_scatter);
  acc::GroupOptions group;
  group.backend = acc::BackendKind::cpu;
  CHECK(group.backend == BackendKind::cpu);
}

TEST_CASE("several ranks whose model differs from rank 0's have it, not has it",
          "[runtime][training]") {
  auto groups = thread_groups(3);
  acc::testing::on_all(groups, [&](ProcessGroup& group) {
    Model model{{4, group.rank() == 0 ? 9U : 8U}};
    const Error error = error_of([&] { GradientReducer{group, model.parameters}; });
    static std::mutex mutex;
    const std::scoped_lock lock{mutex};
    CHECK_THAT(error.what(), Catch::Contains("ranks 1,2 have parameter 'p1' f32 [8]"));
  });
}

TEST_CASE("a rank with fewer parameters is told", "[runtime][training]") {
  auto groups = thread_groups(2);
  acc::testing::on_all(groups, [&](ProcessGroup& group) {
    Model model{group.rank() == 0 ? std::vector<std::size_t>{4, 5} : std::vector<std::size_t>{4}};
    const Error error = error_of([&] { GradientReducer{group, model.parameters}; });
    static std::mutex mutex;
    const std::scoped_lock lock{mutex};
    CHECK_THAT(error.what(), Catch::Contains("parameter 'p1'") && Catch::Contains("nothing there"));
  });
}

TEST_CASE("parameters that can't be trained are refused by name", "[runtime][training]") {
  auto group = ProcessGroup{thread_groups(1)[0]};
  std::vector<std::int32_t> whole(3);
  std::vector<float> some(3), others(4);
  const auto refusal = [&](std::vector<Parameter> parameters) {
    const Error error = error_of([&] { GradientReducer{group, std::move(parameters)}; });
    CHECK(error.code() == ErrorCode::invalid_argument);
    return std::string{error.what()};
  };
  CHECK_THAT(refusal({{"steps", std::span<std::int32_t>{whole}, {}}}),
             Catch::Contains("'steps' is i32"));
  CHECK_THAT(refusal({{"w", std::span<float>{some}, std::span<float>{others}}}),
             Catch::Contains("'w' is f32 [3]") && Catch::Contains("gradient f32 [4]"));
  CHECK_THAT(refusal({{"w", std::span<float>{some}, {}}, {"w", std::span<float>{others}, {}}}),
             Catch::Contains("'w' is there twice"));
}

TEST_CASE("no_sync adds up, and the next backward reduces the sum", "[runtime][training]") {
  std::atomic<int> right = 0;
  on_ranks(2, [&](ProcessGroup& group) {
    Model model{{300, 5}};
    GradientReducer reducer{group, model.parameters, kSmallBuckets};
    const auto backward = [&](int round) {
      for (const std::size_t i : {1U, 0U}) {
        add_gradient(reducer, i, round);
        reducer.ready(i);
      }
      reducer.finish();
    };
    {
      const auto quiet = reducer.no_sync();
      backward(1);
      backward(2);
    }
    const bool local = floats(reducer.gradient(0))[4] ==
                       given(group.rank(), 0, 4, 1) + given(group.rank(), 0, 4, 2);
    backward(3);
    bool all = local;
    for (const std::size_t i : {0U, 1U}) {
      const auto gradient = floats(reducer.gradient(i));
      for (std::size_t e = 0; e < gradient.size(); ++e)
        all &= gradient[e] == mean_of(2, i, e, 1) + mean_of(2, i, e, 2) + mean_of(2, i, e, 3);
    }
    right += all ? 1 : 0;
  });
  CHECK(right == 2);
}

TEST_CASE("a no_sync that ends before finish() counts for the backward that began in it",
          "[runtime][training]") {
  auto group = ProcessGroup{thread_groups(1)[0]};
  Model model{{4}};
  GradientReducer reducer{group, model.parameters};
  {
    const auto quiet = reducer.no_sync();
    reducer.ready(0);
    CHECK(error_of([&] { auto again = reducer.no_sync(); }).code() == ErrorCode::invalid_argument);
  }
  reducer.finish();
  CHECK(reducer.syncing());
  reducer.ready(0);  // a new backward
  reducer.finish();
}

TEST_CASE("buckets are laid out anew in rank 0's order, and gradients keep what they hold",
          "[runtime][training]") {
  std::atomic<int> right = 0;
  on_ranks(3, [&](ProcessGroup& group) {
    Model model{{64, 64, 64, 64}};
    GradientReducer reducer{
        group, model.parameters, {.bucket_bytes = 512, .first_bucket_bytes = 256}};
    bool all = reducer.order() == std::vector<std::size_t>{3, 2, 1, 0};
    // Rank 0 has an order of its own; the others' must not count.
    const std::vector<std::size_t> order = group.rank() == 0 ? std::vector<std::size_t>{1, 3, 0, 2}
                                                             : std::vector<std::size_t>{0, 1, 2, 3};
    for (const std::size_t i : order) {
      add_gradient(reducer, i);
      reducer.ready(i);
    }
    reducer.finish();
    all &= reducer.order() == std::vector<std::size_t>{1, 3, 0, 2};
    all &= reducer.buckets().at(0).parameters == std::vector<std::size_t>{1};
    all &= reducer.buckets().at(1).parameters == std::vector<std::size_t>{3, 0};
    for (std::size_t i = 0; i < 4; ++i) all &= holds_mean(reducer, i);
    reducer.zero_gradients();
    for (const std::size_t i : {2U, 0U, 3U, 1U}) {
      add_gradient(reducer, i, 1);
      reducer.ready(i);
    }
    reducer.finish();
    all &= reducer.order() == std::vector<std::size_t>{1, 3, 0, 2};  // once
    for (std::size_t i = 0; i < 4; ++i) all &= holds_mean(reducer, i, 1);
    right += all ? 1 : 0;
  });
  CHECK(right == 3);
}

TEST_CASE("a parameter without gradient is an error that names it, and no rank hangs",
          "[runtime][training]") {
  auto groups = thread_groups(3);
  std::atomic<int> named = 0, told = 0;
  acc::testing::on_all(groups, [&](ProcessGroup& group) {
    Model model{{300, 5, 7}};
    GradientReducer reducer{group, model.parameters, kSmallBuckets};
    const Error error = error_of([&] {
      for (const std::size_t i : {2U, 1U, 0U})
        if (!(group.rank() == 1 && i == 1)) reducer.ready(i);
      reducer.finish();
    });
    const std::string what = error.what();
    if (group.rank() == 1) {
      named += error.code() == ErrorCode::mismatch && what.find("'p1'") != std::string::npos &&
                       what.find("'p0'") == std::string::npos
                   ? 1
                   : 0;
    } else {
      told += what.find("'p1'") != std::string::npos ? 1 : 0;
    }
  });
  CHECK(named == 1);
  CHECK(told == 2);
}

TEST_CASE("a gradient that is ready twice is refused, and the backward goes on",
          "[runtime][training]") {
  auto group = ProcessGroup{thread_groups(1)[0]};
  Model model{{4, 4}};
  GradientReducer reducer{group, model.parameters};
  reducer.ready(1);
  CHECK_THAT(error_of([&] { reducer.ready(1); }).what(), Catch::Contains("'p1'"));
  CHECK(error_of([&] { reducer.ready(2); }).code() == ErrorCode::invalid_argument);
  reducer.ready(0);
  reducer.finish();
}

SCENARIO("parameters that some ranks don't use", "[runtime][training]") {
  for (const bool own_memory : {false, true}) {
    std::atomic<int> right = 0;
    on_ranks(2, [&](ProcessGroup& group) {
      Model model{{300, 50, 7, 9}};
      std::vector<std::vector<float>> own;
      for (auto& parameter : model.parameters) {
        own.emplace_back(parameter.value.count());
        if (own_memory) parameter.gradient = std::span<float>{own.back()};
      }
      ReducerOptions options = kSmallBuckets;
      options.find_unused_parameters = true;
      GradientReducer reducer{group, model.parameters, options};
      const auto order = reducer.order();
      // p0: used by both; p1: by rank 0; p2: by none; p3: by rank 1.
      for (int round = 0; round < 3; ++round) {
        for (std::size_t i = 0; i < 4; ++i)
          std::ranges::fill(floats(reducer.gradient(i)), i == 2 ? 77.0F : 0.0F);
        for (const std::size_t i : {3U, 1U, 0U}) {
          if ((i == 1 && group.rank() == 1) || (i == 3 && group.rank() == 0)) continue;
          add_gradient(reducer, i, round);
          reducer.ready(i);
        }
        reducer.finish();
        bool all = holds_mean(reducer, 0, round);
        all &= floats(reducer.gradient(1))[2] == given(0, 1, 2, round) / 2;
        all &= std::ranges::all_of(floats(reducer.gradient(2)), [](float f) { return f == 77; });
        all &= floats(reducer.gradient(3))[8] == given(1, 3, 8, round) / 2;
        all &= reducer.order() == order;  // not laid out anew
        right += all ? 1 : 0;
      }
    });
    CHECK(right == 6);
  }
}

TEST_CASE("what was added up without being sent counts as used", "[runtime][training]") {
  std::atomic<int> right = 0;
  on_ranks(2, [&](ProcessGroup& group) {
    Model model{{20, 30}};
    GradientReducer reducer{group, model.parameters, {.find_unused_parameters = true}};
    {
      const auto quiet = reducer.no_sync();
      for (const std::size_t i : {1U, 0U}) {
        add_gradient(reducer, i);
        reducer.ready(i);
      }
      reducer.finish();
    }
    reducer.ready(0);
    reducer.finish();
    right += holds_mean(reducer, 0) && holds_mean(reducer, 1) ? 1 : 0;
  });
  CHECK(right == 2);
}

TEST_CASE("in a static graph the unused ones are found once, and then must stay so",
          "[runtime][training]") {
  auto groups = thread_groups(2);
  std::atomic<int> right = 0;
  acc::testing::on_all(groups, [&](ProcessGroup& group) {
    Model model{{20, 30, 40}};
    ReducerOptions options = kSmallBuckets;
    options.find_unused_parameters = true;
    options.static_graph = true;
    GradientReducer reducer{group, model.parameters, options};
    bool all = true;
    for (int round = 0; round < 3; ++round) {
      reducer.zero_gradients();
      std::ranges::fill(floats(reducer.gradient(1)), 5.0F);
      for (const std::size_t i : {0U, 2U}) {
        add_gradient(reducer, i, round);
        reducer.ready(i);
      }
      reducer.finish();
      all &= holds_mean(reducer, 0, round) && holds_mean(reducer, 2, round);
      all &= floats(reducer.gradient(1))[29] == 5;
      all &= reducer.order() == std::vector<std::size_t>{0, 2, 1};
    }
    const Error error = error_of([&] {
      reducer.ready(2);
      reducer.finish();
    });
    all &= std::string{error.what()}.find("'p0'") != std::string::npos;
    right += all ? 1 : 0;
  });
  CHECK(right == 2);
}

TEST_CASE("16 bits on the wire: off by one rounding, and no sum overflows", "[runtime][training]") {
  for (const Compression compression : {Compression::fp16, Compression::bf16}) {
    std::atomic<int> right = 0;
    on_ranks(4, [&](ProcessGroup& group) {
      Model model{kSizes};
      std::vector<float> own(kSizes[3]);
      model.parameters[3].gradient = std::span<float>{own};
      ReducerOptions options = kSmallBuckets;
      options.compression = compression;
      GradientReducer reducer{group, model.parameters, options};
      bool all = reducer.buckets().at(0).dtype ==
                 (compression == Compression::fp16 ? DType::f16 : DType::bf16);
      const float precision = compression == Compression::fp16 ? 0x1p-11F : 0x1p-8F;
      for (int round = 0; round < 2; ++round) {
        reducer.zero_gradients();
        for (std::size_t i = kSizes.size(); i-- > 0;) {
          auto gradient = floats(reducer.gradient(i));
          for (std::size_t e = 0; e < gradient.size(); ++e)
            gradient[e] =
                40'000.0F + static_cast<float>(e) * 1.37F + static_cast<float>(group.rank());
          reducer.ready(i);
        }
        reducer.finish();
        for (std::size_t i = 0; i < kSizes.size(); ++i) {
          const auto gradient = floats(reducer.gradient(i));
          for (std::size_t e = 0; e < gradient.size(); ++e) {
            const float mean = 40'000.0F + static_cast<float>(e) * 1.37F + 1.5F;
            // One rounding of each of the inputs, and one of the sum.
            all &= std::abs(gradient[e] - mean) <= 2.01F * precision * mean;
          }
        }
      }
      right += all ? 1 : 0;
    });
    CHECK(right == 4);
  }
}

TEST_CASE("f16 gradients are averaged without overflow", "[runtime][training]") {
  std::atomic<int> right = 0;
  on_ranks(8, [&](ProcessGroup& group) {
    std::vector<Half> values(10);
    GradientReducer reducer{group, {{"w", std::span<Half>{values}, {}}}};
    const std::span<Half> gradient{static_cast<Half*>(reducer.gradient(0).data), 10};
    std::ranges::fill(gradient, Half{60'000.0F});
    reducer.ready(0);
    reducer.finish();
    right += std::ranges::all_of(gradient, [](Half h) { return h == Half{60'000.0F}; }) ? 1 : 0;
  });
  CHECK(right == 8);
}

TEST_CASE("scattered: each rank has the mean of its part, and values come back to all",
          "[runtime][training]") {
  for (const int ranks : {1, 2, 3, 5}) {
    std::atomic<int> right = 0;
    std::mutex mutex;
    std::vector<std::vector<int>> owners;
    for (const std::size_t size : kSizes) owners.emplace_back(size, 0);
    on_ranks(ranks, [&](ProcessGroup& group) {
      Model model{kSizes};
      ReducerOptions options = kSmallBuckets;
      options.mode = GradientMode::reduce_scatter;
      GradientReducer reducer{group, model.parameters, options};
      for (std::size_t i = 0; i < kSizes.size(); ++i) {  // not the order of the layout
        add_gradient(reducer, i);
        reducer.ready(i);
      }
      reducer.finish();
      bool all = reducer.order().front() == 0;
      for (const GradientRange& range : reducer.ranges()) {
        const auto gradient = floats(reducer.gradient(range.parameter));
        for (std::size_t e = range.offset; e < range.offset + range.count; ++e) {
          all &= gradient[e] == mean_of(group.size(), range.parameter, e);
          model.values[range.parameter][e] = static_cast<float>(1000 * range.parameter + e);
          const std::scoped_lock lock{mutex};
          ++owners[range.parameter][e];
        }
      }
      for (std::size_t b = 0; b < reducer.bucket_count(); ++b) reducer.share_values(b);
      reducer.finish_sharing();
      for (std::size_t i = 0; i < kSizes.size(); ++i)
        for (std::size_t e = 0; e < kSizes[i]; ++e)
          all &= model.values[i][e] == static_cast<float>(1000 * i + e);
      right += all ? 1 : 0;
    });
    CHECK(right == ranks);
    for (const auto& of_parameter : owners)
      CHECK(std::ranges::all_of(of_parameter, [](int n) { return n == 1; }));
  }
}

TEST_CASE("a reducer that goes away in the middle of a backward tells the peers",
          "[runtime][training]") {
  auto groups = thread_groups(2);
  std::atomic<int> told = 0;
  acc::testing::on_all(groups, [&](ProcessGroup& group) {
    Model model{{300, 300}};
    auto reducer = std::make_unique<GradientReducer>(group, model.parameters, kSmallBuckets);
    if (group.rank() == 0) {
      reducer->ready(1);
      reducer.reset();
      return;
    }
    const Error error = error_of([&] {
      reducer->ready(1);
      reducer->ready(0);
      reducer->finish();
    });
    told += error.code() == ErrorCode::aborted ? 1 : 0;
  });
  CHECK(told == 1);
}

TEST_CASE("a reducer that goes away before its first bucket is full tells the peers, too",
          "[runtime][training]") {
  auto groups = thread_groups(2);
  std::atomic<int> told = 0;
  acc::testing::on_all(groups, [&](ProcessGroup& group) {
    Model model{{300, 300}};
    auto reducer = std::make_unique<GradientReducer>(group, model.parameters);  // one bucket
    reducer->ready(1);
    if (group.rank() == 0) return reducer.reset();
    const Error error = error_of([&] {
      reducer->ready(0);
      reducer->finish();
    });
    told += error.code() == ErrorCode::aborted ? 1 : 0;
  });
  CHECK(told == 1);
}
