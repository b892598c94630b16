#include "tests/support/thread_groups.hpp"

#include <catch2/catch.hpp>

#include <acc/error.hpp>
#include <acc/loader.hpp>
#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>

using namespace acc::runtime;
using acc::testing::on_ranks;

namespace {

using Index = std::int64_t;
using Batches = std::vector<std::vector<Index>>;
using Loader = SampleLoader<Index>;

enum class Kind { indexed, stream, dispatched, dispatched_stream };

Loader loader_of(Kind kind, std::size_t size, LoaderOptions options, const ProcessGroup& group) {
  options.dispatch_batches = kind == Kind::dispatched || kind == Kind::dispatched_stream;
  if (kind == Kind::indexed || kind == Kind::dispatched) {
    options.shuffle = true;
    return Loader{Dataset<Index>{size, [](std::size_t i) { return static_cast<Index>(i); }},
                  options, group};
  }
  return Loader{StreamDataset<Index>{[size](std::uint64_t epoch) -> Stream<Index> {
                                       return
                                           [order = IndexOrder::shuffled(size, 1, epoch),
                                            at = std::size_t{0}]() mutable -> std::optional<Index> {
                                             if (at == order.size()) return std::nullopt;
                                             return static_cast<Index>(order[at++]);
                                           };
                                     },
                                     size},
                options, group};
}

LoaderOptions with(std::size_t batch_size, bool drop_last = false) {
  LoaderOptions options;
  options.batch_size = batch_size;
  options.drop_last = drop_last;
  options.workers = 1;
  options.seed = 77;
  return options;
}

/// From where it stands to the end of epoch 2.
Batches rest_of(Loader& loader) {
  Batches batches;
  while (loader.epoch() < 3) {
    for (auto& batch : loader) batches.push_back(batch);
  }
  return batches;
}

std::size_t epoch_of(Loader& loader) {
  std::size_t batches = 0;
  for ([[maybe_unused]] auto& batch : loader) ++batches;
  return batches;
}

}  // namespace

TEST_CASE("a run that goes on from a state sees the very next batch, and all behind it",
          "[runtime][data]") {
  std::mutex mutex;
  for (const auto kind : {Kind::indexed, Kind::stream, Kind::dispatched, Kind::dispatched_stream}) {
    for (const bool drop_last : {false, true}) {
      on_ranks(3, [&](ProcessGroup& group) {
        auto undisturbed = loader_of(kind, 25, with(2, drop_last), group);
        Batches batches;
        std::vector<std::string> states{to_string(undisturbed.state())};
        while (undisturbed.epoch() < 3) {
          for (auto& batch : undisturbed) {
            batches.push_back(batch);
            states.push_back(to_string(undisturbed.state()));
          }
        }
        for (std::size_t i = 0; i < states.size(); ++i) {
          auto resumed = loader_of(kind, 25, with(2, drop_last), group);
          resumed.restore(parse_loader_state(states[i]));
          const auto rest = rest_of(resumed);
          const Batches expected{batches.begin() + static_cast<std::ptrdiff_t>(i), batches.end()};
          const std::scoped_lock lock{mutex};
          CAPTURE(static_cast<int>(kind), i, states[i]);
          CHECK(rest == expected);
        }
      });
    }
  }
}

TEST_CASE("each resume of an endless iterator with ++it at the end of the body lost a batch",
          "[runtime][data]") {
  std::mutex mutex;
  for (const auto kind : {Kind::indexed, Kind::stream, Kind::dispatched, Kind::dispatched_stream}) {
    on_ranks(2, [&](ProcessGroup& group) {
      auto undisturbed = loader_of(kind, 22, with(2), group);
      LoaderState state = undisturbed.state();
      const Batches expected = rest_of(undisturbed);
      Batches batches;
      while (state.epoch < 3) {  // so many runs, of 4 batches each
        auto loader = loader_of(kind, 22, with(2), group);
        loader.restore(state);
        auto it = loader.begin();
        for (int step = 0; step < 4 && loader.epoch() < 3; ++step) {
          if (it == loader.end()) it = loader.begin();
          if (it == loader.end()) break;
          batches.push_back(*it);
          ++it;
        }
        state = loader.state();
      }
      const std::scoped_lock lock{mutex};
      CAPTURE(static_cast<int>(kind));
      CHECK(batches == expected);
    });
  }
}

TEST_CASE("behind ++it before the use of the batch it isn't lost either", "[runtime][data]") {
  Loader loader = loader_of(Kind::indexed, 12, with(2), {});
  auto it = loader.begin();
  CHECK(loader.state().samples == 0);
  CHECK(it->size() == 2);
  CHECK(loader.state().samples == 2);
  ++it;
  CHECK(loader.state().samples == 2);
  ++it;  // one that was passed over is done
  CHECK(loader.state().samples == 4);
  (void)*it;
  (void)*it;
  CHECK(loader.state().samples == 6);
  for (int left = 0; left < 3; ++left) ++it;
  CHECK_FALSE(loader.state().finished);
  (void)*it;
  CHECK(loader.state().finished);
  ++it;
  CHECK(loader.state() == LoaderState{1, 77, 0, false});
}

TEST_CASE("a look at one batch behind restore() made the next loop begin the epoch again",
          "[runtime][data]") {
  auto options = with(2);
  options.gradient_state = std::make_shared<GradientState>();
  Loader whole = loader_of(Kind::indexed, 12, options, {});
  Batches expected = rest_of(whole);
  expected.erase(expected.begin(), expected.begin() + 2);
  const LoaderState state{0, 77, 4, false};
  Loader loader = loader_of(Kind::indexed, 12, options, {});
  const auto look = [&] {
    const auto first = *loader.begin();
    CHECK(first == expected.front());
  };
  SECTION("at a temporary iterator's, twice") {
    loader.restore(state);
    look();
    look();
    CHECK(rest_of(loader) == expected);
    CHECK(epoch_of(loader) == 6);  // and it is used up
  }
  SECTION("by an iterator that lives on") {
    loader.restore(state);
    const auto it = loader.begin();
    CHECK(rest_of(loader) == expected);
  }
  SECTION("by a loop") {
    loader.restore(state);
    for ([[maybe_unused]] auto& batch : loader) break;
    CHECK(rest_of(loader) == expected);
  }
  SECTION("with its position shown, as one rank alone may do") {
    loader.restore(state);
    look();
    CHECK(loader.state().samples == 6);
    CHECK(rest_of(loader) == expected);
  }
  SECTION("and a loop inside the first batch that was trained with begins the epoch") {
    for (const bool trained_before : {false, true}) {
      loader.restore({});
      auto outer = loader.begin();
      if (trained_before) options.gradient_state->next_batch();
      loader.restore(state);  // none of its batches was trained with
      int batches = 0;
      for (auto& batch : loader) {
        CHECK(batch == expected[static_cast<std::size_t>(batches)]);
        options.gradient_state->next_batch();
        if (++batches == 1) CHECK(epoch_of(loader) == 6);
      }
      CHECK(batches == 4);
    }
  }
  SECTION("but two batches, or one that was trained with, are a loop left by break") {
    loader.restore(state);
    for (const int way : {0, 1}) {
      loader.restore(state);
      int batches = 0;
      for ([[maybe_unused]] auto& batch : loader) {
        if (way == 1) options.gradient_state->next_batch();
        if (++batches == (way == 0 ? 2 : 1)) break;
      }
      CAPTURE(way);
      CHECK(epoch_of(loader) == 6);
    }
  }
}

TEST_CASE("a look at a batch behind a restored end of an epoch read memory that isn't there",
          "[runtime][data]") {
  Loader loader = loader_of(Kind::indexed, 6, with(2), {});
  loader.restore({3, 77, 6, true});
  CHECK_THROWS_WITH(*loader.begin(),
                    "loader: no batch to take: the position that was restored is the end of "
                    "epoch 3, so this pass has none. Compare the iterator with end() first, or "
                    "look at a batch with peek()");
  auto it = loader.begin();
  while (it != loader.end()) ++it;
  CHECK_THROWS_WITH(it->size(),
                    "loader: no batch to take: the iterator is at the end of epoch 4. Compare it "
                    "with end() first");
  Loader none = loader_of(Kind::indexed, 0, with(2), {});
  CHECK_THROWS_AS(*none.begin(), Error);
}

TEST_CASE("peek() shows the next batch wherever the loader stands, and moves nothing",
          "[runtime][data]") {
  for (const auto kind : {Kind::indexed, Kind::stream, Kind::dispatched, Kind::dispatched_stream}) {
    CAPTURE(static_cast<int>(kind));
    on_ranks(2, [&](ProcessGroup& group) {
      const auto require = [](bool holds, const char* what) {
        if (!holds) throw std::runtime_error{what};
      };
      Loader whole = loader_of(kind, 12, with(2), group);
      const Batches all = rest_of(whole);
      const std::uint64_t seed = whole.state().seed;
      const auto looks_at = [&](const LoaderState& state, std::size_t next) {
        Loader loader = loader_of(kind, 12, with(2), group);
        loader.restore(state);
        for (int look = 0; look < 2; ++look) require(loader.peek() == all[next], "another batch");
        require(loader.state() == state, "the position has moved");
        require(
            rest_of(loader) == Batches(all.begin() + static_cast<std::ptrdiff_t>(next), all.end()),
            "another rest");
      };
      looks_at({0, seed, 0, false}, 0);
      looks_at({0, seed, 4, false}, 1);
      looks_at({0, seed, 12, true}, 3);  // the end of an epoch
      looks_at({1, seed, 0, false}, 3);
      Loader loader = loader_of(kind, 12, with(2), group);
      std::size_t batches = 0;
      for (auto& batch : loader) {
        require(batch == all[batches++], "another batch of the loop");
        require(loader.peek() == all[0], "what a loop would begin with");
      }
      require(batches == 3 && loader.peek() == all[3], "the next epoch");
    });
  }
  Loader none = loader_of(Kind::indexed, 0, with(2), {});
  CHECK_THROWS_WITH(none.peek(), "loader: peek() found no batch: the epochs have none");
}

TEST_CASE("skip_first_batches() behind a resume, then the loader itself, trained one epoch twice",
          "[runtime][data]") {
  on_ranks(2, [](ProcessGroup& group) {
    constexpr int kBatches = 3;  // of an epoch
    Loader whole = loader_of(Kind::indexed, 12, with(2), group);
    const Batches all = rest_of(whole);
    // Accelerate's idiom, with steps that the program counts.
    const auto resumed = [&](Loader& loader, int step, const auto& in_loop) {
      Batches seen;
      for (int epoch = step / kBatches; epoch < 3; ++epoch) {
        auto skipped = loader.skip_first_batches(static_cast<std::size_t>(step % kBatches));
        auto& active = seen.empty() ? skipped : loader;
        for (auto& batch : active) {
          seen.push_back(batch);
          in_loop(static_cast<int>(seen.size()));
        }
      }
      return seen;
    };
    const auto require = [](bool holds, const std::string& what) {
      if (!holds) throw std::runtime_error{what};
    };
    for (int step = 1; step < 3 * kBatches; ++step) {
      const auto at = [&](int done) {
        const bool in_last = done % kBatches == 0;  // saved in the loop's body
        return LoaderState{static_cast<std::uint64_t>((done - 1) / kBatches), 77,
                           4 * (in_last ? 3U : static_cast<std::uint64_t>(done % kBatches)),
                           in_last};
      };
      const std::string words = " resumed behind step " + std::to_string(step);
      Loader loader = loader_of(Kind::indexed, 12, with(2), group);
      loader.restore(at(step));
      const auto seen = resumed(loader, step, [&](int done) {
        require(loader.state() == at(step + done), "another state, to be saved," + words);
      });
      require(seen == Batches(all.begin() + step, all.end()), "another rest" + words);
      require(loader.epoch() == 3, "another epoch" + words);
    }
  });
}

TEST_CASE("a loader and its copy by skip_first_batches() have one position, other copies their own",
          "[runtime][data]") {
  Loader loader = loader_of(Kind::indexed, 6, with(2), {});
  auto skipping = loader.skip_first_batches(1);
  Loader copy = skipping;
  CHECK(epoch_of(skipping) == 2);
  CHECK(loader.epoch() == 1);
  CHECK(copy.epoch() == 0);
  loader.set_epoch(5);
  CHECK(skipping.epoch() == 5);
  Loader moved = std::move(loader);
  CHECK(epoch_of(moved) == 3);
  CHECK(skipping.epoch() == 6);
  copy = moved;
  copy.set_epoch(0);
  CHECK(moved.epoch() == 6);
  // The rest of a restored epoch is empty for a copy that skips all that was taken of it.
  moved.restore({2, 77, 6, true});
  auto all_skipped = moved.skip_first_batches(3);
  CHECK(epoch_of(all_skipped) == 0);
  CHECK(moved.epoch() == 3);

  auto options = with(2);
  options.seed = 5;
  Loader other = loader_of(Kind::indexed, 6, options, {});
  auto before = other.skip_first_batches(0);
  other.restore({1, 77, 0, false});  // the seed, too
  moved.set_epoch(1);
  CHECK(before.peek() == moved.peek());
  CHECK(rest_of(before) == rest_of(moved));
}

TEST_CASE("with another number of ranks the epoch goes on behind the same samples",
          "[runtime][data]") {
  std::mutex mutex;
  constexpr std::size_t kSamples = 47;
  for (const auto kind : {Kind::indexed, Kind::stream, Kind::dispatched, Kind::dispatched_stream}) {
    for (const int before : {1, 2, 4}) {
      for (const int after : {1, 3, 5}) {
        CAPTURE(static_cast<int>(kind), before, after);
        std::map<Index, int> times;
        LoaderState state;
        on_ranks(before, [&](ProcessGroup& group) {
          auto loader = loader_of(kind, kSamples, with(3), group);
          std::size_t steps = 0;
          for (auto& batch : loader) {
            const std::scoped_lock lock{mutex};
            for (const auto sample : batch) ++times[sample];
            state = loader.state();
            if (++steps == 3) break;
          }
        });
        REQUIRE(times.size() == static_cast<std::size_t>(before) * 9);
        on_ranks(after, [&](ProcessGroup& group) {
          auto options = with(2);
          options.even_batches = false;
          auto loader = loader_of(kind, kSamples, options, group);
          loader.restore(state);
          for (auto& batch : loader) {
            const std::scoped_lock lock{mutex};
            for (const auto sample : batch) ++times[sample];
          }
        });
        CHECK(times.size() == kSamples);  // each sample came ...
        const auto twice = std::count_if(times.begin(), times.end(),
                                         [](const auto& one) { return one.second > 1; });
        // ... and none again, but for what fills up the last step where steps are always even.
        CHECK(twice < (kind == Kind::indexed ? 1 : after * 2));
      }
    }
  }
}

TEST_CASE("a state at the end of an epoch goes on with the next", "[runtime][data]") {
  Loader loader = loader_of(Kind::indexed, 6, with(2), {});
  LoaderState at_end;
  for ([[maybe_unused]] auto& batch : loader) at_end = loader.state();
  CHECK(at_end.finished);
  Loader resumed = loader_of(Kind::indexed, 6, with(2), {});
  resumed.restore(at_end);
  std::size_t batches = 0;
  for ([[maybe_unused]] auto& batch : resumed) ++batches;
  CHECK(batches == 0);
  CHECK(resumed.epoch() == 1);
  for ([[maybe_unused]] auto& batch : resumed) ++batches;
  CHECK(batches == 3);
}

TEST_CASE("a restored shuffle keeps the seed it had", "[runtime][data]") {
  Loader loader = loader_of(Kind::indexed, 20, with(4), {});
  const auto expected = rest_of(loader);
  auto options = with(4);
  options.seed = 5;
  Loader other = loader_of(Kind::indexed, 20, options, {});
  other.restore({0, 77, 0, false});
  CHECK(rest_of(other) == expected);

  options.shuffle = false;
  options.sampler = std::make_shared<RandomSampler>(20, 5);
  Loader own{Dataset<Index>{20, [](std::size_t i) { return static_cast<Index>(i); }}, options};
  CHECK_THROWS_WITH(own.restore({0, 77, 0, false}),
                    "loader: can't go on from epoch=0 seed=77 samples=0 finished=0: the seed here "
                    "is 5");
}

TEST_CASE("a position beyond a data set that has shrunk was silently an empty epoch",
          "[runtime][data]") {
  for (const auto kind : {Kind::indexed, Kind::dispatched}) {
    Loader loader = loader_of(kind, 11, with(4), {});
    const auto before = rest_of(loader);
    CHECK_THROWS_WITH(loader.restore({0, 0, 30, false}),
                      Catch::StartsWith("loader: can't go on from epoch=0 seed=0 samples=30 "
                                        "finished=0: an epoch has 11 samples here. Use the data "
                                        "set with which the state was saved; "));
    loader.set_epoch(0);
    CHECK(rest_of(loader) == before);
    CHECK_NOTHROW(loader.restore({0, 0, 30, true}));  // the next epoch may have fewer
    CHECK_NOTHROW(loader.restore({0, 0, 11, false}));
  }
  Loader stream = loader_of(Kind::stream, 11, with(4), {});
  CHECK_NOTHROW(stream.restore({0, 0, 30, false}));  // it may be longer than it said
}

TEST_CASE("set_epoch begins that epoch", "[runtime][data]") {
  Loader loader = loader_of(Kind::indexed, 20, with(20), {});
  auto epoch_1 = [&] {
    loader.set_epoch(1);
    return *loader.begin();
  };
  const auto first = epoch_1();
  CHECK(first == epoch_1());
  CHECK(loader.epoch() == 1);
}

TEST_CASE("a state as text is read back, and nothing else is", "[runtime][data]") {
  const LoaderState state{3, 18446744073709551615U, 512, true};
  CHECK(to_string(state) == "epoch=3 seed=18446744073709551615 samples=512 finished=1");
  CHECK(parse_loader_state(to_string(state)) == state);
  for (const char* text :
       {"", "epoch=3", "epoch=3 seed=1 samples=5 finished=2",
        "epoch=3 seed=1 samples=5 finished=0 ", "epoch=-1 seed=1 samples=5 finished=0",
        "seed=1 epoch=3 samples=5 finished=0",
        "epoch=3 seed=1 samples=99999999999999999999 finished=0",
        "epoch=3 seed=1 samples=5 finished=0 x=1"}) {
    INFO(text);
    CHECK_THROWS_AS(parse_loader_state(text), Error);
  }
}
