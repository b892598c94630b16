#include "tests/support/thread_groups.hpp"

#include <catch2/catch.hpp>

#include <acc/error.hpp>
#include <acc/loader.hpp>
#include <atomic>
#include <mutex>

using namespace acc::runtime;
using acc::testing::on_ranks;

namespace {

/// A sample as trainings have them: not plain.
using Sample = std::pair<std::vector<float>, std::int64_t>;
using Loader = SampleLoader<Sample>;

Sample sample_of(std::size_t index) {
  return {std::vector<float>(index % 3, static_cast<float>(index)),
          static_cast<std::int64_t>(index)};
}

std::vector<std::vector<std::int64_t>> labels_of(Loader& loader) {
  std::vector<std::vector<std::int64_t>> labels;
  for (const auto& batch : loader) {
    labels.emplace_back();
    for (const auto& [features, label] : batch) {
      if (features != sample_of(static_cast<std::size_t>(label)).first)
        throw std::runtime_error{"a sample has changed on its way"};
      labels.back().push_back(label);
    }
  }
  return labels;
}

LoaderOptions with(std::size_t batch_size, unsigned workers = 0) {
  LoaderOptions options;
  options.batch_size = batch_size;
  options.workers = workers;
  options.dispatch_batches = true;
  return options;
}

}  // namespace

TEST_CASE("rank 0 alone reads, and each rank gets its part", "[runtime][data]") {
  std::mutex mutex;
  for (const unsigned workers : {0U, 2U}) {
    std::atomic<int> read_by_others{0};
    std::vector<std::vector<std::vector<std::int64_t>>> seen(3);
    on_ranks(3, [&](ProcessGroup& group) {
      Dataset<Sample> data{14, [&](std::size_t index) {
                             if (group.rank() != 0) ++read_by_others;
                             return sample_of(index);
                           }};
      Loader loader{data, with(2, workers), group};
      auto labels = labels_of(loader);
      const std::scoped_lock lock{mutex};
      seen[static_cast<std::size_t>(group.rank())] = std::move(labels);
    });
    CHECK(read_by_others == 0);
    // The last two samples fill no step: as few as will do make it even.
    CHECK(seen[0] == std::vector<std::vector<std::int64_t>>{{0, 1}, {6, 7}, {12}});
    CHECK(seen[1] == std::vector<std::vector<std::int64_t>>{{2, 3}, {8, 9}, {13}});
    CHECK(seen[2] == std::vector<std::vector<std::int64_t>>{{4, 5}, {10, 11}, {0}});
  }
}

TEST_CASE("a dispatched stream is shared as a dispatched dataset", "[runtime][data]") {
  std::mutex mutex;
  for (std::size_t size = 0; size < 30; ++size) {
    for (const bool drop_last : {false, true}) {
      on_ranks(4, [&](ProcessGroup& group) {
        auto options = with(2, 1);
        options.drop_last = drop_last;
        StreamDataset<Sample> data{[&](std::uint64_t) -> Stream<Sample> {
                                     return [next = std::size_t{0},
                                             size]() mutable -> std::optional<Sample> {
                                       if (next == size) return std::nullopt;
                                       return sample_of(next++);
                                     };
                                   },
                                   size};
        Loader stream{data, options, group};
        Loader indexed{Dataset<Sample>{size, sample_of}, options, group};
        const auto of_stream = labels_of(stream);
        const auto of_indexed = labels_of(indexed);
        const std::scoped_lock lock{mutex};
        CHECK(of_stream == of_indexed);
        CHECK(stream.status() == indexed.status());
      });
    }
  }
}

TEST_CASE("even a sample for four ranks gives each of them a batch", "[runtime][data]") {
  // The original gives the last ranks an empty batch here, which then can't be gathered.
  std::atomic<int> batches{0};
  on_ranks(4, [&](ProcessGroup& group) {
    Loader loader{Dataset<Sample>{1, sample_of}, with(2), group};
    for (const auto& batch : loader) {
      if (batch.size() == 1 && loader.status() == LoaderStatus{true, 1}) ++batches;
    }
  });
  CHECK(batches == 4);
}

TEST_CASE("when rank 0 can't read, all ranks hear why", "[runtime][data]") {
  std::mutex mutex;
  std::vector<std::string> words(3);
  on_ranks(3, [&](ProcessGroup& group) {
    Dataset<Sample> data{9, [](std::size_t index) {
                           if (index == 4) throw std::runtime_error{"sample 4 is bad"};
                           return sample_of(index);
                         }};
    Loader loader{data, with(1), group};
    std::string caught;
    std::size_t before = 0;
    try {
      for ([[maybe_unused]] auto& batch : loader) ++before;
    } catch (const std::exception& failure) {
      caught = failure.what();
    }
    group.barrier();  // the group is as good as before
    const std::scoped_lock lock{mutex};
    CHECK(before == 1);
    words[static_cast<std::size_t>(group.rank())] = caught;
  });
  CHECK(words[0] == "sample 4 is bad");
  CHECK(words[1] == "loader: rank 0 can't read a batch: sample 4 is bad");
  CHECK(words[2] == words[1]);
}

TEST_CASE("when rank 0 can't open an epoch, the others hear why, too", "[runtime][data]") {
  struct NoOrder final : Sampler {
    [[nodiscard]] std::size_t size() const override { return 9; }
    [[nodiscard]] IndexOrder order(std::uint64_t) const override {
      throw std::runtime_error{"no order"};
    }
  };
  struct Row {
    std::string why;
    std::function<Loader(ProcessGroup&, LoaderOptions)> make;
  };
  const std::vector<Row> rows{
      {"no stream",
       [](ProcessGroup& group, LoaderOptions options) {
         return Loader{StreamDataset<Sample>{[](std::uint64_t) -> Stream<Sample> {
                         throw std::runtime_error{"no stream"};
                       }},
                       std::move(options), group};
       }},
      {"nothing to skip",
       [](ProcessGroup& group, LoaderOptions options) {
         options.skip_batches = 1;
         return Loader{StreamDataset<Sample>{[](std::uint64_t) -> Stream<Sample> {
                         return []() -> std::optional<Sample> {
                           throw std::runtime_error{"nothing to skip"};
                         };
                       }},
                       std::move(options), group};
       }},
      {"no order",
       [](ProcessGroup& group, LoaderOptions options) {
         options.sampler = std::make_shared<NoOrder>();
         return Loader{Dataset<Sample>{9, sample_of}, std::move(options), group};
       }},
      {"an exception of an unknown type",
       [](ProcessGroup& group, LoaderOptions options) {
         return Loader{StreamDataset<Sample>{[](std::uint64_t) -> Stream<Sample> { throw 42; }},
                       std::move(options), group};
       }},
  };
  const unsigned workers = GENERATE(0U, 1U);
  for (const auto& [why, make] : rows) {
    CAPTURE(why, workers);
    std::vector<std::string> words(3);
    CHECK_NOTHROW(on_ranks(3, [&](ProcessGroup& group) {
      auto loader = make(group, with(1, workers));
      auto& mine = words[static_cast<std::size_t>(group.rank())];
      try {
        for ([[maybe_unused]] auto& batch : loader) mine += "a batch; ";
      } catch (const std::exception& failure) {
        mine += failure.what();
      } catch (int) {
        mine += "an exception of an unknown type";
      }
      group.barrier();  // the group is as good as before
    }));
    CHECK(words[0] == why);
    CHECK(words[1] == "loader: rank 0 can't read a batch: " + why);
    CHECK(words[2] == words[1]);
  }
}

TEST_CASE("samples that can't be sent are refused when the loader is made", "[runtime][data]") {
  struct Opaque {
    std::vector<int*> where;
  };
  std::mutex mutex;
  on_ranks(2, [&](ProcessGroup& group) {
    std::string words;
    try {
      const SampleLoader<Opaque> loader{Dataset<Opaque>{4, [](std::size_t) { return Opaque{}; }},
                                        with(2), group};
    } catch (const Error& error) {
      words = error.what();
    }
    const std::scoped_lock lock{mutex};
    CHECK(words ==
          "loader: samples of this type can't be sent to other ranks: specialize Wire for it");
  });
  // Alone nothing is sent.
  SampleLoader<Opaque> alone{Dataset<Opaque>{3, [](std::size_t) { return Opaque{}; }}, with(2)};
  std::size_t batches = 0;
  for ([[maybe_unused]] auto& batch : alone) ++batches;
  CHECK(batches == 2);
}
