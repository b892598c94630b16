// The training half of the C interface: a loop of a C program, over real groups.
#include "runtime/capi/handles.hpp"

#include <catch2/catch.hpp>

#include <acc/acc_training.h>
#include <unistd.h>

#include <acc/loader.hpp>
#include <array>
#include <cmath>
#include <filesystem>
#include <limits>
#include <numeric>
#include <thread>

namespace {

namespace fs = std::filesystem;

void expect(bool truth, const std::string& what) {
  if (!truth) throw std::runtime_error{what + "; last error: " + acc_last_error()};
}
#define EXPECT_OK(call) expect((call) == ACC_OK, #call)

template <class Body>
void on_ranks(int n, Body body) {
  acc_config config = ACC_CONFIG_INIT;
  config.backend = ACC_BACKEND_CPU;
  config.timeout_ms = 20'000;
  std::vector<acc_comm*> comms(static_cast<std::size_t>(n));
  REQUIRE(acc_init_threads(n, &config, comms.data()) == ACC_OK);
  std::vector<std::thread> threads;
  std::vector<std::string> faults(comms.size());
  for (std::size_t r = 0; r < comms.size(); ++r)
    threads.emplace_back([&, r] {
      try {
        body(comms[r]);
      } catch (const std::exception& e) {
        faults[r] = e.what();
        acc_abort(comms[r], e.what());
      }
      acc_finalize(comms[r]);
    });
  for (auto& thread : threads) thread.join();
  for (const auto& fault : faults) CHECK(fault == "");
}

struct Folder {
  fs::path path = fs::temp_directory_path() / ("acc-capi-" + std::to_string(::getpid()));
  Folder() { fs::remove_all(path); }
  ~Folder() { fs::remove_all(path); }
};

constexpr std::uint64_t kSamples = 60;
constexpr std::uint64_t kEpochs = 12;

double x_of(std::uint64_t i) { return static_cast<double>(i) / 30 - 1; }
double y_of(std::uint64_t i) { return 3 * x_of(i) - 2; }

/// A straight line through points, as a C program would fit it. @return slope, offset, steps
std::array<double, 3> fit(acc_comm* comm, bool sharded, const fs::path& folder,
                          std::uint64_t until) {
  std::array<double, 2> line{0.5 * acc_rank(comm), 0};  // rank 0's go to all
  const std::int64_t shape[1] = {1};
  std::array<acc_parameter, 2> parameters{
      acc_parameter{sizeof(acc_parameter), "slope", &line[0], nullptr, ACC_F64, -1, shape, 1},
      acc_parameter{sizeof(acc_parameter), "offset", &line[1], nullptr, ACC_F64, -1, nullptr, 0}};
  acc_reducer_config how = ACC_REDUCER_CONFIG_INIT;
  how.sharded = sharded ? 1 : 0;
  acc_reducer* reducer = nullptr;
  EXPECT_OK(acc_reducer_create(comm, parameters.data(), 2, &how, &reducer));
  acc_sgd options = ACC_SGD_INIT;
  options.learning_rate = 0.2;
  options.momentum = 0.5;
  acc_optimizer* optimizer = nullptr;
  EXPECT_OK(acc_sgd_create(reducer, &options, &optimizer));

  acc_checkpointer_config where = ACC_CHECKPOINTER_CONFIG_INIT;
  const std::string path = folder.string();
  where.folder = path.c_str();
  acc_checkpointer* checkpointer = nullptr;
  EXPECT_OK(acc_checkpointer_create(comm, &where, &checkpointer));
  acc_state* state = nullptr;
  EXPECT_OK(acc_state_create(&state));
  std::int32_t found = 0;
  std::uint64_t epoch = 0;
  // First the texts alone: the optimizer's own was then taken for one of the caller's.
  EXPECT_OK(acc_load(checkpointer, state, &found, &epoch));
  EXPECT_OK(acc_state_add_optimizer(state, optimizer, nullptr));
  EXPECT_OK(acc_load(checkpointer, state, &found, &epoch));
  if (found != 0) {
    std::size_t bytes = 0;
    const auto* text = static_cast<const char*>(acc_state_text(state, "position", 0, &bytes));
    expect(std::string(text, bytes) == "after epoch " + std::to_string(epoch), "the text");
    const auto* own = static_cast<const char*>(acc_state_text(state, "rank", 1, &bytes));
    expect(std::string(own, bytes) == std::to_string(acc_rank(comm)), "the text of each rank");
    ++epoch;
  }
  for (; epoch < until; ++epoch) {
    acc_sharding sharding = ACC_SHARDING_INIT;
    sharding.batch_size = 12;
    sharding.split_batches = 1;
    sharding.shuffle = 1;
    sharding.seed = 7;
    acc_batches* batches = nullptr;
    EXPECT_OK(acc_shard(comm, kSamples, &sharding, epoch, &batches));
    for (std::size_t b = 0; b < acc_batches_count(batches); ++b) {
      std::size_t count = 0;
      const std::uint64_t* samples = acc_batches_get(batches, b, &count);
      EXPECT_OK(acc_reducer_zero(reducer));
      auto& slope = *static_cast<double*>(acc_reducer_gradient(reducer, 0));
      auto& offset = *static_cast<double*>(acc_reducer_gradient(reducer, 1));
      for (std::size_t i = 0; i < count; ++i) {
        const double error = line[0] * x_of(samples[i]) + line[1] - y_of(samples[i]);
        slope += error * x_of(samples[i]) / static_cast<double>(count);
        offset += error / static_cast<double>(count);
      }
      EXPECT_OK(acc_reducer_ready(reducer, 1));
      EXPECT_OK(acc_reducer_ready(reducer, 0));
      EXPECT_OK(acc_reducer_finish(reducer));
      double norm = 0;
      EXPECT_OK(acc_clip_grad_norm(optimizer, 2.0, &norm));
      expect(norm >= 0 && std::isfinite(norm), "a norm");
      EXPECT_OK(acc_optimizer_step(optimizer));
    }
    acc_batches_free(batches);
    const std::string text = "after epoch " + std::to_string(epoch);
    const std::string own = std::to_string(acc_rank(comm));
    EXPECT_OK(acc_state_set_text(state, "position", text.data(), text.size(), 0));
    EXPECT_OK(acc_state_set_text(state, "rank", own.data(), own.size(), 1));
    EXPECT_OK(acc_save(checkpointer, epoch, state));
  }
  EXPECT_OK(acc_checkpointer_wait(checkpointer));
  const std::array result{line[0], line[1], static_cast<double>(acc_optimizer_steps(optimizer))};
  acc_state_free(state);
  acc_checkpointer_free(checkpointer);
  acc_optimizer_free(optimizer);
  acc_reducer_free(reducer);
  return result;
}

}  // namespace

TEST_CASE("a loop in C: the line is found, alike on all ranks, sharded or not, and after a restart",
          "[capi][training]") {
  std::vector<std::array<double, 3>> found;
  for (const bool sharded : {false, true}) {
    const Folder folder;
    on_ranks(3, [&](acc_comm* comm) { (void)fit(comm, sharded, folder.path, 5); });
    std::array<std::array<double, 3>, 3> of_ranks{};
    on_ranks(3, [&](acc_comm* comm) {
      of_ranks[static_cast<std::size_t>(acc_rank(comm))] = fit(comm, sharded, folder.path, kEpochs);
    });
    CHECK(of_ranks[1] == of_ranks[0]);
    CHECK(of_ranks[2] == of_ranks[0]);
    found.push_back(of_ranks[0]);
  }
  CHECK(found[0] == found[1]);
  CHECK(found[0][0] == Approx(3).margin(1e-3));
  CHECK(found[0][1] == Approx(-2).margin(1e-3));
  CHECK(found[0][2] == kEpochs * kSamples / 12);
  const Folder folder;
  std::array<double, 3> at_once{};
  on_ranks(3, [&](acc_comm* comm) {
    const auto line = fit(comm, false, folder.path, kEpochs);
    if (acc_rank(comm) == 0) at_once = line;
  });
  CHECK(at_once == found[0]);  // the restart left no trace
}

TEST_CASE("shards of all ranks are the samples, each once", "[capi][training]") {
  std::array<std::vector<std::uint64_t>, 3> of_ranks;
  std::array<std::size_t, 3> remainders{};
  on_ranks(3, [&](acc_comm* comm) {
    acc_sharding sharding;
    acc_sharding_init(&sharding, sizeof sharding);
    sharding.batch_size = 4;
    sharding.even_batches = 0;
    sharding.shuffle = 1;
    acc_batches* batches = nullptr;
    for (const int shuffle : {0, 1}) {  // the rest of a subtraction, or -1
      sharding.shuffle = shuffle;
      expect(acc_shard(comm, std::numeric_limits<std::uint64_t>::max(), &sharding, 3, &batches) ==
                     ACC_INVALID_ARGUMENT &&
                 batches == nullptr,
             "too many samples are the caller's mistake");
    }
    EXPECT_OK(acc_shard(comm, 50, &sharding, 3, &batches));
    auto& own = of_ranks[static_cast<std::size_t>(acc_rank(comm))];
    for (std::size_t b = 0; b < acc_batches_count(batches); ++b) {
      std::size_t count = 0;
      const auto* samples = acc_batches_get(batches, b, &count);
      own.insert(own.end(), samples, samples + count);
    }
    remainders[static_cast<std::size_t>(acc_rank(comm))] = acc_batches_remainder(batches);
    std::size_t none = 1;
    expect(acc_batches_get(batches, 1000, &none) == nullptr && none == 0, "no such batch");
    acc_batches_free(batches);
  });
  std::vector<std::uint64_t> all;
  for (const auto& own : of_ranks) all.insert(all.end(), own.begin(), own.end());
  std::sort(all.begin(), all.end());
  std::vector<std::uint64_t> wanted(50);
  std::iota(wanted.begin(), wanted.end(), 0U);
  CHECK(all == wanted);
  CHECK(remainders == std::array<std::size_t, 3>{2, 2, 2});
}

TEST_CASE("a single rank got samples twice in C where the C++ loader has a shorter batch",
          "[capi][training]") {
  using Batches = std::vector<std::vector<std::uint64_t>>;
  const auto even = GENERATE(0, 1);
  for (int ranks = 1; ranks <= 4; ++ranks) {
    on_ranks(ranks, [&](acc_comm* comm) {
      acc_sharding sharding = ACC_SHARDING_INIT;
      sharding.batch_size = 4;
      sharding.even_batches = even;
      acc_batches* made = nullptr;
      EXPECT_OK(acc_shard(comm, 10, &sharding, 0, &made));
      Batches of_c, of_loader;
      for (std::size_t b = 0; b < acc_batches_count(made); ++b) {
        std::size_t count = 0;
        const auto* samples = acc_batches_get(made, b, &count);
        of_c.emplace_back(samples, samples + count);
      }
      acc_batches_free(made);
      acc::runtime::LoaderOptions how;
      how.batch_size = 4;
      how.even_batches = even != 0;
      acc::runtime::DataLoader<std::uint64_t> loader{
          acc::runtime::Dataset<std::uint64_t>{10, [](std::size_t i) { return std::uint64_t{i}; }},
          how, comm->group};
      for (const auto& batch : loader) of_loader.push_back(batch);
      expect(of_c == of_loader, "as the loader, on " + std::to_string(acc_size(comm)) + " ranks");
      expect(ranks > 1 || of_c.back().size() == 2, "a shorter last batch");
    });
  }
}

TEST_CASE("what a C program does wrong in training is told", "[capi][training]") {
  on_ranks(1, [](acc_comm* comm) {
    using Catch::Contains;
    acc_reducer* reducer = nullptr;
    double value = 0;
    acc_parameter parameter{sizeof(acc_parameter), "w", &value, nullptr, ACC_F64, -1, nullptr, 1};
    CHECK(acc_reducer_create(comm, &parameter, 1, nullptr, &reducer) == ACC_INVALID_ARGUMENT);
    CHECK_THAT(acc_last_error(), Contains("shape is a null pointer"));
    parameter.dims = 0;
    parameter.dtype = 77;
    CHECK(acc_reducer_create(comm, &parameter, 1, nullptr, &reducer) == ACC_INVALID_ARGUMENT);
    parameter.dtype = ACC_F64;
    parameter.size = 3;
    CHECK(acc_reducer_create(comm, &parameter, 1, nullptr, &reducer) == ACC_INVALID_ARGUMENT);
    CHECK_THAT(acc_last_error(), Contains("wasn't initialised"));
    parameter.size = sizeof parameter;
    parameter.name = nullptr;
    CHECK(acc_reducer_create(comm, &parameter, 1, nullptr, &reducer) == ACC_INVALID_ARGUMENT);
    CHECK_THAT(acc_last_error(), Contains("parameters[0] has no name"));
    CHECK(reducer == nullptr);
    parameter.name = "w";
    EXPECT_OK(acc_reducer_create(comm, &parameter, 1, nullptr, &reducer));
    CHECK(acc_reducer_ready(reducer, 5) == ACC_INVALID_ARGUMENT);
    CHECK(acc_reducer_gradient(reducer, 5) == nullptr);
    acc_optimizer* optimizer = nullptr;
    acc_adamw options;
    acc_adamw_init(&options, sizeof options);
    EXPECT_OK(acc_adamw_create(reducer, &options, &optimizer));
    CHECK(acc_optimizer_set_learning_rate(optimizer, NAN) == ACC_INVALID_ARGUMENT);
    EXPECT_OK(acc_optimizer_set_learning_rate(optimizer, 0.5));
    CHECK(acc_optimizer_learning_rate(optimizer) == 0.5);
    acc_state* state = nullptr;
    EXPECT_OK(acc_state_create(&state));
    EXPECT_OK(acc_state_add_optimizer(state, optimizer, nullptr));
    CHECK(acc_state_add_optimizer(state, optimizer, nullptr) == ACC_INVALID_ARGUMENT);
    // A text of an optimizer's name vanished in the checkpoint.
    CHECK(acc_state_set_text(state, "optimizer", "x", 1, 0) == ACC_INVALID_ARGUMENT);
    CHECK_THAT(acc_last_error(), Contains("a text 'optimizer' and an optimizer"));
    EXPECT_OK(acc_state_set_text(state, "optimizer", "x", 1, 1));
    EXPECT_OK(acc_state_set_text(state, "optimizer_b", "x", 1, 0));
    CHECK(acc_state_add_optimizer(state, optimizer, "b") == ACC_INVALID_ARGUMENT);
    CHECK_THAT(acc_last_error(), Contains("a text 'optimizer_b' and an optimizer"));
    acc_parameter nameless = parameter;
    nameless.name = nullptr;
    CHECK(acc_state_add_tensor(state, &nameless, 0) == ACC_INVALID_ARGUMENT);
    acc_checkpointer_config folder = ACC_CHECKPOINTER_CONFIG_INIT;
    folder.keep_last = -1;
    acc_checkpointer* checkpointer = nullptr;
    CHECK(acc_checkpointer_create(comm, &folder, &checkpointer) == ACC_INVALID_ARGUMENT);
    CHECK_THAT(acc_last_error(), Contains("keep_last is -1"));
    CHECK(acc_state_set_text(state, "x", "\xff", 1, 0) == ACC_INVALID_ARGUMENT);
    CHECK(acc_state_text(state, "x", 0, nullptr) == nullptr);
    CHECK(acc_optimizer_step(nullptr) == ACC_INVALID_ARGUMENT);
    acc_state_free(state);
    acc_optimizer_free(optimizer);
    acc_reducer_free(reducer);
  });
}

TEST_CASE("gradients add up in C while they aren't exchanged", "[capi][training]") {
  on_ranks(2, [](acc_comm* comm) {
    double value = 0;
    const acc_parameter parameter{
        sizeof(acc_parameter), "w", &value, nullptr, ACC_F64, -1, nullptr, 0};
    acc_reducer* reducer = nullptr;
    EXPECT_OK(acc_reducer_create(comm, &parameter, 1, nullptr, &reducer));
    const auto pass = [&] {
      *static_cast<double*>(acc_reducer_gradient(reducer, 0)) += 1 + acc_rank(comm);
      EXPECT_OK(acc_reducer_ready(reducer, 0));
      EXPECT_OK(acc_reducer_finish(reducer));
    };
    EXPECT_OK(acc_reducer_zero(reducer));
    EXPECT_OK(acc_reducer_sync(reducer, 0));
    pass();
    expect(*static_cast<double*>(acc_reducer_gradient(reducer, 0)) == 1 + acc_rank(comm), "own");
    EXPECT_OK(acc_reducer_sync(reducer, 1));
    pass();
    expect(*static_cast<double*>(acc_reducer_gradient(reducer, 0)) == 3, "the mean of the sums");
    acc_reducer_free(reducer);
  });
}

TEST_CASE("several passes before a step give a sharded reducer the gradients of a whole one",
          "[capi][training]") {
  for (const bool sharded : {false, true}) {
    on_ranks(2, [&](acc_comm* comm) {
      std::array<float, 8> values{};
      const std::int64_t shape[1] = {8};
      const acc_parameter parameter{
          sizeof(acc_parameter), "w", values.data(), nullptr, ACC_F32, -1, shape, 1};
      acc_reducer_config how = ACC_REDUCER_CONFIG_INIT;
      how.sharded = sharded ? 1 : 0;
      acc_reducer* reducer = nullptr;
      EXPECT_OK(acc_reducer_create(comm, &parameter, 1, &how, &reducer));
      acc_sgd options = ACC_SGD_INIT;
      options.learning_rate = 1;
      acc_optimizer* optimizer = nullptr;
      EXPECT_OK(acc_sgd_create(reducer, &options, &optimizer));
      float expected = 0;
      for (const int passes : {2, 2, 1, 3}) {
        EXPECT_OK(acc_reducer_zero(reducer));
        for (int pass = 0; pass < passes; ++pass) {
          EXPECT_OK(acc_reducer_gather_means(reducer));
          auto* gradient = static_cast<float*>(acc_reducer_gradient(reducer, 0));
          for (std::size_t i = 0; i < values.size(); ++i)
            gradient[i] += acc_rank(comm) == 0 ? 1.0F : 3.0F;
          EXPECT_OK(acc_reducer_ready(reducer, 0));
          EXPECT_OK(acc_reducer_finish(reducer));
        }
        EXPECT_OK(acc_optimizer_step(optimizer));
        expected -= 2 * static_cast<float>(passes);
        for (const float value : values) expect(value == expected, "the means added up");
      }
      acc_optimizer_free(optimizer);
      acc_reducer_free(reducer);
    });
  }
}
