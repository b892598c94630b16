#include <catch2/catch.hpp>

#include <acc/error.hpp>
#include <acc/sharding.hpp>
#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

using namespace acc::runtime;

namespace {

using Batch = std::vector<std::size_t>;
using Batches = std::vector<Batch>;

struct Setting {
  std::size_t samples = 0;
  BatchRules rules;
  int ranks = 1;
  std::size_t from = 0;
};

/// Thousands of settings, the same in each run.
template <class Check>
void in_many_settings(Check check) {
  Random random{2024};
  for (int i = 0; i < 4000; ++i) {
    Setting setting;
    setting.samples = random.below(i % 2 == 0 ? 12 : 300);
    setting.ranks = static_cast<int>(1 + random.below(9));
    setting.rules.batch_size = 1 + random.below(9);
    setting.rules.drop_last = random.below(2) == 1;
    setting.rules.split_batches = random.below(2) == 1;
    setting.rules.even_batches = random.below(2) == 1;
    if (setting.rules.split_batches)
      setting.rules.batch_size *= static_cast<std::size_t>(setting.ranks);
    if (random.below(3) == 0) setting.from = random.below(setting.samples + 1);
    CAPTURE(setting.samples, setting.ranks, setting.from, setting.rules.batch_size,
            setting.rules.drop_last, setting.rules.split_batches, setting.rules.even_batches);
    check(setting);
  }
}

Batches batches_of(const BatchSamplerShard& shard) {
  Batches batches;
  for (std::size_t i = 0; i < shard.size(); ++i) batches.push_back(shard[i]);
  return batches;
}

std::vector<Batches> all_ranks(const Setting& setting) {
  std::vector<Batches> of_ranks;
  for (int rank = 0; rank < setting.ranks; ++rank)
    of_ranks.push_back(batches_of({IndexOrder::shuffled(setting.samples, 8, 1), setting.rules, rank,
                                   setting.ranks, setting.from}));
  return of_ranks;
}

Stream<std::size_t> stream_of(const IndexOrder& order) {
  return [order, at = std::size_t{0}]() mutable -> std::optional<std::size_t> {
    if (at == order.size()) return std::nullopt;
    return order[at++];
  };
}

}  // namespace

TEST_CASE("every sample goes to one rank, but for those that fill up or are dropped",
          "[runtime][data]") {
  in_many_settings([](const Setting& setting) {
    const auto of_ranks = all_ranks(setting);
    const auto shape = step_shape(setting.rules, setting.ranks);
    std::map<std::size_t, std::size_t> times;
    std::size_t given = 0;
    for (const auto& batches : of_ranks) {
      for (const auto& batch : batches) {
        given += batch.size();
        for (const auto index : batch) ++times[index];
      }
    }
    const std::size_t left = setting.samples - setting.from;
    const std::size_t missing = left % shape.global;
    if (setting.rules.drop_last) {
      CHECK(given == left - missing);
      CHECK(times.size() == given);  // no sample twice
    } else if (setting.rules.even_batches) {
      CHECK(given == (left + shape.global - 1) / shape.global * shape.global);
      CHECK(times.size() >= left);
    } else {
      CHECK(given == left);
      CHECK(times.size() == left);
    }
  });
}

TEST_CASE("even batches: all ranks have equally many, of equal size", "[runtime][data]") {
  in_many_settings([](const Setting& setting) {
    if (!setting.rules.even_batches && !setting.rules.drop_last) return;
    const auto of_ranks = all_ranks(setting);
    const auto shape = step_shape(setting.rules, setting.ranks);
    for (const auto& batches : of_ranks) {
      CHECK(batches.size() == of_ranks[0].size());
      for (const auto& batch : batches) CHECK(batch.size() == shape.batch);
    }
  });
}

TEST_CASE("in a step the ranks together read the order on", "[runtime][data]") {
  in_many_settings([](const Setting& setting) {
    const auto of_ranks = all_ranks(setting);
    const auto order = IndexOrder::shuffled(setting.samples, 8, 1);
    std::size_t at = setting.from;
    for (std::size_t step = 0; step < of_ranks[0].size(); ++step) {
      for (const auto& batches : of_ranks) {
        if (step >= batches.size()) continue;
        for (const auto index : batches[step]) {
          if (at < setting.samples) CHECK(index == order[at]);
          ++at;
        }
      }
    }
  });
}

TEST_CASE("an epoch that is entered at a step is the rest of the epoch", "[runtime][data]") {
  in_many_settings([](Setting setting) {
    setting.from = 0;
    const auto whole = all_ranks(setting);
    const auto shape = step_shape(setting.rules, setting.ranks);
    for (std::size_t step = 0; step <= whole[0].size(); ++step) {
      setting.from = step * shape.global;
      const auto rest = all_ranks(setting);
      for (std::size_t rank = 0; rank < rest.size(); ++rank) {
        const auto passed = std::min(step, whole[rank].size());
        CHECK(rest[rank] == Batches{whole[rank].begin() + static_cast<std::ptrdiff_t>(passed),
                                    whole[rank].end()});
      }
    }
  });
}

TEST_CASE("a stream is shared as an even sampler's order is", "[runtime][data]") {
  in_many_settings([](Setting setting) {
    setting.rules.even_batches = true;
    const auto of_ranks = all_ranks(setting);
    for (int rank = 0; rank < setting.ranks; ++rank) {
      IterableDatasetShard<std::size_t> shard{
          stream_of(IndexOrder::shuffled(setting.samples, 8, 1)), setting.rules, rank,
          setting.ranks, setting.from};
      Batch samples;
      while (const auto sample = shard.next()) samples.push_back(*sample);
      Batch expected;
      for (const auto& batch : of_ranks[static_cast<std::size_t>(rank)])
        expected.insert(expected.end(), batch.begin(), batch.end());
      CHECK(samples == expected);
      CHECK_FALSE(shard.next().has_value());
    }
  });
}

TEST_CASE("len() is the number of batches wherever the original's is", "[runtime][data]") {
  in_many_settings([](const Setting& setting) {
    for (int rank = 0; rank < setting.ranks; ++rank) {
      const BatchSamplerShard shard{IndexOrder::sequential(setting.samples), setting.rules, rank,
                                    setting.ranks, setting.from};
      if (setting.rules.split_batches && !setting.rules.even_batches) {
        CHECK(shard.announced() >= shard.size());
      } else {
        CHECK(shard.announced() == shard.size());
      }
    }
  });
}

TEST_CASE("what fills up comes from the epoch's beginning, over and over if need be",
          "[runtime][data]") {
  const auto batches = [](std::size_t samples, std::size_t batch_size, int rank, int ranks) {
    return batches_of({IndexOrder::sequential(samples), {batch_size}, rank, ranks});
  };
  CHECK(batches(3, 8, 1, 4) == Batches{{2, 0, 1, 2, 0, 1, 2, 0}});
  CHECK(batches(9, 3, 1, 2) == Batches{{3, 4, 5}, {0, 1, 2}});
  CHECK(batches(0, 3, 1, 2).empty());
}

TEST_CASE("a batch sampler cuts the order", "[runtime][data]") {
  const BatchSampler keeps{IndexOrder::of({9, 8, 7, 6, 5}), 2};
  CHECK(keeps.size() == 3);
  CHECK(keeps[0] == Batch{9, 8});
  CHECK(keeps[2] == Batch{5});
  CHECK(BatchSampler{IndexOrder::sequential(5), 2, true}.size() == 2);
  CHECK(BatchSampler{IndexOrder{}, 2}.size() == 0);
}

TEST_CASE("rules that can't be kept are refused", "[runtime][data]") {
  const auto refused = [](const BatchRules& rules, int ranks, const std::string& why) {
    CHECK_THROWS_MATCHES(step_shape(rules, ranks), Error,
                         Catch::Matchers::Predicate<Error>([&](const Error& error) {
                           INFO(error.what());
                           return error.code() == ErrorCode::invalid_argument &&
                                  std::string{error.what()}.find(why) != std::string::npos;
                         }));
  };
  refused({0}, 2, "batch size of 0");
  refused({8, false, true}, 3, "a batch size of 8 is no multiple of 3 processes");
  refused({8}, 0, "0 processes");
  CHECK(step_shape({8, false, true}, 4).batch == 2);
  CHECK(step_shape({8, false, false}, 4).global == 32);
}
