#include "common/unique_fd.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/thread_groups.hpp"

#include <catch2/catch.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <acc/accelerator.hpp>
#include <acc/error.hpp>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

/// What a checkpoint of an Accelerator means: to the run that goes on from it, and to others.
using namespace acc::runtime;
using acc::testing::on_ranks;
using acc::testing::TestFolder;

namespace fs = std::filesystem;

namespace {

template <class Work>
std::string refusal(const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    return std::string{to_string(error.code())} + ": " + error.what();
  }
  return {};
}

AcceleratorOptions in_folder(const fs::path& folder, int limit = 0) {
  AcceleratorOptions options;
  options.project = {
      .project_dir = folder, .automatic_checkpoint_naming = true, .total_limit = limit};
  return options;
}

/// A line through points, whose gradients no order of sums gives twice the same bits.
struct AccumulatingLoop {
  Accelerator accelerator;
  std::vector<float> line{0.3F, -0.7F}, spare{1};
  GradientReducer& reducer;
  Sgd optimizer;
  DataLoader<int> loader;
  int batches = 0;

  static AcceleratorOptions options(const fs::path& folder, std::uint64_t accumulation, bool each) {
    AcceleratorOptions made = in_folder(folder);
    made.gradient_accumulation_steps = accumulation;
    made.sync_each_batch = each;
    return made;
  }
  AccumulatingLoop(ProcessGroup& group, const fs::path& folder, std::uint64_t accumulation,
                   GradientMode mode, bool each)
      : accelerator{group, options(folder, accumulation, each)},
        reducer{accelerator.prepare_model(
            {{"line", std::span<float>{line}, {}}, {"spare", std::span<float>{spare}, {}}},
            {.mode = mode, .find_unused_parameters = true})},
        optimizer{reducer, {.learning_rate = 0.05, .momentum = 0.9}},
        loader{accelerator.data_loader(
            Dataset<int>{48, [](std::size_t index) { return static_cast<int>(index); }},
            {.batch_size = 12 / static_cast<std::size_t>(group.size()), .shuffle = true})} {
    accelerator.prepare(optimizer);
    accelerator.prepare(loader);
  }

  /// Until so many batches are done in all; saves after `save_after`.
  void run(int until, int save_after = -1) {
    while (batches < until) {
      for (const auto& batch : loader) {
        const auto accumulating = accelerator.accumulate();
        accelerator.backward([&](double factor) {
          auto* gradient = static_cast<float*>(reducer.gradient(0).data);
          const float scale = static_cast<float>(factor) / static_cast<float>(batch.size());
          for (const int i : batch) {
            const float x = 0.1F * static_cast<float>(i % 7) - 0.3F;
            const float error = line[0] * x + line[1] - (3 * x - 2 + 0.01F * static_cast<float>(i));
            gradient[0] += scale * error * x;
            gradient[1] += scale * error;
          }
          // Used in the first batches of a step only: that it was is a part of the state, too.
          if (!accelerator.sync_gradients()) {
            static_cast<float*>(reducer.gradient(1).data)[0] += static_cast<float>(factor) * 0.3F;
            reducer.ready(1);
          }
          reducer.ready(0);
        });
        accelerator.step(optimizer);
        accelerator.zero_grad(optimizer);
        ++batches;
        if (batches == save_after) accelerator.save_state();
        if (batches == until) return;
      }
    }
  }
  [[nodiscard]] std::vector<float> values() const { return {line[0], line[1], spare[0]}; }
};

}  // namespace

SCENARIO("a run that was saved in the middle of an accumulated step goes on with the same bits",
         "[runtime][training]") {
  const auto mode = GENERATE(GradientMode::all_reduce, GradientMode::reduce_scatter);
  const auto saved_after = GENERATE(1, 4, 5, 6, 8);  // a step is three batches, an epoch four
  const auto zeros_first = GENERATE(false, true);
  const TestFolder folder;
  std::vector<float> undisturbed, resumed(3);
  on_ranks(2, [&](ProcessGroup& group) {
    AccumulatingLoop loop{group, folder.path(), 3, mode, false};
    loop.run(14, saved_after);
    if (group.rank() == 0) undisturbed = loop.values();
  });
  on_ranks(2, [&](ProcessGroup& group) {
    AccumulatingLoop loop{group, folder.path(), 3, mode, false};
    loop.accelerator.load_state();
    if (zeros_first) loop.optimizer.zero_grad();  // as many programs begin
    loop.batches = saved_after;
    loop.run(14);
    if (group.rank() == 0) resumed = loop.values();
  });
  CHECK(resumed == undisturbed);
}

TEST_CASE("another number of ranks goes on with the mean of what was accumulated",
          "[runtime][training]") {
  const TestFolder folder;
  std::vector<float> undisturbed;
  on_ranks(4, [&](ProcessGroup& group) {
    AccumulatingLoop loop{group, folder.path(), 3, GradientMode::all_reduce, false};
    loop.run(14, 5);
    if (group.rank() == 0) undisturbed = loop.values();
  });
  for (const int ranks : {1, 2, 6}) {
    on_ranks(ranks, [&](ProcessGroup& group) {
      AccumulatingLoop loop{group, folder.path(), 3, GradientMode::all_reduce, false};
      loop.accelerator.load_state();
      loop.batches = 5;
      loop.run(14);
      for (std::size_t i = 0; i < 3; ++i)
        if (std::abs(loop.values()[i] - undisturbed[i]) > 1e-5F)
          throw std::runtime_error{"other weights"};
    });
  }
}

TEST_CASE("the mean of what was accumulated has no gradient that a step has applied",
          "[runtime][training]") {
  const TestFolder folder;
  const auto run = [&](ProcessGroup& group, const auto& work) {
    auto options = in_folder(folder.path());
    options.gradient_accumulation_steps = 2;
    Accelerator accelerator{group, options};
    std::vector<float> w{1}, z{1};
    GradientReducer& reducer =
        accelerator.prepare_model({{"w", std::span<float>{w}, {}}, {"z", std::span<float>{z}, {}}},
                                  {.find_unused_parameters = true});
    Sgd sgd{reducer, {.learning_rate = 1}};
    accelerator.prepare(sgd);
    work(accelerator, reducer, sgd);
  };
  on_ranks(2, [&](ProcessGroup& group) {
    run(group, [&](Accelerator& accelerator, GradientReducer& reducer, Sgd& sgd) {
      for (int batch = 0; batch < 3; ++batch) {
        const auto accumulating = accelerator.accumulate();
        accelerator.backward([&](double) {
          for (const std::size_t i : {0U, 1U}) {
            if (i == 1 && batch == 2 && group.rank() == 1) continue;
            static_cast<float*>(reducer.gradient(i).data)[0] = 6;  // no zero_grad()
            reducer.ready(i);
          }
        });
        accelerator.step(sgd);
      }
      accelerator.save_state();
    });
  });
  on_ranks(1, [&](ProcessGroup& group) {
    run(group, [&](Accelerator& accelerator, GradientReducer& reducer, Sgd&) {
      accelerator.load_state();
      CHECK(static_cast<float*>(reducer.gradient(0).data)[0] == 6);
      CHECK(static_cast<float*>(reducer.gradient(1).data)[0] == 3);
    });
  });
}

TEST_CASE("where gradients are exchanged in each batch the sum of means is the same",
          "[runtime][training]") {
  const auto mode = GENERATE(GradientMode::all_reduce, GradientMode::reduce_scatter);
  const auto saved_after = GENERATE(4, 5);
  std::vector<float> kept, each, resumed;
  const TestFolder folder;
  on_ranks(2, [&](ProcessGroup& group) {
    AccumulatingLoop loop{group, folder / "a", 3, mode, false};
    loop.run(14);
    AccumulatingLoop other{group, folder / "b", 3, mode, true};
    other.run(14, saved_after);
    if (group.rank() == 0) kept = loop.values();
    if (group.rank() == 0) each = other.values();
  });
  on_ranks(2, [&](ProcessGroup& group) {
    AccumulatingLoop loop{group, folder / "b", 3, mode, true};
    loop.accelerator.load_state();
    loop.batches = saved_after;
    loop.run(14);
    if (group.rank() == 0) resumed = loop.values();
  });
  for (std::size_t i = 0; i < 3; ++i) CHECK(each[i] == Approx(kept[i]).epsilon(1e-4));
  CHECK(resumed == each);
}

TEST_CASE("gradients of a step of another length are left out, and the step begins anew",
          "[runtime][training]") {
  const TestFolder folder;
  on_ranks(2, [&](ProcessGroup& group) {
    AccumulatingLoop loop{group, folder.path(), 3, GradientMode::all_reduce, false};
    loop.run(2, 2);
  });
  on_ranks(2, [&](ProcessGroup& group) {
    AccumulatingLoop loop{group, folder.path(), 2, GradientMode::all_reduce, false};
    loop.accelerator.load_state();
    if (static_cast<float*>(loop.reducer.gradient(0).data)[0] != 0)
      throw std::runtime_error{"a gradient of the old step"};
    loop.batches = 2;
    loop.run(3);
    if (loop.accelerator.sync_gradients()) throw std::runtime_error{"half a step"};
  });
}

TEST_CASE("saved between two steps and resumed with longer ones, a run began with a short step",
          "[runtime][training]") {
  const TestFolder folder;
  auto group = ProcessGroup::single();
  {
    AccumulatingLoop loop{group, folder.path(), 2, GradientMode::all_reduce, false};
    loop.run(2, 2);
  }
  AccumulatingLoop loop{group, folder.path(), 3, GradientMode::all_reduce, false};
  loop.accelerator.load_state();
  CHECK(loop.accelerator.sync_gradients());  // between two steps still
  loop.batches = 2;
  loop.run(3);
  CHECK_FALSE(loop.accelerator.sync_gradients());  // the first of three
}

TEST_CASE("going back to an older state in the middle of a step takes its gradients away",
          "[runtime][training]") {
  const TestFolder folder;
  auto group = ProcessGroup::single();
  AccumulatingLoop loop{group, folder.path(), 3, GradientMode::all_reduce, false};
  loop.run(3, 3);
  loop.run(4);
  REQUIRE(static_cast<float*>(loop.reducer.gradient(0).data)[0] != 0);
  loop.accelerator.load_state();
  CHECK(static_cast<float*>(loop.reducer.gradient(0).data)[0] == 0);
  CHECK_FALSE(loop.reducer.accumulating());
}

namespace {

/// A model with an optimizer that has a state.
struct Small {
  Accelerator accelerator;
  std::vector<float> w{1, 2};
  GradientReducer& reducer;
  AdamW optimizer;
  explicit Small(ProcessGroup group, AcceleratorOptions options = {})
      : accelerator{std::move(group), std::move(options)},
        reducer{accelerator.prepare_model({{"w", std::span<float>{w}, {}}})},
        optimizer{reducer, {.learning_rate = 0.1}} {}
};

}  // namespace

TEST_CASE("state in a checkpoint that nothing takes is an error, unless it is meant",
          "[runtime][training]") {
  const TestFolder folder;
  const auto path = folder / "one";
  {
    Small run{ProcessGroup::single()};
    auto loader = run.accelerator.data_loader(
        Dataset<int>{4, [](std::size_t index) { return static_cast<int>(index); }}, {});
    run.accelerator.prepare(run.optimizer);
    run.accelerator.prepare(loader);
    LambdaScheduler scheduler{run.optimizer, linear_with_warmup(1, 10)};
    run.accelerator.prepare(scheduler);
    run.accelerator.register_for_checkpointing(
        "best", [] { return std::string{"1"}; }, [](std::string_view) {});
    run.w = {5, 6};
    run.accelerator.save_state(path);
  }
  Small late{ProcessGroup::single()};  // load_state() before prepare()
  const std::string why = refusal([&] { late.accelerator.load_state(path); });
  CHECK_THAT(why, Catch::Contains("invalid_argument") && Catch::Contains("optimizer (exp_avg/w)") &&
                      Catch::Contains("loader") && Catch::Contains("scheduler") &&
                      Catch::Contains("registered/best") && Catch::Contains("allow_unused"));
  CHECK(late.w == std::vector<float>{1, 2});  // nothing was changed
  late.accelerator.load_state(path, {.allow_unused = true});
  CHECK(late.w == std::vector<float>{5, 6});

  Accelerator nothing{ProcessGroup::single()};
  CHECK_THAT(refusal([&] { nothing.load_state(path); }), Catch::Contains("model (w)"));
}

TEST_CASE("what a registered function throws on one rank is thrown on all, and the next save works",
          "[runtime][training]") {
  const TestFolder folder;
  std::vector<std::string> saved(3), loaded(3);
  on_ranks(3, [&](ProcessGroup& group) {
    Small run{group};
    const auto rank = static_cast<std::size_t>(group.rank());
    bool fails = true;
    const auto fail = [&] {
      if (fails && group.rank() == 1) throw std::runtime_error{"no best loss yet"};
    };
    run.accelerator.register_for_checkpointing(
        "best",
        [&] {
          fail();
          return std::string{"x"};
        },
        [&](std::string_view) { fail(); }, Accelerator::Owner::each_rank);
    const auto words = [&](const auto& work) -> std::string {
      try {
        work();
      } catch (const Error& error) {
        return error.what();
      } catch (const std::runtime_error& error) {
        return std::string{"its own: "} + error.what();
      }
      return {};
    };
    saved[rank] = words([&] { run.accelerator.save_state(folder / "one"); });
    group.barrier();
    fails = false;
    run.accelerator.save_state(folder / "one");
    fails = true;
    loaded[rank] = words([&] { run.accelerator.load_state(folder / "one"); });
    group.barrier();
  });
  for (const auto& told : {saved, loaded}) {
    CHECK(told[1] == "its own: no best loss yet");
    CHECK_THAT(told[0], Catch::Contains("rank 1: ") && Catch::Contains("no best loss yet"));
    CHECK(told[2] == told[0]);
  }
}

TEST_CASE("what a registered function gives must be UTF-8, or all ranks learn which one isn't",
          "[runtime][training]") {
  const TestFolder folder;
  std::vector<std::string> saved(2);
  on_ranks(2, [&](ProcessGroup& group) {
    Small run{group};
    run.accelerator.register_for_checkpointing(
        "log", [&] { return std::string{group.rank() == 1 ? "\xff" : "x"}; },
        [](std::string_view) {}, Accelerator::Owner::each_rank);
    saved[static_cast<std::size_t>(group.rank())] =
        refusal([&] { run.accelerator.save_state(folder / "one"); });
  });
  for (const auto& told : saved)
    CHECK_THAT(told, Catch::Contains("invalid_argument") && Catch::Contains("'log'") &&
                         Catch::Contains("isn't UTF-8"));
}

TEST_CASE("a name is registered once, as a tensor or as text", "[runtime][training]") {
  Accelerator accelerator{ProcessGroup::single()};
  std::vector<float> x(2);
  const auto text = [&] {
    accelerator.register_for_checkpointing(
        "x", [] { return std::string{}; }, [](std::string_view) {});
  };
  const auto tensor = [&] {
    accelerator.register_for_checkpointing("x", TensorView{std::span{x}});
  };
  tensor();
  CHECK_THAT(refusal(tensor), Catch::Contains("'x' is registered already"));
  CHECK_THAT(refusal(text), Catch::Contains("'x' is registered already"));
}

TEST_CASE("a run that didn't load is refused at its first save in another run's folder",
          "[runtime][training]") {
  const TestFolder folder;
  const auto names = [&] { return list_checkpoints(folder / "checkpoints"); };
  {
    Small run{ProcessGroup::single(), in_folder(folder.path(), 2)};
    for (int i = 0; i < 3; ++i) run.accelerator.save_state();
  }
  REQUIRE(names() == std::vector<std::uint64_t>{2, 1});
  {
    Small other{ProcessGroup::single(), in_folder(folder.path(), 2)};
    for (int i = 0; i < 2; ++i)
      CHECK_THAT(refusal([&] { other.accelerator.save_state(); }),
                 Catch::Contains("another run, up to checkpoint_2") &&
                     Catch::Contains("load_state() first"));
    CHECK(names() == std::vector<std::uint64_t>{2, 1});
    other.accelerator.load_state();
    CHECK(other.accelerator.save_state().filename() == "checkpoint_3");
    CHECK(names() == std::vector<std::uint64_t>{3, 2});
  }
  Small elsewhere{ProcessGroup::single(), in_folder(folder.path(), 1)};
  fs::copy(folder / "checkpoints" / "checkpoint_2", folder / "kept", fs::copy_options::recursive);
  elsewhere.accelerator.load_state(folder / "kept");  // of a folder that isn't the run's
  CHECK(elsewhere.accelerator.save_state().filename() == "checkpoint_4");
  CHECK(names() == std::vector<std::uint64_t>{4, 3, 2});
}

TEST_CASE("a stray checkpoint_18446744073709551615 doesn't send saves back to checkpoint_0",
          "[runtime][training]") {
  const TestFolder folder;
  const auto checkpoints = folder / "checkpoints";
  const auto names = [&] { return list_checkpoints(checkpoints); };
  {
    Small run{ProcessGroup::single(), in_folder(folder.path())};
    for (int i = 0; i < 3; ++i) run.accelerator.save_state();
  }
  SECTION("which isn't counted") {
    fs::create_directory(checkpoints / "checkpoint_18446744073709551615");
    fs::create_directory(checkpoints / "checkpoint_9223372036854775808");
    Small run{ProcessGroup::single(), in_folder(folder.path())};
    CHECK(run.accelerator.load_state().filename() == "checkpoint_2");
    CHECK(run.accelerator.save_state().filename() == "checkpoint_3");
    CHECK(names() == std::vector<std::uint64_t>{3, 2, 1, 0});
    CHECK(fs::exists(checkpoints / "checkpoint_18446744073709551615"));
  }
  SECTION("nor does the last number, which is counted: the save is refused") {
    fs::create_directory(checkpoints / "checkpoint_9223372036854775807");
    Small run{ProcessGroup::single(), in_folder(folder.path())};
    CHECK(run.accelerator.load_state().filename() == "checkpoint_2");
    for (int i = 0; i < 2; ++i)
      CHECK_THAT(refusal([&] { run.accelerator.save_state(); }),
                 Catch::StartsWith("invalid_argument: checkpoint_9223372036854775808") &&
                     Catch::Contains("rename or remove it"));
    CHECK(names() == std::vector<std::uint64_t>{kMaxCheckpointNumber, 2, 1, 0});
  }
}

TEST_CASE("the number of a checkpoint that was passed over is never used again",
          "[runtime][training]") {
  const TestFolder folder;
  const auto checkpoints = folder / "checkpoints";
  {
    Small run{ProcessGroup::single(), in_folder(folder.path())};
    for (int i = 0; i < 3; ++i) run.accelerator.save_state();
  }
  fs::remove(checkpoints / "checkpoint_2" / "model.safetensors");
  {
    Small run{ProcessGroup::single(), in_folder(folder.path())};
    CHECK(run.accelerator.load_state().filename() == "checkpoint_1");
    CHECK(run.accelerator.save_iteration() == 3);
    CHECK(run.accelerator.save_state().filename() == "checkpoint_3");
  }
  CHECK(fs::exists(checkpoints / "checkpoint_2" / "manifest.json"));
  Small back{ProcessGroup::single(), in_folder(folder.path())};
  back.accelerator.load_state(checkpoints / "checkpoint_0");  // what came after is another story
  CHECK(back.accelerator.save_state().filename() == "checkpoint_4");
}

TEST_CASE("ranks that save to different paths are told so", "[runtime][training]") {
  const TestFolder folder;
  std::vector<std::string> told(2);
  on_ranks(2, [&](ProcessGroup& group) {
    Small run{group};
    const auto rank = static_cast<std::size_t>(group.rank());
    told[rank] =
        refusal([&] { run.accelerator.save_state(folder / ("y" + std::to_string(rank))); });
  });
  CHECK_THAT(told[1],
             Catch::Contains("different paths") && Catch::Contains("y0") && Catch::Contains("y1"));
  CHECK(told[0] == told[1]);
  CHECK(fs::is_empty(folder.path()));
}

TEST_CASE("what only some ranks registered is found by save_state, not by load_state after a crash",
          "[runtime][training]") {
  const TestFolder folder;
  std::mutex lock;
  std::vector<std::string> said;
  std::string expected;
  const auto on_three = [&](auto registering, bool must) {
    said.clear();
    on_ranks(3, [&](ProcessGroup& group) {
      Accelerator accelerator{group, in_folder(folder.path())};
      std::vector<float> values(4 + (group.rank() == 1 ? 1 : 0));
      registering(accelerator, group.rank(), values);
      const auto why = refusal([&] { accelerator.save_state(); });
      accelerator.wait_for_everyone();  // the group is as good as before
      const std::lock_guard guard{lock};
      said.push_back(why);
    });
    CHECK(said ==
          std::vector<std::string>(
              3,
              must ? "mismatch: save_state: the ranks have registered different things: " + expected
                   : ""));
    CHECK(fs::exists(folder.path() / "checkpoints" / "checkpoint_0") == !must);
  };
  SECTION("another name") {
    expected = "rank 0 has 'y' (f32 [4]), rank 1 has 'x' (f32 [5])";
    on_three(
        [](Accelerator& accelerator, int rank, std::vector<float>& values) {
          accelerator.register_for_checkpointing(
              "both", [] { return std::string{"[]"}; }, [](auto) {});
          accelerator.register_for_checkpointing(rank == 1 ? "x" : "y", std::span<float>{values});
        },
        true);
  }
  SECTION("another shape") {
    expected = "rank 0 has 'x' (f32 [4]), rank 1 has 'x' (f32 [5])";
    on_three(
        [](Accelerator& accelerator, int, std::vector<float>& values) {
          accelerator.register_for_checkpointing("x", std::span<float>{values});
        },
        true);
  }
  SECTION("a text on some ranks") {
    expected = "rank 0 has nothing more, rank 2 has 'epoch' (text)";
    on_three(
        [](Accelerator& accelerator, int rank, std::vector<float>&) {
          if (rank == 2)
            accelerator.register_for_checkpointing(
                "epoch", [] { return std::string{"1"}; }, [](auto) {});
        },
        true);
  }
  SECTION("pieces of a tensor, and a text of one rank's own") {
    on_three(
        [](Accelerator& accelerator, int rank, std::vector<float>& values) {
          accelerator.register_for_checkpointing("x", std::span<float>{values}, Placement::sharded);
          if (rank == 2)
            accelerator.register_for_checkpointing(
                "mine", [] { return std::string{"1"}; }, [](auto) {},
                Accelerator::Owner::each_rank);
        },
        false);
  }
}

TEST_CASE("a model that is built anew in a loop isn't saved through views of the old one",
          "[runtime][training]") {
  Accelerator accelerator{ProcessGroup::single()};
  std::vector<float> w(3);
  GradientReducer& reducer = accelerator.prepare_model({{"w", std::span<float>{w}, {}}});
  Sgd optimizer{reducer, {}};
  accelerator.prepare(optimizer);
  CHECK_THAT(refusal([&] { accelerator.prepare(optimizer); }), Catch::Contains("prepared already"));
  CHECK_THAT(refusal([&] {
               accelerator.prepare_model({{"v", std::span<float>{w}, {}}});
             }),
             Catch::Contains("'v' lies where 'w'") && Catch::Contains("clear()"));
  accelerator.clear();
  GradientReducer& again = accelerator.prepare_model({{"v", std::span<float>{w}, {}}});
  Sgd other{again, {}};
  accelerator.prepare(other);
  const TestFolder folder;
  accelerator.save_state(folder / "one");
  CHECK(Checkpoint{folder / "one"}.find("model", "v") != nullptr);
  CHECK(Checkpoint{folder / "one"}.find("model", "w") == nullptr);
}

TEST_CASE("a scheduler's state is a part of save_state", "[runtime][training]") {
  const TestFolder folder;
  std::vector<double> rates;
  {
    Small run{ProcessGroup::single(), in_folder(folder.path())};
    run.accelerator.prepare(run.optimizer);
    OneCycleScheduler scheduler{run.optimizer, {.max_rate = 0.1, .total_steps = 10}};
    run.accelerator.prepare(scheduler);
    for (int i = 0; i < 9; ++i) {
      run.accelerator.backward([&](double) { run.reducer.ready(0); });
      run.accelerator.step(run.optimizer);
      run.accelerator.step(scheduler);
      if (i == 3) run.accelerator.save_state();
      if (i >= 3) rates.push_back(run.optimizer.learning_rate());
      if (i >= 3) rates.push_back(run.optimizer.groups()[0].momentum);
    }
  }
  Small run{ProcessGroup::single(), in_folder(folder.path())};
  run.accelerator.prepare(run.optimizer);
  OneCycleScheduler scheduler{run.optimizer, {.max_rate = 0.1, .total_steps = 10}};
  run.accelerator.prepare(scheduler);
  run.accelerator.load_state();
  std::vector<double> again{run.optimizer.learning_rate(), run.optimizer.groups()[0].momentum};
  for (int i = 4; i < 9; ++i) {
    run.accelerator.backward([&](double) { run.reducer.ready(0); });
    run.accelerator.step(run.optimizer);
    run.accelerator.step(scheduler);
    again.push_back(run.optimizer.learning_rate());
    again.push_back(run.optimizer.groups()[0].momentum);
  }
  CHECK(again == rates);
}

// ---- two runs in one folder ----

namespace {

/// A run whose state is one number, `ranks` of it in one folder.
struct NumberRun {
  std::vector<float> value;
  Accelerator accelerator;
  NumberRun(ProcessGroup& group, const fs::path& folder, float number, int limit = 0)
      : value(3, number), accelerator{group, in_folder(folder, limit)} {
    accelerator.register_for_checkpointing("value", std::span<float>{value});
  }
};

float saved_in(ProcessGroup& group, const fs::path& folder, std::uint64_t number) {
  NumberRun reader{group, folder, -1};
  reader.accelerator.load_state(folder / "checkpoints" / checkpoint_name(number));
  return reader.value[0];
}

constexpr const char* kTwoRuns = "invalid_argument: another run";

}  // namespace

TEST_CASE("a run replaced what another one had saved and ended since it loaded",
          "[runtime][training]") {
  const bool resumes = GENERATE(false, true);
  const int limit = GENERATE(0, 2);
  const TestFolder folder;
  std::atomic<int> right = 0;
  on_ranks(2, [&](ProcessGroup& group) {
    const auto say = [](bool claim, const char* what) {
      if (!claim) throw std::runtime_error{what};
    };
    if (resumes) {
      NumberRun before{group, folder.path(), 1};
      before.accelerator.save_state();
    }
    NumberRun late{group, folder.path(), 2, limit};
    late.accelerator.load_state();
    late.value.assign(3, 2);
    const std::uint64_t first = resumes ? 1 : 0;
    {
      NumberRun other{group, folder.path(), 3, limit};
      other.accelerator.load_state();
      other.value.assign(3, 3);
      other.accelerator.save_state();
      other.accelerator.save_state();
    }
    const std::string told = refusal([&] { late.accelerator.save_state(); });
    say(told.starts_with(kTwoRuns), "not refused");
    say(told.find(checkpoint_name(first + 1)) != std::string::npos, "not named");
    say(told.find("project_dir") != std::string::npos, "no cure");
    say(saved_in(group, folder.path(), first) == 3, "replaced");
    say(saved_in(group, folder.path(), first + 1) == 3, "replaced the second");
    // The refused one doesn't keep others out, and may go on from what is there.
    late.accelerator.load_state();
    say(late.value[0] == 3, "not the newest");
    say(late.accelerator.save_state().filename() == checkpoint_name(first + 2), "other number");
    say(late.accelerator.save_state().filename() == checkpoint_name(first + 3), "other number");
    ++right;
  });
  CHECK(right == 2);
}

TEST_CASE("two Accelerators of one process replaced each other's checkpoints",
          "[runtime][training]") {
  const bool loads = GENERATE(true, false);
  const TestFolder folder;
  auto group = ProcessGroup{acc::testing::thread_groups(1)[0]};
  NumberRun one{group, folder.path(), 1}, other{group, folder.path(), 2};
  if (loads) {
    one.accelerator.load_state();
    other.accelerator.load_state();
  }
  one.accelerator.save_state();
  CHECK(refusal([&] { other.accelerator.save_state(); }).starts_with("invalid_argument"));
  CHECK(saved_in(group, folder.path(), 0) == 1);
  other.accelerator.load_state();
  CHECK(other.accelerator.save_state().filename() == "checkpoint_1");
  CHECK(refusal([&] { one.accelerator.save_state(); }).starts_with(kTwoRuns));
  CHECK(list_checkpoints(folder.path() / "checkpoints") == std::vector<std::uint64_t>{1, 0});
}

TEST_CASE("a folder that was emptied and filled by another run is noticed by the one that loaded",
          "[runtime][training]") {
  const TestFolder folder;
  auto group = ProcessGroup{acc::testing::thread_groups(1)[0]};
  { NumberRun{group, folder.path(), 1}.accelerator.save_state(); }
  NumberRun late{group, folder.path(), 2};
  late.accelerator.load_state();
  fs::remove_all(folder.path() / "checkpoints");
  { NumberRun{group, folder.path(), 3}.accelerator.save_state(); }
  CHECK(refusal([&] { late.accelerator.save_state(); }).starts_with(kTwoRuns));
  CHECK(saved_in(group, folder.path(), 0) == 3);
}

TEST_CASE("what the run itself wrote or removed, and what is removed by hand, is no other run's",
          "[runtime][training]") {
  const bool async = GENERATE(false, true);
  const TestFolder folder;
  const auto checkpoints = folder.path() / "checkpoints";
  auto group = ProcessGroup{acc::testing::thread_groups(1)[0]};
  for (int attempt = 0; attempt < 2; ++attempt) {  // the second goes on after the first
    auto options = in_folder(folder.path(), 2);
    options.async_checkpoints = async;
    Accelerator accelerator{group, options};
    std::vector<float> value(3, 1);
    accelerator.register_for_checkpointing("value", std::span<float>{value});
    accelerator.load_state();
    for (int i = 0; i < 4; ++i) accelerator.save_state();
  }
  CHECK(list_checkpoints(checkpoints) == std::vector<std::uint64_t>{7, 6});
  // Older ones on purpose, with later ones there: a number above all, and nobody is in the way.
  NumberRun run{group, folder.path(), 1};
  run.accelerator.load_state(checkpoints / "checkpoint_6");
  CHECK(run.accelerator.save_state().filename() == "checkpoint_8");
  fs::remove_all(checkpoints / "checkpoint_7");
  CHECK(run.accelerator.save_state().filename() == "checkpoint_9");
}

TEST_CASE("a touch of its checkpoints, against purging, had each save of a healthy run refused",
          "[runtime][training]") {
  const TestFolder folder;
  const auto checkpoints = folder.path() / "checkpoints";
  auto group = ProcessGroup{acc::testing::thread_groups(1)[0]};
  { NumberRun{group, folder.path(), 1}.accelerator.save_state(); }
  NumberRun run{group, folder.path(), 2};
  run.accelerator.load_state();
  const auto age = [&] {
    for (const auto number : list_checkpoints(checkpoints))
      fs::last_write_time(checkpoints / checkpoint_name(number) / "manifest.json",
                          fs::file_time_type::clock::now() - std::chrono::hours{1});
  };
  age();
  CHECK(refusal([&] { run.accelerator.save_state(); }).empty());
  age();
  CHECK(refusal([&] { run.accelerator.save_state(); }).empty());
  run.accelerator.load_state();
  age();
  fs::remove(checkpoints / ".lock");  // by the purge: the lock is taken anew
  CHECK(refusal([&] { run.accelerator.save_state(); }).empty());
  CHECK(list_checkpoints(checkpoints) == std::vector<std::uint64_t>{3, 2, 1, 0});
}

TEST_CASE("a checkpoint that was moved to another disk and linked back is still the run's",
          "[runtime][training]") {
  const TestFolder folder;
  const auto there = folder.path() / "checkpoints" / "checkpoint_0", away = folder.path() / "away";
  auto group = ProcessGroup{acc::testing::thread_groups(1)[0]};
  { NumberRun{group, folder.path(), 1}.accelerator.save_state(); }
  NumberRun run{group, folder.path(), 2};
  run.accelerator.load_state();
  fs::copy(there, away, fs::copy_options::recursive);
  fs::remove_all(there);
  fs::create_directory_symlink(away, there);
  CHECK(refusal([&] { run.accelerator.save_state(); }).empty());
}

TEST_CASE("a run that holds the lock of its folder isn't stopped by a damaged manifest in it",
          "[runtime][training]") {
  const TestFolder folder;
  auto group = ProcessGroup{acc::testing::thread_groups(1)[0]};
  NumberRun run{group, folder.path(), 1};
  run.accelerator.save_state();
  fs::resize_file(folder.path() / "checkpoints" / "checkpoint_0" / "manifest.json", 10);
  CHECK(refusal([&] { run.accelerator.save_state(); }).empty());
}

TEST_CASE("an Accelerator notices what another one of its process saved that is gone since",
          "[runtime][training]") {
  const TestFolder folder;
  auto group = ProcessGroup{acc::testing::thread_groups(1)[0]};
  NumberRun run{group, folder.path(), 1};
  run.accelerator.save_state();
  {
    NumberRun other{group, folder.path(), 2};
    other.accelerator.load_state();
    other.accelerator.save_state();
  }
  CHECK(refusal([&] { run.accelerator.save_state(); }).starts_with(kTwoRuns));
}

// ---- between backward and step ----

namespace {

/// One weight, without its step.
struct OneWeight {
  std::vector<float> weight{1};
  Accelerator accelerator;
  GradientReducer& reducer;
  Sgd optimizer;
  OneWeight(ProcessGroup& group, AcceleratorOptions options, GradientMode mode)
      : accelerator{group, std::move(options)},
        reducer{
            accelerator.prepare_model({{"weight", std::span<float>{weight}, {}}}, {.mode = mode})},
        optimizer{reducer, {.learning_rate = 1}} {
    accelerator.prepare(optimizer);
  }
  void backward(float gradient) {
    accelerator.backward([&](double) {
      static_cast<float*>(reducer.gradient(0).data)[0] += gradient;
      reducer.ready(0);
    });
  }
};

}  // namespace

namespace {

constexpr const char* kUnapplied = "acc: save_state between backward() and step()";

/// What is written to stderr meanwhile.
template <class Work>
std::string on_stderr(const fs::path& folder, const Work& work) {
  const auto path = folder / "stderr";
  std::fflush(stderr);
  const acc::UniqueFd before{::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3)};
  const acc::UniqueFd file{::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)};
  REQUIRE((before && file && ::dup2(file.get(), STDERR_FILENO) >= 0));
  const auto undo = [&] { ::dup2(before.get(), STDERR_FILENO); };
  try {
    work();
  } catch (...) {
    undo();
    throw;
  }
  undo();
  std::ifstream text{path};
  return {std::istreambuf_iterator<char>{text}, {}};
}

std::size_t count_of(std::string_view words, const std::string& text) {
  std::size_t found = 0;
  for (auto at = text.find(words); at != std::string::npos; at = text.find(words, at + 1)) ++found;
  return found;
}

/// How often the save said that a step is lost.
std::size_t warnings_in(const std::string& text) { return count_of(kUnapplied, text); }

}  // namespace

TEST_CASE("a checkpoint between backward() and step() lost that step without a word",
          "[runtime][training]") {
  const auto mode = GENERATE(GradientMode::all_reduce, GradientMode::reduce_scatter);
  const TestFolder folder;
  const bool steps = GENERATE(true, false);
  const auto told = on_stderr(folder.path(), [&] {
    on_ranks(2, [&](ProcessGroup& group) {
      OneWeight loop{group, in_folder(folder.path()), mode};
      const auto save = [&] { loop.accelerator.save_state(); };
      save();  // before the first backward
      loop.backward(1);
      if (steps) loop.accelerator.step(loop.optimizer);
      save();  // zero_grad() may begin the next batch
      loop.accelerator.zero_grad(loop.optimizer);
      save();
      loop.backward(1);
      loop.accelerator.zero_grad(loop.optimizer);  // a batch that is left out on purpose
      save();
      loop.backward(1);
      loop.accelerator.load_state();
      save();
    });
  });
  CHECK(warnings_in(told) == (steps ? 0 : 1));
  CHECK(list_checkpoints(folder.path() / "checkpoints").size() == 5);
}

TEST_CASE("a step that was left out on purpose ended a long run at its next save",
          "[runtime][training]") {
  const TestFolder folder;
  const auto told = on_stderr(folder.path(), [&] {
    on_ranks(2, [&](ProcessGroup& group) {
      OneWeight loop{group, in_folder(folder.path()), GradientMode::all_reduce};
      for (int batch = 0; batch < 6; ++batch) {
        loop.accelerator.zero_grad(loop.optimizer);
        loop.backward(1);
        if (batch % 2 != 0) loop.accelerator.step(loop.optimizer);  // as if (isfinite(norm))
        loop.accelerator.save_state();
      }
    });
  });
  CHECK(warnings_in(told) == 1);
  CHECK(count_of("whose gradients are dropped, loses nothing", told) == 1);
  CHECK(list_checkpoints(folder.path() / "checkpoints").size() == 6);
}

TEST_CASE("a save between batches added up by hand lost them, and the warning said that it doesn't",
          "[runtime][training]") {
  const TestFolder folder;
  const auto told = on_stderr(folder.path(), [&] {
    on_ranks(2, [&](ProcessGroup& group) {
      const auto weight_after = [&](bool stops) {
        std::optional<OneWeight> loop;
        const auto begin = [&] {
          loop.emplace(group, in_folder(folder.path()), GradientMode::all_reduce);
        };
        begin();
        for (int batch = 1; batch <= 4; ++batch) {
          loop->backward(1);
          if (batch == 4) loop->accelerator.step(loop->optimizer);
          if (batch != 2 || !stops) continue;
          loop->accelerator.save_state();
          begin();
          loop->accelerator.load_state();
        }
        return loop->weight[0];
      };
      if (weight_after(false) != -3 || weight_after(true) != -1)
        throw std::runtime_error{"a checkpoint has them: say so"};
    });
  });
  INFO(told);
  CHECK(warnings_in(told) == 1);
  CHECK(count_of("gradients added up by hand for a later step aren't in the checkpoint", told) ==
        1);
}

TEST_CASE("a step that the scaler skipped, or that waits for its last batch, is no lost one",
          "[runtime][training]") {
  const TestFolder folder;
  auto group = ProcessGroup{acc::testing::thread_groups(1)[0]};
  auto options = in_folder(folder.path());
  options.mixed_precision = MixedPrecision::fp16;
  OneWeight skipping{group, options, GradientMode::all_reduce};
  skipping.backward(std::numeric_limits<float>::infinity());
  CHECK_FALSE(skipping.accelerator.step(skipping.optimizer));

  auto each = in_folder(folder.path() / "each");
  each.gradient_accumulation_steps = 2;
  each.sync_each_batch = true;
  OneWeight waiting{group, each, GradientMode::all_reduce};
  const auto batch = [&] {
    const auto accumulating = waiting.accelerator.accumulate();
    waiting.backward(1);
  };
  batch();
  const auto save = [&](OneWeight& loop) {
    return warnings_in(on_stderr(folder.path(), [&] { loop.accelerator.save_state(); }));
  };
  CHECK(save(skipping) == 0);
  CHECK(save(waiting) == 0);
  batch();
  CHECK(save(waiting) == 1);
}

TEST_CASE("two optimizers of one model: a step of one isn't that of the other",
          "[runtime][training]") {
  const TestFolder folder;
  auto group = ProcessGroup{acc::testing::thread_groups(1)[0]};
  OneWeight loop{group, in_folder(folder.path()), GradientMode::all_reduce};
  Sgd other{loop.reducer, {.learning_rate = 1}};
  loop.accelerator.prepare(other);
  const bool both = GENERATE(true, false);
  loop.backward(1);
  loop.optimizer.step();
  if (both) other.step();
  const auto told = on_stderr(folder.path(), [&] { loop.accelerator.save_state(); });
  CHECK(warnings_in(told) == (both ? 0 : 1));
}

// ---- a loop left by break ----

namespace {

constexpr const char* kBeganAgain = " while this run begins the epoch again";

/// A loop of which each pass is left after so many batches of 4.
struct LeftLoop {
  Accelerator accelerator;
  DataLoader<int> loader;
  std::vector<int> seen{};

  LeftLoop(ProcessGroup& group, const fs::path& folder, bool shuffle = true)
      : accelerator{group, in_folder(folder)},
        loader{accelerator.data_loader(
            Dataset<int>{104, [](std::size_t index) { return static_cast<int>(index); }},
            {.batch_size = 4, .shuffle = shuffle, .seed = 4, .name = "train"})} {
    accelerator.prepare(loader);
  }
  void run(
      int batches, const std::function<void(int)>& in_loop = [](int) {}) {
    int done = 0;
    for (const auto& batch : loader) {
      seen.push_back(batch.front());
      in_loop(++done);
      if (done == batches) break;
    }
  }
  void save() { accelerator.save_state(); }
};

/// What rank 0 of two said while all of them did this.
std::string told_by(const std::function<void(LeftLoop&)>& body, bool shuffle = true) {
  const TestFolder folder;
  return on_stderr(folder.path(), [&] {
    on_ranks(2, [&](ProcessGroup& group) {
      LeftLoop loop{group, folder.path(), shuffle};
      body(loop);
    });
  });
}

}  // namespace

TEST_CASE(
    "a loop left by break began its epoch again, and a resumed run went on behind it, silently",
    "[runtime][training]") {
  const auto told = told_by([](LeftLoop& loop) {
    for (int round = 0; round < 3; ++round) {
      loop.run(5);
      loop.save();
    }
  });
  INFO(told);
  CHECK(count_of(kBeganAgain, told) == 1);  // of two ranks and two rounds
  CHECK(told.starts_with("acc: train: "));
  CHECK(told.find("goes on behind sample 40 of epoch 0,") != std::string::npos);
  CHECK(told.find("loader.set_epoch(loader.epoch() + 1)") != std::string::npos);

  const auto last = told_by([](LeftLoop& loop) {
    loop.run(13);  // all of the epoch: by break it doesn't end
    loop.save();
    loop.run(1);
  });
  CHECK(last.find("goes on behind sample 104 of epoch 0,") != std::string::npos);
  const auto in_its_last_round = told_by([](LeftLoop& loop) {
    loop.run(5, [&](int done) {
      if (done == 5) loop.save();
    });
    loop.run(5);
  });
  CHECK(count_of(kBeganAgain, in_its_last_round) == 1);
  const auto by_another_iterator = told_by([](LeftLoop& loop) {
    auto it = loop.loader.begin();
    for (int done = 0; done < 3; ++done, ++it) loop.seen.push_back(it->front());
    loop.save();
    it = loop.loader.begin();
    CHECK(it != loop.loader.end());
  });
  CHECK(by_another_iterator.find("goes on behind sample 24 of epoch 0,") != std::string::npos);
  const auto looked_at = told_by([](LeftLoop& loop) {
    loop.loader.restore({0, 4, 16, false});
    CHECK(loop.loader.begin()->size() == 4);
    loop.save();
    loop.run(1);
  });
  CHECK(looked_at.find("goes on behind sample 24 of epoch 0,") != std::string::npos);
}

TEST_CASE("no word where a run that goes on from the checkpoint sees what this one does",
          "[runtime][training]") {
  const auto silent = [](const std::function<void(LeftLoop&)>& body) {
    const auto told = told_by(body);
    INFO(told);
    CHECK(count_of(kBeganAgain, told) == 0);
  };
  silent([](LeftLoop& loop) {  // pre-emption
    loop.run(5);
    loop.save();
  });
  silent([](LeftLoop& loop) {  // saved inside the loop, which goes on
    for (int round = 0; round < 2; ++round)
      loop.run(5, [&](int done) {
        if (done == 3) loop.save();
      });
  });
  silent([](LeftLoop& loop) {  // left, and not saved
    loop.save();
    for (int round = 0; round < 3; ++round) loop.run(5);
  });
  silent([](LeftLoop& loop) {  // whole epochs
    for (int round = 0; round < 3; ++round) {
      loop.run(100);
      loop.save();
    }
  });
  silent([](LeftLoop& loop) {  // the cure; and that of a loop that is to begin the epoch again
    for (int round = 0; round < 3; ++round) {
      loop.run(5);
      loop.loader.set_epoch(loop.loader.epoch() + (round == 0 ? 1U : 0U));
      loop.save();
    }
  });
  silent([](LeftLoop& loop) {  // back to the checkpoint
    loop.run(5);
    loop.save();
    loop.accelerator.load_state();
    loop.run(5);
  });
  silent([](LeftLoop& loop) {  // saved, and then a loop over the same loader inside the loop
    loop.run(5, [&](int done) {
      if (done != 3) return;
      loop.save();
      for ([[maybe_unused]] const auto& batch : loop.loader) continue;
    });
  });
  silent([](LeftLoop& loop) {  // a look at one batch, before a save
    loop.loader.restore({0, 4, 16, false});
    for (int look = 0; look < 2; ++look) CHECK(loop.loader.begin()->size() == 4);
    loop.run(100);
    CHECK(loop.seen.size() == 11);
    loop.save();
  });
  silent([](LeftLoop& loop) {  // a position that is only shown
    for (int round = 0; round < 2; ++round)
      loop.run(5, [&](int) { (void)to_string(loop.loader.state()); });
  });
  silent([](LeftLoop& loop) {  // another loader, which skips what was done
    loop.run(5);
    loop.save();
    auto rest = loop.loader.skip_first_batches(5);
    for ([[maybe_unused]] const auto& batch : rest) break;
  });
}

TEST_CASE("an evaluation limited by break is told of once it was saved: a resumed one sees others",
          "[runtime][training]") {
  const auto shuffle = GENERATE(false, true);
  const auto told = told_by(
      [](LeftLoop& loop) {
        for (int round = 0; round < 3; ++round) loop.run(2);
        loop.save();
        loop.run(2);
        loop.save();
        loop.run(2);
      },
      shuffle);
  CHECK(count_of(kBeganAgain, told) == 1);
  CHECK(told.find("goes on behind sample 16 of epoch 0,") != std::string::npos);
}

TEST_CASE(
    "a checkpoint saved in a loop over skip_first_batches() had the position before that loop",
    "[runtime][training]") {
  const TestFolder folder;
  on_ranks(2, [&](ProcessGroup& group) {
    LeftLoop loop{group, folder.path()};
    loop.run(2, [&](int done) {
      if (done == 2) loop.save();
    });
    loop.accelerator.load_state();
    auto rest = loop.loader.skip_first_batches(2);
    int batches = 0;
    for ([[maybe_unused]] const auto& batch : rest)
      if (++batches == 3) loop.save();
    LeftLoop resumed{group, folder.path()};
    resumed.accelerator.load_state();
    resumed.run(100);
    if (batches != 11 || resumed.seen.size() != 8)
      throw std::runtime_error{std::to_string(resumed.seen.size()) + " batches are left"};
  });
}

TEST_CASE("with set_epoch() before the save a run of so many steps a round is resumed alike",
          "[runtime][training]") {
  const TestFolder folder;
  std::vector<int> whole, resumed;
  std::mutex mutex;
  const auto rounds = [&](const char* name, int count, std::vector<int>& seen) {
    on_ranks(2, [&](ProcessGroup& group) {
      LeftLoop loop{group, folder.path() / name};
      loop.accelerator.load_state();
      for (int round = 0; round < count; ++round) {
        loop.run(5);
        loop.loader.set_epoch(loop.loader.epoch() + 1);
        loop.save();
      }
      const std::lock_guard lock{mutex};
      if (group.rank() == 0) seen.insert(seen.end(), loop.seen.begin(), loop.seen.end());
    });
  };
  rounds("whole", 4, whole);
  rounds("parts", 1, resumed);
  rounds("parts", 3, resumed);
  CHECK(whole.size() == 20);
  CHECK(whole == resumed);
}

TEST_CASE("a registered function slower than the collective time-out ended a healthy job",
          "[runtime][training]") {
  const auto slow_save = GENERATE(true, false);  // or while it loads
  const TestFolder folder;
  GroupOptions short_limit;
  short_limit.timeout = std::chrono::seconds{1};  // a busy machine needs some of it elsewhere
  auto groups = acc::testing::thread_groups(2, short_limit);
  acc::testing::on_all(groups, [&](ProcessGroup& group) {
    Accelerator accelerator{group, in_folder(folder.path())};
    const auto linger = [&group](bool slow) {  // for longer than the other rank may be in a call
      if (slow && group.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds{1500});
    };
    accelerator.register_for_checkpointing(
        "state",
        [&] {
          linger(slow_save);
          return std::string{"x"};
        },
        [&](std::string_view) { linger(!slow_save); });
    accelerator.save_state();
    accelerator.load_state();
    group.barrier();
  });
  CHECK(list_checkpoints(folder.path() / "checkpoints").size() == 1);
}
