#include "tests/support/thread_groups.hpp"
#include "tests/unit/runtime/training/toy_net.hpp"

#include <catch2/catch.hpp>

#include <unistd.h>

#include <acc/accelerator.hpp>
#include <acc/error.hpp>
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <mutex>
#include <numeric>
#include <optional>

using namespace acc::runtime;
using acc::testing::on_ranks;
using acc::testing::ToyNet;

namespace {

/// A folder that goes with the test.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "acc-accelerator-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

std::vector<std::int64_t> whole_numbers(const HostTensor& tensor) {
  const auto values = tensor.as<std::int64_t>();
  return {values.begin(), values.end()};
}

Dataset<std::int64_t> numbers(std::size_t size) {
  return {size, [](std::size_t index) { return static_cast<std::int64_t>(index); }};
}

template <class Work>
std::string refusal(const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

}  // namespace

TEST_CASE("each process knows its place", "[runtime][training]") {
  std::atomic<int> main = 0, last = 0, sum = 0;
  on_ranks(3, [&](ProcessGroup& group) {
    Accelerator accelerator{group};
    main += accelerator.is_main_process() ? 1 : 0;
    last += accelerator.is_last_process() ? 1 + accelerator.process_index() : 0;
    sum += accelerator.process_index() + accelerator.num_processes() +
           (accelerator.device() == Device{} ? 100 : 0) +
           (accelerator.local_process_index() == group.local_rank() ? 1000 : 0);
  });
  CHECK(main == 1);
  CHECK(last == 3);
  CHECK(sum == 3 + 9 + 300 + 3000);
}

TEST_CASE("the main process goes first, also when it fails", "[runtime][training]") {
  std::mutex mutex;
  std::vector<int> order;
  const auto come = [&](int rank) {
    const std::scoped_lock lock{mutex};
    order.push_back(rank);
  };
  std::atomic<int> failed = 0, values = 0;
  on_ranks(4, [&](ProcessGroup& group) {
    Accelerator accelerator{group};
    {
      const auto turn = accelerator.main_process_first();
      come(group.rank());
    }
    accelerator.wait_for_everyone();
    values += accelerator.main_process_first([&] {
      come(group.rank());
      return 5;
    });
    accelerator.wait_for_everyone();
    try {
      const auto turn = accelerator.main_process_first();
      if (accelerator.is_main_process()) throw std::runtime_error{"no space"};
    } catch (const std::runtime_error&) {
      ++failed;
    }
    accelerator.wait_for_everyone();
    accelerator.local_main_process_first([&] { come(group.rank()); });
  });
  REQUIRE(order.size() == 12);
  CHECK(order[0] == 0);
  CHECK(order[4] == 0);
  CHECK(order[8] == 0);
  CHECK(failed == 1);
  CHECK(values == 20);
}

TEST_CASE("ranks that call different things read the calls that they wrote",
          "[runtime][training]") {
  std::mutex mutex;
  std::vector<std::string> told;
  on_ranks(3, [&](ProcessGroup& group) {
    Accelerator accelerator{group};
    const std::vector<float> losses(5);
    const auto why = refusal([&] {
      if (accelerator.is_main_process())
        accelerator.wait_for_everyone();
      else
        (void)accelerator.gather_for_metrics(losses);
    });
    const std::scoped_lock lock{mutex};
    told.push_back(why);
  });
  REQUIRE(told.size() == 3);
  for (const auto& why : told)
    CHECK_THAT(
        why, Catch::Contains("rank 0: barrier #1 (in wait_for_everyone), ranks 1,2: all_gather") &&
                 Catch::Contains("#1 (in gather_for_metrics)"));
}

TEST_CASE("work is done where it is asked for", "[runtime][training]") {
  std::mutex mutex;
  std::vector<std::string> done;
  const auto at = [&](const std::string& what) {
    const std::scoped_lock lock{mutex};
    done.push_back(what);
  };
  std::atomic<int> told = 0;
  on_ranks(3, [&](ProcessGroup& group) {
    Accelerator accelerator{group};
    const std::string rank = std::to_string(group.rank());
    told += accelerator.on_main_process([&] { at("main " + rank); }) ? 1 : 0;
    told += accelerator.on_last_process([&] { at("last " + rank); }) ? 1 : 0;
    told += accelerator.on_process(1, [&] { at("second " + rank); }) ? 1 : 0;
    told += accelerator.on_local_main_process([&] { at("local " + rank); }) ? 1 : 0;
    told += accelerator.on_local_process(1, [&] { at("local second " + rank); }) ? 1 : 0;
  });
  std::ranges::sort(done);
  CHECK(done ==
        std::vector<std::string>{"last 2", "local 0", "local second 1", "main 0", "second 1"});
  CHECK(told == 5);
}

TEST_CASE("tensors and lists go between the processes", "[runtime][training]") {
  std::atomic<int> right = 0;
  on_ranks(2, [&](ProcessGroup& group) {
    Accelerator accelerator{group};
    const int rank = group.rank();
    std::vector<std::int64_t> mine(static_cast<std::size_t>(rank) + 1, rank + 1);
    bool all = accelerator.split_between_processes(std::vector<int>{1, 2, 3}) ==
               (rank == 0 ? std::vector<int>{1, 2} : std::vector<int>{3});
    all &= accelerator.split_between_processes(std::vector<int>{1, 2, 3}, true).size() == 2;
    const HostTensor padded =
        accelerator.pad_across_processes(std::span<std::int64_t>{mine}, 0, -100);
    all &= whole_numbers(padded) ==
           (rank == 0 ? std::vector<std::int64_t>{1, -100} : std::vector<std::int64_t>{2, 2});
    HostTensor copy = padded;
    all &=
        whole_numbers(accelerator.gather(copy.view())) == std::vector<std::int64_t>{1, -100, 2, 2};
    const TensorView views[] = {copy.view(), copy.view()};
    all &= accelerator.gather(views).size() == 2;
    std::vector<float> value{static_cast<float>(rank)};
    all &= accelerator.reduce(std::span<float>{value}).as<float>()[0] == 1;  // the sum
    all &= accelerator.reduce(std::span<float>{value}, Reduction::mean).as<float>()[0] == 0.5F;
    all &= accelerator.gather_object(std::vector<std::string>{"r" + std::to_string(rank)}) ==
           std::vector<std::string>{"r0", "r1"};

    all &= !accelerator.check_trigger();
    if (rank == 1) accelerator.set_trigger();
    all &= accelerator.check_trigger();
    all &= !accelerator.check_trigger();
    right += all ? 1 : 0;
  });
  CHECK(right == 2);
}

TEST_CASE("metrics have each sample once", "[runtime][training]") {
  for (const int ranks : {1, 2, 3}) {
    std::atomic<int> right = 0;
    on_ranks(ranks, [&](ProcessGroup& group) {
      Accelerator accelerator{group};
      auto loader = accelerator.data_loader(numbers(17), {.batch_size = 2});
      std::vector<std::int64_t> seen;
      std::vector<std::string> texts;
      std::size_t gathered = 0;
      for (auto& batch : loader) {
        HostTensor tensor = HostTensor::of(std::span<const std::int64_t>{batch},
                                           {static_cast<std::int64_t>(batch.size())});
        const auto numbers_of_all = whole_numbers(accelerator.gather_for_metrics(tensor.view()));
        seen.insert(seen.end(), numbers_of_all.begin(), numbers_of_all.end());
        gathered += accelerator.gather(tensor.view()).count();
        std::vector<std::string> words;
        for (const auto number : batch) words.push_back(std::to_string(number));
        for (auto& word : accelerator.gather_for_metrics(words)) texts.push_back(word);
      }
      std::ranges::sort(seen);
      std::vector<std::int64_t> expected(17);
      std::iota(expected.begin(), expected.end(), 0);
      right += seen == expected && texts.size() == 17 && (ranks == 1 || gathered > 17) ? 1 : 0;
    });
    CHECK(right == ranks);
  }
}

TEST_CASE("gradients are exchanged when a step ends, and with the last batch of an epoch",
          "[runtime][training]") {
  std::atomic<int> right = 0;
  on_ranks(2, [&](ProcessGroup& group) {
    AcceleratorOptions options;
    options.gradient_accumulation_steps = 2;
    Accelerator accelerator{group, options};
    std::vector<float> value(4, 1.0F);
    GradientReducer& reducer = accelerator.prepare_model({{"w", std::span<float>{value}, {}}});
    Sgd sgd{reducer, {.learning_rate = 1}};
    accelerator.prepare(sgd);
    auto loader = accelerator.data_loader(numbers(10), {.batch_size = 1});
    int ended = 0;
    accelerator.on_backward_end([&] { ++ended; });
    std::vector<int> sync, stepped;
    for (int epoch = 0; epoch < 2; ++epoch) {
      for (const auto& batch : loader) {
        (void)batch;
        const auto accumulating = accelerator.accumulate();
        accelerator.backward([&](double factor) {
          auto* gradient = static_cast<float*>(reducer.gradient(0).data);
          // Of rank 0: 1, of rank 1: 3; the mean is 2.
          gradient[0] += static_cast<float>(factor) * static_cast<float>(1 + 2 * group.rank());
          reducer.ready(0);
        });
        sync.push_back(accelerator.sync_gradients() ? 1 : 0);
        if (accelerator.sync_gradients())
          stepped.push_back(static_cast<int>(static_cast<float*>(reducer.gradient(0).data)[0]));
        accelerator.step(sgd);
        accelerator.zero_grad(sgd);
      }
    }
    bool all = sync == std::vector<int>{0, 1, 0, 1, 1, 0, 1, 0, 1, 1};  // as recorded
    all &= stepped == std::vector<int>{2, 2, 1, 2, 2, 1};
    all &= value[0] == 1.0F - 10.0F && sgd.steps() == 6 && ended == 10;
    right += all ? 1 : 0;
  });
  CHECK(right == 2);
}

TEST_CASE("fp16 brings the loss scale, and a skipped step is told", "[runtime][training]") {
  std::atomic<int> right = 0;
  on_ranks(2, [&](ProcessGroup& group) {
    AcceleratorOptions options;
    options.mixed_precision = MixedPrecision::fp16;
    Accelerator accelerator{group, options};
    std::vector<float> value(4, 1.0F);
    GradientReducer& reducer = accelerator.prepare_model({{"w", std::span<float>{value}, {}}});
    Sgd sgd{reducer, {.learning_rate = 1}};
    const auto batch = [&](float gradient, double max_norm) {
      accelerator.zero_grad(sgd);
      const auto accumulating = accelerator.accumulate();
      accelerator.backward([&](double factor) {
        static_cast<float*>(reducer.gradient(0).data)[1] = static_cast<float>(factor) * gradient;
        reducer.ready(0);
      });
      const auto clipped = accelerator.clip_grad_norm(sgd, max_norm);
      return std::pair{clipped, accelerator.step(sgd)};
    };
    bool all = accelerator.backward_factor() == 65536;
    auto [clipped, stepped] = batch(4, 2);
    all &= stepped && clipped.norm == 4 && std::abs(value[1] + 1) < 1e-5;
    std::tie(clipped, stepped) = batch(group.rank() == 1 ? INFINITY : 0.0F, 2);
    all &= !stepped && !clipped.finite() && accelerator.optimizer_step_was_skipped();
    all &= std::abs(value[1] + 1) < 1e-5 && accelerator.backward_factor() == 32768;
    std::tie(clipped, stepped) = batch(1, 2);
    all &= stepped && !clipped.clipped && !accelerator.optimizer_step_was_skipped();
    right += all ? 1 : 0;
  });
  CHECK(right == 2);
}

TEST_CASE("after a step that the loop left out fp16's gradients were 65536 times too large",
          "[runtime][training]") {
  const int way = GENERATE(range(0, 5));
  const float left_out = GENERATE(4.0F, INFINITY);
  CAPTURE(way, left_out);
  std::vector<double> norms(2), scales(2);
  std::vector<float> values(2);
  std::atomic<int> stepped = 0;
  on_ranks(2, [&](ProcessGroup& group) {
    AcceleratorOptions options;
    options.mixed_precision = MixedPrecision::fp16;
    Accelerator accelerator{group, options};
    std::vector<float> value(4, 1.0F);
    GradientReducer& reducer = accelerator.prepare_model({{"w", std::span<float>{value}, {}}});
    Sgd sgd{reducer, {.learning_rate = 1}};
    const auto backward = [&](float gradient) {
      accelerator.backward([&](double factor) {
        static_cast<float*>(reducer.gradient(0).data)[1] = static_cast<float>(factor) * gradient;
        reducer.ready(0);
      });
    };
    backward(left_out);
    accelerator.clip_grad_norm(sgd, 100);
    if (way == 0) accelerator.zero_grad(sgd);
    if (way == 1) sgd.zero_grad();
    if (way == 2) reducer.zero_gradients();
    if (way == 3) accelerator.cancel_backward();
    backward(4);  // way 4: it overwrites the gradients
    const auto rank = static_cast<std::size_t>(group.rank());
    norms[rank] = accelerator.clip_grad_norm(sgd, 100).norm;
    accelerator.unscale_gradients(sgd);  // they are unscaled: without effect
    stepped += accelerator.step(sgd) ? 1 : 0;
    values[rank] = value[1];
    scales[rank] = accelerator.scaler().scale();
  });
  CHECK(norms == std::vector<double>(2, 4));
  CHECK(stepped == 2);
  CHECK(values == std::vector<float>(2, -3));
  CHECK(scales == std::vector<double>(2, 65536));
}

TEST_CASE("an optimizer without a reducer: zero_grad ends what clipping has unscaled",
          "[runtime][training]") {
  AcceleratorOptions options;
  options.mixed_precision = MixedPrecision::fp16;
  Accelerator accelerator{ProcessGroup::single(), options};
  std::vector<float> value(1), gradient(1);
  Sgd sgd{{{"w", std::span<float>{value}, std::span<float>{gradient}}}, {.learning_rate = 1}};
  gradient[0] = 4 * 65536;
  CHECK(accelerator.clip_grad_norm(sgd, 100).norm == 4);
  CHECK(accelerator.clip_grad_norm(sgd, 100).norm == 4);  // unscaled once
  accelerator.zero_grad(sgd);
  gradient[0] = 4 * 65536;
  CHECK(accelerator.clip_grad_norm(sgd, 100).norm == 4);
  // A step that waits for the scaler's update() isn't forgotten.
  CHECK(accelerator.scaler().step(sgd));
  accelerator.zero_grad(sgd);
  CHECK_NOTHROW(accelerator.scaler().update());
}

TEST_CASE("after clear() a model built anew inherited the old one's batches and unscaled gradients",
          "[runtime][training]") {
  AcceleratorOptions options;
  options.mixed_precision = MixedPrecision::fp16;
  options.gradient_accumulation_steps = 2;
  Accelerator accelerator{ProcessGroup::single(), options};
  std::vector<float> value(1);
  std::optional<Sgd> sgd;  // always at the same address
  std::vector<int> synced;
  std::vector<double> norms;
  for (int model = 0; model < 2; ++model) {
    GradientReducer& reducer = accelerator.prepare_model({{"w", std::span<float>{value}, {}}});
    sgd.emplace(reducer, SgdOptions{.learning_rate = 1});
    for (int batch = 0; batch < 3; ++batch) {
      const auto accumulating = accelerator.accumulate();
      synced.push_back(accelerator.sync_gradients() ? 1 : 0);
      accelerator.backward([&](double) {
        static_cast<float*>(reducer.gradient(0).data)[0] = 4 * 65536;
        reducer.ready(0);
      });
      if (accelerator.sync_gradients()) norms.push_back(accelerator.clip_grad_norm(*sgd, 100).norm);
    }
    sgd.reset();
    accelerator.clear();
  }
  CHECK(synced == std::vector<int>{0, 1, 0, 0, 1, 0});
  CHECK(norms == std::vector<double>{4, 4});
  CHECK(accelerator.sync_gradients());  // as before the first batch
}

TEST_CASE("a backward that reached no parameter is told by name", "[runtime][training]") {
  on_ranks(1, [&](ProcessGroup& group) {
    Accelerator accelerator{group};
    std::vector<float> value(4);
    accelerator.prepare_model({{"w", std::span<float>{value}, {}}});
    CHECK_THAT(refusal([&] { accelerator.backward([](double) {}); }), Catch::Contains("'w'"));
  });
}

TEST_CASE("of several models only those that took part are reduced", "[runtime][training]") {
  std::atomic<int> right = 0;
  on_ranks(2, [&](ProcessGroup& group) {
    Accelerator accelerator{group};
    std::vector<float> one(4), other(4);
    GradientReducer& first = accelerator.prepare_model({{"one", std::span<float>{one}, {}}});
    GradientReducer& second = accelerator.prepare_model({{"other", std::span<float>{other}, {}}});
    for (GradientReducer* reducer : {&first, &second}) {
      accelerator.backward([&](double) {
        static_cast<float*>(reducer->gradient(0).data)[0] = static_cast<float>(group.rank());
        reducer->ready(0);
      });
    }
    right += static_cast<float*>(second.gradient(0).data)[0] == 0.5F ? 1 : 0;
  });
  CHECK(right == 2);
}

TEST_CASE("seeds: the same numbers on all ranks, or on each its own", "[runtime][training]") {
  std::mutex mutex;
  std::vector<std::uint64_t> shared, own;
  on_ranks(3, [&](ProcessGroup& group) {
    Accelerator accelerator{group};
    accelerator.set_seed(42);
    const auto first = accelerator.generator()();
    accelerator.set_seed(42, true);
    const auto second = accelerator.generator()();
    const std::scoped_lock lock{mutex};
    shared.push_back(first);
    own.push_back(second);
    CHECK(second == Generator{42, static_cast<std::uint64_t>(group.rank()) + 1}());
  });
  CHECK(std::ranges::count(shared, Generator{42}()) == 3);
  std::ranges::sort(own);
  CHECK(std::ranges::adjacent_find(own) == own.end());
}

TEST_CASE("settings come from the variables that acc-launch sets", "[runtime][training]") {
  auto group = ProcessGroup{acc::testing::thread_groups(1)[0]};
  ::setenv("ACCELERATE_MIXED_PRECISION", "bf16", 1);
  ::setenv("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "4", 1);
  Accelerator accelerator{group};
  CHECK(accelerator.mixed_precision() == MixedPrecision::bf16);
  CHECK(accelerator.gradient_accumulation_steps() == 4);
  CHECK(accelerator.backward_factor() == 0.25);
  AcceleratorOptions said;
  said.mixed_precision = MixedPrecision::no;
  said.gradient_accumulation_steps = 0;
  CHECK_THROWS_WITH((Accelerator{group, said}),
                    Catch::Contains("gradient_accumulation_steps is 0"));
  said.gradient_accumulation_steps = 3;
  CHECK(Accelerator{group, said}.gradient_accumulation_steps() == 3);
  ::setenv("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "many", 1);
  CHECK_THAT(refusal([&] { Accelerator{group}; }), Catch::Contains("'many'"));
  ::unsetenv("ACCELERATE_GRADIENT_ACCUMULATION_STEPS");
  ::setenv("ACCELERATE_MIXED_PRECISION", "fp7", 1);
  CHECK_THAT(refusal([&] { Accelerator{group}; }), Catch::Contains("'fp7'"));
  ::unsetenv("ACCELERATE_MIXED_PRECISION");
}

namespace {

/// A loop with all that save_state keeps.
struct Loop {
  Accelerator accelerator;
  ToyNet net{3};
  GradientReducer& reducer;
  AdamW optimizer;
  acc::testing::Samples samples = acc::testing::random_samples(60, 7, 3, 77);
  DataLoader<std::int64_t> loader;
  std::vector<double> seen = std::vector<double>(1);  ///< registered as a tensor
  std::uint64_t drawn = 0;                            ///< registered as text of each rank
  int batches = 0;                                    ///< registered as text of all

  static AcceleratorOptions options(const std::filesystem::path& folder, int limit) {
    AcceleratorOptions made;
    made.mixed_precision = MixedPrecision::fp16;
    made.scaler.growth_interval = 3;
    made.scaler.initial_scale = 4;
    made.project = {
        .project_dir = folder, .automatic_checkpoint_naming = true, .total_limit = limit};
    return made;
  }
  Loop(ProcessGroup& group, const std::filesystem::path& folder, GradientMode mode, int limit = 0)
      : accelerator{group, options(folder, limit)},
        reducer{accelerator.prepare_model(
            net.parameters(), {.bucket_bytes = 500, .first_bucket_bytes = 100, .mode = mode})},
        optimizer{reducer, {.learning_rate = 0.01}},
        loader{accelerator.data_loader(
            numbers(60), {.batch_size = 12, .shuffle = true, .seed = 5, .split_batches = true})} {
    accelerator.prepare(optimizer);
    accelerator.prepare(loader);
    accelerator.set_seed(11, true);
    accelerator.register_for_checkpointing("seen", std::span<double>{seen});
    accelerator.register_for_checkpointing(
        "drawn", [this] { return std::to_string(drawn); },
        [this](std::string_view text) { drawn = std::stoull(std::string{text}); },
        Accelerator::Owner::each_rank);
    accelerator.register_for_checkpointing(
        "batches", [this] { return std::to_string(batches); },
        [this](std::string_view text) { batches = std::stoi(std::string{text}); });
  }

  /// Until so many batches are done in all; saves after each of `save_after`.
  void run(int until, const std::vector<int>& save_after = {}) {
    while (batches < until) {
      for (const auto& batch : loader) {
        const auto accumulating = accelerator.accumulate();
        accelerator.zero_grad(optimizer);
        accelerator.backward([&](double factor) {
          acc::testing::Samples these;
          for (const auto index : batch) {
            these.inputs.push_back(samples.inputs[static_cast<std::size_t>(index)]);
            these.targets.push_back(samples.targets[static_cast<std::size_t>(index)]);
          }
          net.backward(
              these, 0, batch.size(),
              [&](std::size_t at) { return static_cast<float*>(reducer.gradient(at).data); },
              [&](std::size_t at) {
                const std::span<float> gradient{static_cast<float*>(reducer.gradient(at).data),
                                                reducer.gradient(at).count()};
                for (float& g : gradient) g *= static_cast<float>(factor);
                reducer.ready(at);
              });
        });
        accelerator.step(optimizer);
        drawn = accelerator.generator()();
        seen[0] += 1;
        ++batches;
        if (std::ranges::find(save_after, batches) != save_after.end()) accelerator.save_state();
        if (batches == until) return;
      }
    }
  }
};

}  // namespace

SCENARIO("a run that goes on from a checkpoint is the run that was never stopped",
         "[runtime][training]") {
  for (const auto mode : {GradientMode::all_reduce, GradientMode::reduce_scatter}) {
    Folder folder;
    std::mutex mutex;
    std::vector<std::vector<float>> undisturbed, resumed;
    std::vector<std::uint64_t> drawn, drawn_again;
    on_ranks(2, [&](ProcessGroup& group) {
      Loop loop{group, folder.path(), mode};
      loop.run(13, {4, 8});  // 8 lies in the middle of the second epoch
      const std::scoped_lock lock{mutex};
      undisturbed.push_back(loop.net.all_values());
      drawn.push_back(loop.drawn);
    });
    on_ranks(2, [&](ProcessGroup& group) {
      Loop loop{group, folder.path(), mode};
      const auto from = loop.accelerator.load_state();
      const bool right = from.filename() == "checkpoint_1" && loop.batches == 8 &&
                         loop.seen[0] == 8 && loop.optimizer.steps() == 8 &&
                         loop.accelerator.save_iteration() == 2;
      loop.run(13);
      const std::scoped_lock lock{mutex};
      CHECK(right);
      CHECK(loop.accelerator.scaler().scale() == 64);  // 13 good steps are four times three and one
      resumed.push_back(loop.net.all_values());
      drawn_again.push_back(loop.drawn);
    });
    for (const auto& values : resumed) CHECK(values == undisturbed[0]);
    std::ranges::sort(drawn);
    std::ranges::sort(drawn_again);
    CHECK(drawn == drawn_again);
    CHECK(drawn[0] != drawn[1]);
  }
}

SCENARIO("a checkpoint is loaded by another number of ranks", "[runtime][training]") {
  Folder folder;
  std::mutex mutex;
  std::vector<float> expected;
  on_ranks(4, [&](ProcessGroup& group) {
    Loop loop{group, folder.path(), GradientMode::reduce_scatter};
    loop.run(12, {7});
    const std::scoped_lock lock{mutex};
    expected = loop.net.all_values();
  });
  for (const int ranks : {1, 3, 6}) {
    for (const auto mode : {GradientMode::reduce_scatter, GradientMode::all_reduce}) {
      on_ranks(ranks, [&](ProcessGroup& group) {
        Loop loop{group, folder.path(), mode};
        loop.accelerator.load_state();
        loop.run(12);
        const std::scoped_lock lock{mutex};
        const auto values = loop.net.all_values();
        // Other ranks, another order of sums; the same batches.
        for (std::size_t i = 0; i < values.size(); ++i)
          REQUIRE(values[i] == Approx(expected[i]).margin(2e-4));
      });
    }
  }
}

TEST_CASE("checkpoints are numbered, and the oldest go", "[runtime][training]") {
  Folder folder;
  std::atomic<int> right = 0;
  on_ranks(2, [&](ProcessGroup& group) {
    Loop loop{group, folder.path(), GradientMode::all_reduce, 2};
    const bool none = loop.accelerator.load_state().empty();
    loop.run(5, {1, 2, 3, 4, 5});
    loop.accelerator.wait_for_everyone();
    right += none && loop.accelerator.save_iteration() == 5 ? 1 : 0;
  });
  CHECK(right == 2);
  CHECK(list_checkpoints(folder.path() / "checkpoints") == std::vector<std::uint64_t>{4, 3});
}

TEST_CASE("a run that begins anew doesn't replace another one's checkpoints",
          "[runtime][training]") {
  Folder folder;
  std::atomic<int> refused = 0, gone_on = 0;
  for (const bool loads : {false, false, true}) {
    on_ranks(2, [&](ProcessGroup& group) {
      Loop loop{group, folder.path(), GradientMode::all_reduce};
      if (loads) loop.accelerator.load_state();
      const std::string why = refusal([&] { loop.run(loop.batches + 2, {1, 2, 3}); });
      refused +=
          why.find("holds checkpoints of another run, up to checkpoint_1") != std::string::npos ? 1
                                                                                                : 0;
      gone_on += loads && why.empty() ? 1 : 0;
    });
  }
  CHECK(refused == 2);
  CHECK(gone_on == 2);
  CHECK(list_checkpoints(folder.path() / "checkpoints") == std::vector<std::uint64_t>{2, 1, 0});
}

TEST_CASE("without automatic naming a path is needed, and taken", "[runtime][training]") {
  Folder folder;
  std::atomic<int> right = 0;
  on_ranks(2, [&](ProcessGroup& group) {
    Accelerator accelerator{group};
    std::vector<float> value(3, static_cast<float>(group.rank() + 1));
    accelerator.register_for_checkpointing("piece", std::span<float>{value}, Placement::sharded);
    bool all = refusal([&] { accelerator.save_state(); }).find("path") != std::string::npos;
    const auto path = folder.path() / "best";
    all &= accelerator.save_state(path) == path;
    value.assign(3, 0);
    all &= accelerator.load_state(path) == path;
    all &= value == std::vector<float>(3, static_cast<float>(group.rank() + 1));
    right += all ? 1 : 0;
  });
  CHECK(right == 2);
}

TEST_CASE("what is missing in a checkpoint is told by name", "[runtime][training]") {
  Folder folder;
  auto group = ProcessGroup{acc::testing::thread_groups(1)[0]};
  const auto path = folder.path() / "one";
  Accelerator{group}.save_state(path);
  Accelerator other{group};
  other.register_for_checkpointing(
      "best_loss", [] { return std::string{}; }, [](std::string_view) {});
  CHECK_THAT(refusal([&] { other.load_state(path); }), Catch::Contains("best_loss"));
  CHECK_THAT(refusal([&] {
               other.register_for_checkpointing(
                   "best_loss", [] { return std::string{}; }, [](std::string_view) {});
             }),
             Catch::Contains("already"));
}

TEST_CASE("project folders", "[runtime][training]") {
  auto group = ProcessGroup{acc::testing::thread_groups(1)[0]};
  AcceleratorOptions options;
  options.project.project_dir = "/p";
  CHECK(Accelerator{group, options}.logging_dir() == "/p");
  options.project.logging_dir = "/logs";
  const Accelerator accelerator{group, options};
  CHECK(accelerator.logging_dir() == "/logs");
  CHECK(accelerator.project_dir() == "/p");
}

TEST_CASE("ranks that would take samples twice or not at all are told when the loader is prepared",
          "[runtime][training]") {
  const auto told = [](auto options_of, std::size_t size_on_1) {
    std::vector<std::string> what(3);
    on_ranks(3, [&](ProcessGroup& group) {
      Accelerator accelerator{group};
      const bool odd = group.rank() == 1;
      auto loader = accelerator.data_loader(numbers(odd ? size_on_1 : 60), options_of(odd));
      what[static_cast<std::size_t>(group.rank())] = refusal([&] { accelerator.prepare(loader); });
      group.barrier();  // nothing is broken
    });
    CHECK(what[0] == what[1]);
    CHECK(what[0] == what[2]);
    return what[0];
  };
  const auto same = [](bool) { return LoaderOptions{.batch_size = 4, .shuffle = true, .seed = 7}; };
  CHECK(told(same, 60).empty());
  CHECK(told(same, 50) ==
        "loader: the ranks have different loaders: rank 0 has 60 samples in batches of 4, shuffled "
        "by seed 7, rank 1 has 50 samples in batches of 4, shuffled by seed 7");
  const auto seeds = [](bool odd) {
    return LoaderOptions{.batch_size = 4, .shuffle = true, .seed = odd ? 8U : 7U};
  };
  CHECK(told(seeds, 60).find("seed 8") != std::string::npos);
  const auto sizes = [](bool odd) { return LoaderOptions{.batch_size = odd ? 5U : 4U}; };
  CHECK(told(sizes, 60).find("batches of 5") != std::string::npos);
  const auto dispatched = [](bool) {
    return LoaderOptions{.batch_size = 4, .dispatch_batches = true};
  };
  CHECK(told(dispatched, 0).empty());  // rank 0 has them
}

TEST_CASE("a loader of the user's own ends a step with its last batch once it is prepared",
          "[runtime][training]") {
  AcceleratorOptions options;
  options.gradient_accumulation_steps = 2;
  Accelerator accelerator{ProcessGroup::single(), options};
  Dataset<int> dataset{3, [](std::size_t index) { return static_cast<int>(index); }};
  SampleLoader<int> loader{dataset, LoaderOptions{}};
  accelerator.prepare(loader);
  std::vector<bool> steps;
  for ([[maybe_unused]] auto& batch : loader) {
    const auto accumulating = accelerator.accumulate();
    steps.push_back(accelerator.sync_gradients());
  }
  CHECK(steps == std::vector<bool>{false, true, true});
}

TEST_CASE("healthy ranks crashed where the main process alone had gathered an object before",
          "[runtime][training]") {
  const int call = GENERATE(0, 1, 2);
  const Folder folder;
  std::mutex mutex;
  std::vector<std::string> told(3);
  on_ranks(3, [&](ProcessGroup& group) {
    Accelerator accelerator{group};
    std::vector<float> value(2);
    const std::vector<std::string> names{"a"};
    const auto why = refusal([&] {
      if (accelerator.is_main_process() && call == 0) (void)group.all_gather_object("host");
      if (accelerator.is_main_process() && call == 1) accelerator.save_state(folder.path() / "one");
      if (accelerator.is_main_process() && call == 2) (void)accelerator.gather_object(names);
      accelerator.prepare_model({{"w", std::span<float>{value}, {}}});
    });
    const std::scoped_lock lock{mutex};
    told[static_cast<std::size_t>(group.rank())] = why;
  });
  for (const auto& one : told) {
    CHECK_THAT(one, Catch::Contains("called different things: rank 0: all_gather u64 x1"));
    CHECK_THAT(one, Catch::Contains("(in prepare_model)"));
  }
}
