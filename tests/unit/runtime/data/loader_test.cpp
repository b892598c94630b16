#include "tests/support/thread_groups.hpp"

#include <catch2/catch.hpp>

#include <acc/error.hpp>
#include <acc/loader.hpp>
#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>

using namespace acc::runtime;
using acc::testing::on_ranks;

namespace {

using Index = std::int64_t;
using Batch = std::vector<Index>;
using Batches = std::vector<Batch>;
using Loader = SampleLoader<Index>;

Dataset<Index> count_to(std::size_t size) {
  return {size, [](std::size_t index) { return static_cast<Index>(index); }};
}

StreamDataset<Index> stream_to(Index size, bool known = true) {
  StreamDataset<Index> data{[size](std::uint64_t epoch) -> Stream<Index> {
                              const auto first = static_cast<Index>(epoch) * 1000;
                              return [=, next = first]() mutable -> std::optional<Index> {
                                if (next == first + size) return std::nullopt;
                                return next++;
                              };
                            },
                            std::nullopt};
  if (known) data.size = static_cast<std::size_t>(size);
  return data;
}

Batches epoch_of(Loader& loader) {
  Batches batches;
  for (auto& batch : loader) batches.push_back(batch);
  return batches;
}

LoaderOptions with(std::size_t batch_size, unsigned workers = 0) {
  LoaderOptions options;
  options.batch_size = batch_size;
  options.workers = workers;
  return options;
}

}  // namespace

TEST_CASE("one process reads all, in order", "[runtime][data]") {
  for (const unsigned workers : {0U, 1U, 3U}) {
    Loader loader{count_to(7), with(3, workers)};
    CHECK(loader.length() == 3);
    CHECK(epoch_of(loader) == Batches{{0, 1, 2}, {3, 4, 5}, {6}});
    Loader stream{stream_to(7), with(3, workers)};
    CHECK(stream.length() == 3);
    CHECK(epoch_of(stream) == Batches{{0, 1, 2}, {3, 4, 5}, {6}});
    CHECK(epoch_of(stream)[0] == Batch{1000, 1001, 1002});
  }
}

TEST_CASE("worker threads change nothing but the time it takes", "[runtime][data]") {
  on_ranks(3, [](ProcessGroup& group) {
    std::vector<std::vector<Batches>> seen;
    for (const unsigned workers : {0U, 1U, 4U}) {
      auto options = with(4, workers);
      options.shuffle = true;
      options.seed = 9;
      Loader loader{count_to(101), options, group};
      seen.push_back({epoch_of(loader), epoch_of(loader)});
    }
    if (seen[0] != seen[1] || seen[0] != seen[2]) throw std::runtime_error{"they differ"};
    if (seen[0][0] == seen[0][1]) throw std::runtime_error{"both epochs have the same order"};
  });
}

TEST_CASE("the ranks together see every sample of a shuffled epoch", "[runtime][data]") {
  std::mutex mutex;
  std::multiset<Index> seen;
  on_ranks(4, [&](ProcessGroup& group) {
    auto options = with(5, 2);
    options.shuffle = true;
    Loader loader{count_to(100), options, group};
    for (auto& batch : loader) {
      const std::scoped_lock lock{mutex};
      seen.insert(batch.begin(), batch.end());
    }
  });
  CHECK(seen.size() == 100);
  CHECK(std::set<Index>(seen.begin(), seen.end()).size() == 100);
}

TEST_CASE("samples are collated", "[runtime][data]") {
  DataLoader<Index, double> loader{count_to(5),
                                   [](Batch samples) {
                                     double sum = 0;
                                     for (const auto sample : samples)
                                       sum += static_cast<double>(sample);
                                     return sum;
                                   },
                                   with(2, 2)};
  std::vector<double> sums;
  for (const auto sum : loader) sums.push_back(sum);
  CHECK(sums == std::vector<double>{1, 5, 4});
}

TEST_CASE("a loader says in which batch it ends and how many samples that has", "[runtime][data]") {
  on_ranks(2, [](ProcessGroup& group) {
    auto options = with(2);
    options.gradient_state = std::make_shared<GradientState>(3);
    Loader loader{count_to(7), options, group};
    std::vector<bool> ends;
    std::vector<bool> syncs;
    for ([[maybe_unused]] auto& batch : loader) {
      if (loader.status().remainder != 3) throw std::runtime_error{"another remainder"};
      ends.push_back(options.gradient_state->end_of_dataloader());
      syncs.push_back(options.gradient_state->next_batch());
    }
    if (ends != std::vector<bool>{false, true} || syncs != ends)
      throw std::runtime_error{"another end"};
    if (options.gradient_state->in_dataloader()) throw std::runtime_error{"it is not left"};
  });
}

TEST_CASE("a loop that is left early leaves nothing behind and begins again", "[runtime][data]") {
  auto options = with(2, 3);
  options.gradient_state = std::make_shared<GradientState>();
  Loader loader{count_to(100), options};
  for (auto& batch : loader) {
    CHECK(options.gradient_state->in_dataloader());
    if (batch[0] == 6) break;
  }
  CHECK_FALSE(options.gradient_state->in_dataloader());
  CHECK(loader.epoch() == 0);
  CHECK(loader.state().samples == 8);
  CHECK(epoch_of(loader).size() == 50);
  CHECK(loader.epoch() == 1);
}

TEST_CASE("loops may stand in one another", "[runtime][data]") {
  auto options = with(1);
  options.gradient_state = std::make_shared<GradientState>();
  Loader outer{count_to(2), options};
  Loader inner{count_to(3), options};
  std::vector<bool> ends;
  for ([[maybe_unused]] auto& one : outer) {
    for ([[maybe_unused]] auto& two : inner)
      ends.push_back(options.gradient_state->end_of_dataloader());
    ends.push_back(options.gradient_state->end_of_dataloader());
  }
  CHECK(ends == std::vector<bool>{false, false, true, false, false, false, true, true});
}

TEST_CASE("an endless iterator made the accelerator forget the loader in its second epoch",
          "[runtime][data]") {
  for (const unsigned workers : {0U, 2U}) {
    auto options = with(2, workers);
    options.gradient_state = std::make_shared<GradientState>(2);
    Loader loader{count_to(6), options};
    std::vector<bool> syncs;
    auto it = loader.begin();
    for (int step = 0; step < 9; ++step) {
      if (it == loader.end()) {
        CHECK_FALSE(options.gradient_state->in_dataloader());  // at its end it is left
        it = loader.begin();
      }
      CHECK(options.gradient_state->in_dataloader());
      syncs.push_back(options.gradient_state->next_batch());
      CHECK(loader.epoch() == static_cast<std::uint64_t>(step / 3));
      ++it;
    }
    CHECK(syncs == std::vector<bool>{false, true, true, false, true, true, false, true, true});
    CHECK(loader.epoch() == 3);
  }
}

TEST_CASE("an iterator at its end in a loop over another loader ended each step of that one",
          "[runtime][data]") {
  auto options = with(1);
  options.gradient_state = std::make_shared<GradientState>();
  const GradientState& state = *options.gradient_state;
  Loader training{count_to(3), options};
  Loader evaluation{count_to(2), options};
  std::vector<bool> ends;
  auto it = evaluation.begin();
  for ([[maybe_unused]] auto& batch : training) {
    for (it = evaluation.begin(); it != evaluation.end(); ++it)
      ends.push_back(state.end_of_dataloader());
    ends.push_back(state.end_of_dataloader());
  }
  CHECK(ends == std::vector<bool>{false, true, false, false, true, false, false, true, true});
}

TEST_CASE("a loop over the same loader inside a loop ended the outer one's epoch twice",
          "[runtime][data]") {
  auto options = with(2);
  options.gradient_state = std::make_shared<GradientState>();
  const GradientState& state = *options.gradient_state;
  Loader loader{count_to(6), options};
  for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
    Batches outer;
    std::vector<bool> ends;
    for (auto& batch : loader) {
      outer.push_back(batch);
      CHECK(loader.epoch() == epoch);
      CHECK(loader.state().samples == 2 * outer.size());
      if (outer.size() == 2) CHECK(epoch_of(loader) == Batches{{0, 1}, {2, 3}, {4, 5}});
      ends.push_back(state.end_of_dataloader());
    }
    CHECK(outer == Batches{{0, 1}, {2, 3}, {4, 5}});
    CHECK(ends == std::vector<bool>{false, false, true});
    CHECK(loader.epoch() == epoch + 1);
  }
}

TEST_CASE("two iterators of one loader are independent", "[runtime][data]") {
  Loader loader{count_to(6), with(2, 1)};
  auto first = loader.begin();
  auto second = loader.begin();
  ++second;
  CHECK(*first == Batch{0, 1});
  CHECK(*second == Batch{2, 3});
  CHECK(*++first == Batch{2, 3});
  second = loader.begin();  // again, in the middle of the epoch
  CHECK(*second == Batch{0, 1});
  CHECK(loader.state().samples == 2);
  loader.set_epoch(7);  // from then on they no longer move the position
  for (; first != loader.end(); ++first) (void)*first;
  CHECK(loader.state() == LoaderState{7, 0, 0, false});
  (void)*++second;
  CHECK(loader.state() == LoaderState{7, 0, 0, false});
}

TEST_CASE("an iterator that is left standing doesn't stop the loops behind it", "[runtime][data]") {
  Loader loader{count_to(6), with(2)};
  auto it = loader.begin();
  CHECK(*it == Batch{0, 1});
  for (int epoch = 0; epoch < 3; ++epoch) CHECK(epoch_of(loader).size() == 3);
  CHECK(loader.epoch() == 3);
}

TEST_CASE("what the dataset throws comes out of the loop at its batch", "[runtime][data]") {
  for (const unsigned workers : {0U, 2U}) {
    Dataset<Index> broken{10, [](std::size_t index) -> Index {
                            if (index == 5) throw std::runtime_error{"sample 5 is bad"};
                            return static_cast<Index>(index);
                          }};
    Loader loader{broken, with(2, workers)};
    Batches before;
    CHECK_THROWS_WITH(
        [&] {
          for (auto& batch : loader) before.push_back(batch);
        }(),
        "sample 5 is bad");
    CHECK(before == Batches{{0, 1}, {2, 3}});
  }
}

TEST_CASE("a stream that throws gives what it had given, then throws, and is over",
          "[runtime][data]") {
  for (const unsigned workers : {0U, 1U}) {
    StreamDataset<Index> broken{[](std::uint64_t) -> Stream<Index> {
                                  return [next = Index{0}]() mutable -> std::optional<Index> {
                                    if (next == 5) throw std::runtime_error{"line 5 is bad"};
                                    return next++;
                                  };
                                },
                                std::nullopt};
    Loader loader{broken, with(2, workers)};
    auto at = loader.begin();
    CHECK(*at == Batch{0, 1});
    ++at;
    CHECK(*at == Batch{2, 3});
    CHECK_FALSE(loader.status().end_of_dataloader);
    CHECK_THROWS_WITH(++at, "line 5 is bad");
    ++at;
    CHECK(at == loader.end());
  }
}

TEST_CASE("the first batches of each epoch may be passed over", "[runtime][data]") {
  Loader loader{count_to(7), with(2)};
  auto skipping = loader.skip_first_batches(2);
  CHECK(skipping.length() == 2);
  CHECK(epoch_of(skipping) == Batches{{4, 5}, {6}});
  CHECK(epoch_of(skipping) == Batches{{4, 5}, {6}});
  CHECK(epoch_of(loader).size() == 4);
  auto none = loader.skip_first_batches(5);
  CHECK(epoch_of(none).empty());
  CHECK_THROWS_WITH(none.length(), "loader: skips 5 batches and has 4");
}

TEST_CASE("a stream's length may be unknown", "[runtime][data]") {
  Loader loader{stream_to(5, false), with(2)};
  CHECK_FALSE(loader.length().has_value());
  std::vector<bool> ends;
  for ([[maybe_unused]] auto& batch : loader) {
    ends.push_back(loader.status().end_of_dataloader);
    CHECK(loader.status().remainder == -1);
  }
  CHECK(ends == std::vector<bool>{false, false, true});
}

TEST_CASE("empty datasets have no batches", "[runtime][data]") {
  on_ranks(2, [](ProcessGroup& group) {
    for (const bool dispatch : {false, true}) {
      auto options = with(2, 1);
      options.dispatch_batches = dispatch;
      Loader loader{count_to(0), options, group};
      Loader stream{stream_to(0), options, group};
      if (!epoch_of(loader).empty() || !epoch_of(stream).empty() || loader.epoch() != 1)
        throw std::runtime_error{"there is a batch"};
    }
  });
}

TEST_CASE("options that don't go together are refused", "[runtime][data]") {
  auto options = with(2);
  options.shuffle = true;
  options.name = "eval";
  CHECK_THROWS_WITH((Loader{stream_to(4), options}),
                    "eval: a stream has its own order: it can't be shuffled or sampled");
  options.sampler = std::make_shared<SequentialSampler>(4);
  CHECK_THROWS_WITH((Loader{count_to(4), options}),
                    "eval: a sampler is given, and shuffle: which one?");
  CHECK_THROWS_AS((Loader{count_to(4), with(0)}), Error);
}

TEST_CASE("a sampler decides which samples come, and how often", "[runtime][data]") {
  struct Odd : Sampler {
    [[nodiscard]] std::size_t size() const override { return 3; }
    [[nodiscard]] IndexOrder order(std::uint64_t epoch) const override {
      return IndexOrder::of({1 + 2 * static_cast<std::size_t>(epoch), 1, 1});
    }
  };
  auto options = with(2);
  options.sampler = std::make_shared<Odd>();
  Loader loader{count_to(10), options};
  CHECK(loader.length() == 2);
  CHECK(epoch_of(loader) == Batches{{1, 1}, {1}});
  CHECK(epoch_of(loader) == Batches{{3, 1}, {1}});
}

TEST_CASE("a sampler that names a sample beyond the dataset's end is refused before it is read",
          "[runtime][data]") {
  struct Beyond : Sampler {
    [[nodiscard]] std::size_t size() const override { return 4; }
    [[nodiscard]] IndexOrder order(std::uint64_t epoch) const override {
      return epoch == 0 ? IndexOrder::of({0, 9, 1, 2}) : IndexOrder::of({0, 1, 10, 2});
    }
  };
  const auto dispatched = GENERATE(false, true);
  on_ranks(2, [&](ProcessGroup& group) {
    std::atomic<std::size_t> largest = 0;
    const auto get = [&](std::size_t index) {
      largest = std::max(largest.load(), index);
      return static_cast<Index>(index);
    };
    LoaderOptions options{
        .sampler = std::make_shared<Beyond>(), .dispatch_batches = dispatched, .name = "train"};
    Loader loader{Dataset<Index>{10, get}, options, group};
    if (epoch_of(loader).size() != 2) throw std::runtime_error{"epoch 0 isn't read"};
    std::string told;
    try {
      (void)epoch_of(loader);
    } catch (const Error& error) {
      told = error.what();
      const bool here = !dispatched || group.rank() == 0;
      if (here != (error.code() == ErrorCode::invalid_argument))
        throw std::runtime_error{"another code: " + told};
    }
    const std::string words =
        "train: the sampler's order of epoch 1 has the index 10, and the dataset 10 samples";
    if (told.find(words) == std::string::npos) throw std::runtime_error{"told: " + told};
    if (largest > 9) throw std::runtime_error{"it was read"};
  });
  RandomSampler eleven{11, 1};
  CHECK(eleven.order(0).largest() == 10);
  CHECK(IndexOrder{}.largest() == 0);
}

TEST_CASE("a loader without a way to its samples, or of absurd batches, is refused by name",
          "[runtime][data]") {
  CHECK_THROWS_WITH((SampleLoader<int>{Dataset<int>{3, {}}, {.name = "train"}}),
                    Catch::Contains("train: Dataset::get isn't given"));
  CHECK_THROWS_WITH((SampleLoader<int>{StreamDataset<int>{}, {.name = "train"}}),
                    Catch::Contains("train: StreamDataset::open isn't given"));
  Dataset<int> dataset{3, [](std::size_t index) { return static_cast<int>(index); }};
  CHECK_THROWS_WITH((SampleLoader<int>{dataset, {.batch_size = static_cast<std::size_t>(-1)}}),
                    Catch::Contains("a batch size of 18446744073709551615"));
}
