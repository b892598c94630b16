#include "tests/support/thread_groups.hpp"

#include <catch2/catch.hpp>

#include <acc/error.hpp>
#include <acc/operations.hpp>
#include <mutex>
#include <numeric>

using namespace acc::runtime;
using acc::testing::on_ranks;

// Catch2's macros are not for several threads at once.
namespace {

std::mutex checking;

template <class T>
HostTensor tensor(std::vector<T> values) {
  const auto length = static_cast<std::int64_t>(values.size());
  return HostTensor::of<T>(values, {length});
}

template <class T>
HostTensor tensor(std::vector<T> values, Shape shape) {
  return HostTensor::of<T>(values, std::move(shape));
}

}  // namespace

TEST_CASE("gather puts the ranks' tensors one behind the other", "[runtime][data]") {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    on_ranks(ranks, [&](ProcessGroup& group) {
      auto mine = tensor<std::int32_t>({group.rank(), -group.rank()}, {1, 2});
      const auto all = gather(group, mine.view());
      std::vector<std::int32_t> expected;
      for (int rank = 0; rank < ranks; ++rank) {
        expected.push_back(rank);
        expected.push_back(-rank);
      }
      const std::scoped_lock lock{checking};
      CHECK(all == tensor(expected, {ranks, 2}));
    });
  }
}

TEST_CASE("gathered scalars are one dimension, but alone a scalar stays one", "[runtime][data]") {
  on_ranks(3, [](ProcessGroup& group) {
    auto mine = tensor<double>({group.rank() + 0.5}, {});
    const auto all = gather(group, mine.view());
    const std::scoped_lock lock{checking};
    CHECK(all == tensor<double>({0.5, 1.5, 2.5}));
  });
  on_ranks(1, [](ProcessGroup& group) {
    auto mine = tensor<double>({7}, {});
    CHECK(gather(group, mine.view()).shape().empty());
  });
}

TEST_CASE("ranks that gather tensors of different size are told so", "[runtime][data]") {
  on_ranks(2, [](ProcessGroup& group) {
    auto mine = tensor(std::vector<float>(static_cast<std::size_t>(group.rank() + 1)));
    ErrorCode code = ErrorCode::aborted;
    try {
      (void)gather(group, mine.view());
    } catch (const Error& error) {
      code = error.code();
    }
    const std::scoped_lock lock{checking};
    CHECK(code == ErrorCode::mismatch);
  });
}

TEST_CASE("padding makes all as long as the longest, along any dimension", "[runtime][data]") {
  // Rank r has 2 x (r + 1) x 3, filled with what tells where it was.
  for (const int dim : {1, -2}) {
    for (const bool first : {false, true}) {
      on_ranks(3, [&](ProcessGroup& group) {
        const int length = group.rank() + 1;
        std::vector<std::int64_t> values(static_cast<std::size_t>(2 * length * 3));
        std::iota(values.begin(), values.end(), 1);
        auto mine = tensor(values, {2, length, 3});
        const auto padded = pad_across_processes(group, mine.view(), dim, -7, first);
        const std::scoped_lock lock{checking};
        REQUIRE(padded.shape() == Shape{2, 3, 3});
        const auto got = padded.as<std::int64_t>();
        for (int i = 0; i < 2; ++i) {
          for (int j = 0; j < 3; ++j) {
            for (int k = 0; k < 3; ++k) {
              const int old = first ? j - (3 - length) : j;
              const bool kept = old >= 0 && old < length;
              CHECK(got[static_cast<std::size_t>((i * 3 + j) * 3 + k)] ==
                    (kept ? (i * length + old) * 3 + k + 1 : -7));
            }
          }
        }
      });
    }
  }
}

TEST_CASE("the fill is a value of the tensor's type", "[runtime][data]") {
  on_ranks(2, [](ProcessGroup& group) {
    const auto length = static_cast<std::size_t>(group.rank());
    auto halves = tensor(std::vector<Half>(length, Half{2.0F}));
    auto brains = tensor(std::vector<BFloat16>(length, BFloat16{2.0F}));
    auto bytes = tensor(std::vector<std::uint8_t>(length, 2));
    const auto half = pad_across_processes(group, halves.view(), 0, 0.5);
    const auto brain = pad_across_processes(group, brains.view(), 0, 0.5);
    const auto byte = pad_across_processes(group, bytes.view(), 0, 255);
    bool refused = true;
    for (const double impossible : {256.0, -1.0, 0.5}) {
      try {
        (void)pad_across_processes(group, bytes.view(), 0, impossible);
        refused = false;
      } catch (const Error& error) {
        refused = refused && error.code() == ErrorCode::invalid_argument;
      }
    }
    for (const double impossible : {1e9, -1e9}) {
      try {
        (void)pad_across_processes(group, halves.view(), 0, impossible);
        refused = false;
      } catch (const Error& error) {
        refused = refused && error.code() == ErrorCode::invalid_argument;
      }
    }
    const auto infinite =
        pad_across_processes(group, halves.view(), 0, std::numeric_limits<double>::infinity());
    const std::scoped_lock lock{checking};
    const bool filled = group.rank() == 0;
    CHECK(std::isinf(static_cast<float>(infinite.as<Half>()[0])) == filled);
    CHECK(half.as<Half>()[0] == Half{filled ? 0.5F : 2.0F});
    CHECK(brain.as<BFloat16>()[0] == BFloat16{filled ? 0.5F : 2.0F});
    CHECK(byte.as<std::uint8_t>()[0] == (filled ? 255 : 2));
    CHECK(refused);
  });
}

TEST_CASE("a tensor without that dimension comes back as it is", "[runtime][data]") {
  on_ranks(2, [](ProcessGroup& group) {
    auto mine = tensor(std::vector<float>(static_cast<std::size_t>(group.rank() + 1), 4));
    const auto high = pad_across_processes(group, mine.view(), 1);
    const auto low = pad_across_processes(group, mine.view(), -2);
    const std::scoped_lock lock{checking};
    CHECK(high == mine);
    CHECK(low == mine);
  });
}

TEST_CASE("reduce gives the sum or the mean and leaves its input alone", "[runtime][data]") {
  on_ranks(4, [](ProcessGroup& group) {
    auto mine = tensor<float>({1.0F + static_cast<float>(group.rank()), 2});
    const auto before = mine;
    const auto sum = reduce(group, mine.view(), Reduction::sum);
    const auto none = reduce(group, mine.view(), Reduction::none);
    const auto mean = reduce(group, mine.view(), Reduction::mean);
    auto whole = tensor<std::int64_t>({1});
    ErrorCode code = ErrorCode::aborted;
    try {
      (void)reduce(group, whole.view(), Reduction::mean);
    } catch (const Error& error) {
      code = error.code();
    }
    const auto usable = reduce(group, whole.view(), Reduction::sum);
    const std::scoped_lock lock{checking};
    CHECK(mine == before);
    CHECK(sum == tensor<float>({10, 8}));
    CHECK(none == sum);
    CHECK(mean == tensor<float>({2.5, 2}));
    CHECK(code == ErrorCode::invalid_argument);
    CHECK(usable == tensor<std::int64_t>({4}));
  });
}

TEST_CASE("reductions are said in three words", "[runtime][data]") {
  CHECK(parse_reduction("none") == Reduction::none);
  CHECK(parse_reduction("sum") == Reduction::sum);
  CHECK(parse_reduction("mean") == Reduction::mean);
  CHECK_THROWS_WITH(parse_reduction("avg"), "'avg' is not a reduction: it is none, sum or mean");
}

TEST_CASE("broadcast gives one rank's tensor to all", "[runtime][data]") {
  on_ranks(3, [](ProcessGroup& group) {
    auto mine = tensor<std::int64_t>({group.rank(), 9});
    const auto got = broadcast(group, mine.view(), 2);
    const std::scoped_lock lock{checking};
    CHECK(got == tensor<std::int64_t>({2, 9}));
  });
}

TEST_CASE("lists of any length and any bytes are gathered and sent", "[runtime][data]") {
  on_ranks(3, [](ProcessGroup& group) {
    std::vector<std::string> mine(static_cast<std::size_t>(group.rank()),
                                  std::string("a:\0 1", 5) + std::to_string(group.rank()));
    const auto all = gather_object(group, mine);
    const auto last = broadcast_object_list(group, mine, 2);
    const auto first = broadcast_object_list(group, mine, 0);
    const std::string prefix("a:\0 1", 5);
    const std::scoped_lock lock{checking};
    CHECK(all == std::vector<std::string>{prefix + "1", prefix + "2", prefix + "2"});
    CHECK(last == std::vector<std::string>{prefix + "2", prefix + "2"});
    CHECK(first.empty());
  });
}

TEST_CASE("metrics keep the samples that are there for the first time", "[runtime][data]") {
  CHECK(samples_for_metrics(8, false, 3) == 8);
  CHECK(samples_for_metrics(8, true, 3) == 3);
  CHECK(samples_for_metrics(8, true, 0) == 8);
  CHECK(samples_for_metrics(8, true, -1) == 8);
  CHECK(samples_for_metrics(8, true, 9) == 8);
  auto all = tensor<float>({1, 2, 3, 4, 5, 6}, {3, 2});
  CHECK(first_of(all.view(), 2) == tensor<float>({1, 2, 3, 4}, {2, 2}));
  CHECK(first_of(all.view(), 9) == all);
  CHECK(first_of(all.view(), 0).shape() == Shape{0, 2});
  auto scalar = tensor<float>({1}, {});
  CHECK(first_of(scalar.view(), 0) == scalar);
}

TEST_CASE("a trigger that any rank sets is seen by all, once", "[runtime][data]") {
  for (int setter = 0; setter < 3; ++setter) {
    on_ranks(3, [&](ProcessGroup& group) {
      Trigger trigger;
      const bool before = trigger.check(group);
      if (group.rank() == setter) trigger.set();
      const bool then = trigger.check(group);
      const bool after = trigger.check(group);
      const std::scoped_lock lock{checking};
      CHECK_FALSE(before);
      CHECK(then);
      CHECK_FALSE(after);
    });
  }
}

TEST_CASE("the largest and the smallest of all ranks", "[runtime][data]") {
  on_ranks(3, [](ProcessGroup& group) {
    const std::vector<float> mine{static_cast<float>(group.rank()), -1};
    const auto most = reduce(group, mine, Reduction::max);
    const auto least = reduce(group, mine, Reduction::min);
    const std::scoped_lock lock{checking};
    CHECK(most.as<float>()[0] == 2.0F);
    CHECK(least.as<float>()[0] == 0.0F);
    CHECK(least.as<float>()[1] == -1.0F);
  });
}

TEST_CASE("a tensor with a negative extent was gathered as one of no bytes", "[runtime][data]") {
  float value = 1;
  constexpr std::int64_t kLarge = std::int64_t{1} << 62;
  const ConstTensorView negative{&value, DType::f32, {-1}};
  const ConstTensorView wraps{&value, DType::f32, {kLarge + 1, 4}};
  const ConstTensorView bytes_wrap{&value, DType::f32, {kLarge}};
  const int ranks = GENERATE(1, 2);
  on_ranks(ranks, [&](ProcessGroup& group) {
    for (const auto* tensor : {&negative, &wraps, &bytes_wrap}) {
      std::vector<std::string> said;
      const auto refusal = [&](const auto& call) {
        try {
          (void)call();
          said.emplace_back("taken");
        } catch (const Error& error) {
          said.push_back(std::string{to_string(error.code())} + ": " + error.what());
        }
      };
      refusal([&] { return gather(group, *tensor); });
      refusal([&] { return pad_across_processes(group, *tensor, 0); });
      refusal([&] { return reduce(group, *tensor, Reduction::sum); });
      refusal([&] { return broadcast(group, *tensor, 0); });
      refusal([&] { return first_of(*tensor, 1); });
      const std::scoped_lock lock{checking};
      for (const auto& text : said) {
        CHECK_THAT(text, Catch::StartsWith("invalid_argument: ") &&
                             Catch::Contains(tensor == &negative ? "[-1]" : "[461168601842738790"));
      }
    }
    group.barrier();  // nothing was exchanged
  });
}
