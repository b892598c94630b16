#include "tests/support/thread_groups.hpp"
#include "tests/unit/runtime/training/toy_net.hpp"

#include <catch2/catch.hpp>

#include <acc/checkpoint.hpp>
#include <acc/error.hpp>
#include <acc/optimizer.hpp>
#include <atomic>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <type_traits>

using namespace acc::runtime;
using acc::testing::on_ranks;
using acc::testing::random_floats;

namespace {

/// torch.optim.SGD as its documentation writes it, of one element and in double.
struct SgdByTheBook {
  SgdOptions options;
  double buffer = 0;
  int step = 0;
  double operator()(double value, double gradient) {
    ++step;
    double g = gradient + options.weight_decay * value;
    if (options.momentum != 0) {
      buffer = step > 1 ? options.momentum * buffer + (1 - options.dampening) * g : g;
      g = options.nesterov ? g + options.momentum * buffer : buffer;
    }
    return value - options.learning_rate * g;
  }
};

struct AdamWByTheBook {
  AdamWOptions options;
  double mean = 0, squares = 0;
  int step = 0;
  double operator()(double value, double gradient) {
    ++step;
    value -= options.learning_rate * options.weight_decay * value;
    mean = options.beta1 * mean + (1 - options.beta1) * gradient;
    squares = options.beta2 * squares + (1 - options.beta2) * gradient * gradient;
    const double m = mean / (1 - std::pow(options.beta1, step));
    const double v = squares / (1 - std::pow(options.beta2, step));
    return value - options.learning_rate * m / (std::sqrt(v) + options.epsilon);
  }
};

template <class Real, class Kind, class Book, class Options>
void follows_the_book(const Options& options, double tolerance) {
  constexpr std::size_t kCount = 37;
  std::vector<Real> values(kCount), gradient(kCount);
  std::vector<double> expected(kCount);
  const auto start = random_floats(kCount, 1);
  for (std::size_t i = 0; i < kCount; ++i) expected[i] = values[i] = static_cast<Real>(start[i]);
  std::vector<Book> books(kCount, Book{options});
  Kind optimizer{{{"w", std::span<Real>{values}, std::span<Real>{gradient}}}, options};
  for (std::uint32_t step = 0; step < 20; ++step) {
    const auto given = random_floats(kCount, 100 + step);
    for (std::size_t i = 0; i < kCount; ++i) {
      gradient[i] = static_cast<Real>(given[i]);
      expected[i] = books[i](expected[i], static_cast<double>(given[i]));
    }
    optimizer.step();
  }
  for (std::size_t i = 0; i < kCount; ++i)
    CHECK(static_cast<double>(values[i]) ==
          Approx(expected[i]).epsilon(tolerance).margin(tolerance));
  optimizer.zero_grad();
  CHECK(gradient == std::vector<Real>(kCount));
  CHECK(optimizer.steps() == 20);
}

/// A reducer and what belongs to it on one rank, for nets of the same seed.
struct Trained {
  acc::testing::ToyNet net{4};
  GradientReducer reducer;
  std::unique_ptr<Optimizer> optimizer;

  Trained(ProcessGroup& group, GradientMode mode, bool adam)
      : reducer{group,
                net.parameters(),
                {.bucket_bytes = 600, .first_bucket_bytes = 200, .mode = mode}} {
    if (adam) {
      optimizer = std::make_unique<AdamW>(reducer, AdamWOptions{.learning_rate = 0.01});
    } else {
      optimizer = std::make_unique<Sgd>(
          reducer, SgdOptions{.learning_rate = 0.1, .momentum = 0.9, .weight_decay = 1e-3});
    }
  }
  void train(const acc::testing::Samples& samples, std::size_t steps) {
    const auto ranks = static_cast<std::size_t>(reducer.group().size());
    const std::size_t each = samples.inputs.size() / ranks;
    const std::size_t begin = static_cast<std::size_t>(reducer.group().rank()) * each;
    for (std::size_t i = 0; i < steps; ++i) {
      optimizer->zero_grad();
      net.backward(
          samples, begin, begin + each,
          [&](std::size_t at) { return static_cast<float*>(reducer.gradient(at).data); },
          [&](std::size_t at) { reducer.ready(at); });
      reducer.finish();
      optimizer->step();
    }
  }
};

}  // namespace

TEST_CASE("SGD follows its formula", "[runtime][training]") {
  const auto check = [](const SgdOptions& options) {
    follows_the_book<float, Sgd, SgdByTheBook>(options, 2e-6);
    follows_the_book<double, Sgd, SgdByTheBook>(options, 1e-14);
  };
  check({.learning_rate = 0.1});
  check({.learning_rate = 0.1, .weight_decay = 0.01});
  check({.learning_rate = 0.05, .momentum = 0.9, .weight_decay = 0.01});
  check({.learning_rate = 0.05, .momentum = 0.9, .dampening = 0.3});
  check({.learning_rate = 0.05, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true});
}

TEST_CASE("AdamW follows its formula", "[runtime][training]") {
  const AdamWOptions options{.learning_rate = 0.02, .beta1 = 0.8, .weight_decay = 0.1};
  follows_the_book<float, AdamW, AdamWByTheBook>(options, 5e-6);
  follows_the_book<double, AdamW, AdamWByTheBook>(options, 1e-13);
}

TEST_CASE("weight decay can be kept from some parameters", "[runtime][training]") {
  std::vector<float> weight(3, 1), bias(3, 1), zeros(6);
  SgdOptions options{.learning_rate = 0.5, .weight_decay = 0.5};
  options.decays = [](const Parameter& p) { return p.name != "bias"; };
  Sgd sgd{{{"weight", std::span<float>{weight}, std::span<float>{zeros}.first(3)},
           {"bias", std::span<float>{bias}, std::span<float>{zeros}.last(3)}},
          options};
  sgd.step();
  CHECK(weight[0] == 0.75F);
  CHECK(bias[0] == 1.0F);
}

TEST_CASE("16-bit parameters move by steps too small for 16 bits", "[runtime][training]") {
  std::vector<BFloat16> values(2000, BFloat16{1.0F}), gradient(2000, BFloat16{1.0F});
  Sgd sgd{{{"w", std::span<BFloat16>{values}, std::span<BFloat16>{gradient}}},
          {.learning_rate = 1e-4}};
  for (int i = 0; i < 1000; ++i) sgd.step();  // each alone would be lost: bf16 steps by 2^-8 here
  CHECK(static_cast<float>(values[0]) == Approx(0.9).epsilon(0.005));
  CHECK(static_cast<float>(values[1999]) == Approx(0.9).epsilon(0.005));
  CHECK(sgd.state().at(0).name == "master/w");
}

TEST_CASE("sharded training has the bits of unsharded training", "[runtime][training]") {
  const auto samples = acc::testing::random_samples(24, 7, 3, 50);
  for (const bool adam : {false, true}) {
    for (const int ranks : {1, 2, 3, 8}) {
      std::mutex mutex;
      std::vector<std::vector<float>> results;
      for (const auto mode : {GradientMode::all_reduce, GradientMode::reduce_scatter}) {
        on_ranks(ranks, [&](ProcessGroup& group) {
          Trained trained{group, mode, adam};
          trained.train(samples, 12);
          const std::scoped_lock lock{mutex};
          results.push_back(trained.net.all_values());
        });
      }
      for (const auto& result : results) CHECK(result == results[0]);
      const acc::testing::ToyNet untrained{4};
      CHECK(results[0] != untrained.all_values());
    }
  }
}

TEST_CASE("sharded state takes 1/n of the memory", "[runtime][training]") {
  for (const int ranks : {1, 2, 4, 8}) {
    std::atomic<std::size_t> sum = 0, most = 0, whole = 0;
    on_ranks(ranks, [&](ProcessGroup& group) {
      std::vector<float> large(100'000), small(77);
      GradientReducer reducer{
          group,
          {{"large", std::span<float>{large}, {}}, {"small", std::span<float>{small}, {}}},
          {.mode = GradientMode::reduce_scatter}};
      AdamW adam{reducer, {}};
      sum += adam.state_bytes();
      std::size_t seen = most;
      while (adam.state_bytes() > seen && !most.compare_exchange_weak(seen, adam.state_bytes())) {
      }
      whole = adam.whole_state_bytes();
    });
    CHECK(whole == 2 * 4 * 100'077);
    CHECK(sum == whole);  // not an element twice, none forgotten
    CHECK(most <= whole / static_cast<std::size_t>(ranks) + 2048);
  }
}

TEST_CASE("a rank that asked alone for the bytes of its state parted from the others",
          "[runtime][training]") {
  std::vector<std::size_t> asked(2), made(2);
  std::vector<std::vector<float>> results(2);
  on_ranks(2, [&](ProcessGroup& group) {
    const auto rank = static_cast<std::size_t>(group.rank());
    std::vector<float> first(640), second(640);
    std::vector<Half> half(256);
    GradientReducer reducer{group,
                            {{"first", std::span<float>{first}, {}},
                             {"half", std::span<Half>{half}, {}},
                             {"second", std::span<float>{second}, {}}},
                            {.mode = GradientMode::reduce_scatter}};
    AdamW adam{reducer, {.learning_rate = 0.1}};
    if (rank == 0) asked[rank] = adam.state_bytes();
    for (int step = 0; step < 2; ++step) {
      adam.zero_grad();
      for (const std::size_t index : {0u, 1u, 2u}) {  // another order than that of the layout
        if (index != 1) {
          auto* const gradient = static_cast<float*>(reducer.gradient(index).data);
          for (std::size_t i = 0; i < 640; ++i)
            gradient[i] = static_cast<float>(rank + index + i) - 300;
        }
        reducer.ready(index);
      }
      reducer.finish();
      adam.step();
    }
    made[rank] = adam.state_bytes();
    results[rank] = first;
    results[rank].insert(results[rank].end(), second.begin(), second.end());
  });
  CHECK(asked[0] == made[0]);
  CHECK(made[0] + made[1] == 2 * 4 * 1280 + 3 * 4 * 256);
  CHECK(results[0] == results[1]);
  CHECK(results[0] != std::vector<float>(1280));
}

TEST_CASE("state that is saved by some ranks is loaded by others", "[runtime][training]") {
  const auto samples = acc::testing::random_samples(24, 7, 3, 50);
  for (const auto& [from, to] : {std::pair{4, 3}, std::pair{1, 2}, std::pair{3, 1}}) {
    // The checkpoint: pieces one behind the other in the order of the ranks.
    std::mutex mutex;
    std::map<std::string, std::map<int, std::vector<float>>> pieces;
    std::string text;
    std::vector<float> values, expected;
    const auto floats = [](const TensorView& view) {
      return std::span<float>{static_cast<float*>(view.data), view.count()};
    };
    on_ranks(from, [&](ProcessGroup& group) {
      Trained trained{group, GradientMode::reduce_scatter, true};
      trained.train(samples, 5);
      const std::scoped_lock lock{mutex};
      for (const StateTensor& tensor : trained.optimizer->state()) {
        CHECK(tensor.placement == Placement::sharded);
        const auto view = floats(tensor.view);
        pieces[tensor.name][group.rank()] = {view.begin(), view.end()};
      }
      text = trained.optimizer->state_text();
      values = trained.net.all_values();
    });
    REQUIRE(pieces.size() == 8);

    std::map<std::string, std::size_t> taken;
    std::vector<std::vector<float>> resumed(static_cast<std::size_t>(to));
    auto groups = acc::testing::thread_groups(to);
    std::vector<std::unique_ptr<Trained>> all(static_cast<std::size_t>(to));
    acc::testing::on_all(groups, [&](ProcessGroup& group) {
      auto& trained = all[static_cast<std::size_t>(group.rank())];
      trained = std::make_unique<Trained>(group, GradientMode::reduce_scatter, true);
      trained->optimizer->load_state_text(text);
      std::size_t at = 0;
      for (const Parameter& parameter : trained->reducer.parameters()) {
        auto view = floats(parameter.value);
        std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(at), view.size(), view.begin());
        at += view.size();
      }
    });
    for (const auto& trained : all) {  // in the order of the ranks
      for (const StateTensor& tensor : trained->optimizer->state()) {
        std::vector<float> whole;
        for (const auto& [rank, piece] : pieces.at(tensor.name))
          whole.insert(whole.end(), piece.begin(), piece.end());
        const auto view = floats(tensor.view);
        REQUIRE(taken[tensor.name] + view.size() <= whole.size());
        std::copy_n(whole.begin() + static_cast<std::ptrdiff_t>(taken[tensor.name]), view.size(),
                    view.begin());
        taken[tensor.name] += view.size();
      }
    }
    for (const auto& [name, ranks] : pieces) {
      std::size_t size = 0;
      for (const auto& [rank, piece] : ranks) size += piece.size();
      CHECK(taken[name] == size);
    }
    acc::testing::on_all(groups, [&](ProcessGroup& group) {
      auto& trained = all[static_cast<std::size_t>(group.rank())];
      trained->train(samples, 5);
      resumed[static_cast<std::size_t>(group.rank())] = trained->net.all_values();
    });
    CHECK(all[0]->optimizer->steps() == 10);

    // Undisturbed on the new number of ranks: the same but for the order of the first five sums.
    on_ranks(to, [&](ProcessGroup& group) {
      Trained trained{group, GradientMode::all_reduce, true};
      trained.train(samples, 10);
      const std::scoped_lock lock{mutex};
      expected = trained.net.all_values();
    });
    for (const auto& result : resumed) {
      CHECK(result == resumed[0]);
      for (std::size_t i = 0; i < result.size(); ++i)
        REQUIRE(result[i] == Approx(expected[i]).margin(2e-4));
    }
  }
}

TEST_CASE("a text that no optimizer wrote is refused", "[runtime][training]") {
  std::vector<float> values(2), gradient(2);
  Sgd sgd{{{"w", std::span<float>{values}, std::span<float>{gradient}}}, {}};
  for (const char* text : {"", "[]", "{}", R"({"steps": -1, "learning_rate": 0.1})",
                           R"({"steps": 3, "learning_rate": "x"})"})
    CHECK_THROWS_AS(sgd.load_state_text(text), Error);
  sgd.load_state_text(R"({"steps": 3, "learning_rate": 0.25})");
  CHECK(sgd.steps() == 3);
  CHECK(sgd.learning_rate() == 0.25);
}

TEST_CASE("settings that torch refuses are refused, each by its name", "[runtime][training]") {
  std::vector<float> values(3), gradient(3);
  const std::vector<Parameter> parameters{{"w", std::span{values}, std::span{gradient}}};
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  const auto refused = [&](const auto& make) -> std::string {
    try {
      make();
    } catch (const Error& error) {
      return error.code() == ErrorCode::invalid_argument ? error.what() : "another code";
    }
    return "made";
  };
  const auto sgd = [&](const SgdOptions& options) {
    return refused([&] { const Sgd made{parameters, options}; });
  };
  const auto adamw = [&](const AdamWOptions& options) {
    return refused([&] { const AdamW made{parameters, options}; });
  };
  for (const double beta : {1.0, 1.5, -0.1, kNaN}) {
    INFO(beta);
    CHECK(adamw({.beta1 = beta}) != "made");
    CHECK_THAT(adamw({.beta2 = beta}), Catch::Contains("beta2"));
  }
  CHECK_THAT(adamw({.beta1 = 1}), Catch::Contains("beta1"));
  CHECK_THAT(adamw({.epsilon = -1e-8}), Catch::Contains("epsilon"));
  CHECK_THAT(adamw({.epsilon = kNaN}), Catch::Contains("epsilon"));
  CHECK_THAT(adamw({.learning_rate = -1}), Catch::Contains("negative learning rate"));
  CHECK_THAT(sgd({.learning_rate = -1}), Catch::Contains("negative learning rate"));
  CHECK_THAT(sgd({.momentum = -0.5}), Catch::Contains("negative momentum"));
  CHECK_THAT(sgd({.weight_decay = -1}), Catch::Contains("negative weight decay"));
  CHECK_THAT(sgd({.nesterov = true}), Catch::Contains("nesterov"));
  CHECK_THAT(sgd({.momentum = 0.9, .dampening = 0.1, .nesterov = true}),
             Catch::Contains("nesterov"));
  CHECK(adamw({.learning_rate = 0, .beta1 = 0, .beta2 = 0, .epsilon = 0}) == "made");
  CHECK(sgd({.momentum = 2, .nesterov = true}) == "made");  // as torch
  AdamW well{parameters, {}};
  CHECK_THAT(refused([&] { well.set_momentum(0, 2); }), Catch::Contains("beta1"));
  CHECK(well.groups()[0].momentum == 0.9);

  Sgd plain{parameters, {}};
  CHECK_THAT(refused([&] { plain.set_momentum(0, 0.9); }),
             Catch::Contains("a momentum of 0.9 for an optimizer made without one"));
  CHECK(plain.groups()[0].momentum == 0);
  plain.set_momentum(0, 0);

  Parameter empty = parameters.front();
  empty.value.data = nullptr;
  CHECK_THAT(refused([&] {
               const Sgd made{std::vector{empty}, SgdOptions{}};
             }),
             Catch::Contains("the value of 'w' has no memory"));
}

TEST_CASE("a momentum that a group got after it was made is there after a resume",
          "[runtime][training]") {
  std::vector<float> values(2), gradients(2, 1);
  const std::vector<Parameter> parameters{
      {"w", std::span<float>{values}, std::span<float>{gradients}}};
  const SgdOptions options{
      .groups = {
          {.name = "moving", .contains = [](const Parameter&) { return false; }, .momentum = 0.9}}};
  Sgd first{parameters, options};
  first.set_momentum(0, 0.5);
  Sgd second{parameters, options};
  second.load_state_text(first.state_text());
  CHECK(second.groups()[0].momentum == 0.5);
  Sgd plain{parameters, {.groups = {{.name = "moving", .contains = options.groups[0].contains}}}};
  plain.load_state_text(first.state_text());  // its tensors are told of by load_state()
  CHECK(plain.groups()[0].momentum == 0);
}

TEST_CASE("after a resume all settings are those of the checkpoint, as in torch",
          "[runtime][training]") {
  std::vector<float> values(2), gradients(2, 1);
  const std::vector<Parameter> parameters{
      {"w", std::span<float>{values}, std::span<float>{gradients}}};
  const auto resumed = [&](auto kind, const auto& then, const auto& now) {
    using Kind = typename decltype(kind)::type;
    const Kind first{parameters, then};
    Kind second{parameters, now};
    second.load_state_text(first.state_text());
    CHECK(second.description() == first.description());
    return second.groups()[0].weight_decay;
  };
  CHECK(resumed(std::type_identity<Sgd>{},
                SgdOptions{.momentum = 0.9, .weight_decay = 0.25, .nesterov = true},
                SgdOptions{.momentum = 0.5, .dampening = 0.5, .weight_decay = 0.125}) == 0.25);
  CHECK(resumed(std::type_identity<AdamW>{},
                AdamWOptions{.beta1 = 0.5, .beta2 = 0.75, .epsilon = 1e-3, .weight_decay = 0},
                AdamWOptions{}) == 0);

  AdamW adamw{parameters, {.weight_decay = 0.25}};
  adamw.load_state_text(R"({"steps": 1, "groups": [{"learning_rate": 1, "momentum": 0.5}]})");
  CHECK(adamw.groups()[0].weight_decay == 0.25);  // a checkpoint of a version that didn't save it
  adamw.set_weight_decay(0, 0.5);
  CHECK(adamw.groups()[0].weight_decay == 0.5);
  CHECK_THROWS_WITH(adamw.set_weight_decay(0, -1), Catch::Contains("negative weight decay"));
  CHECK_THROWS_WITH(adamw.set_weight_decay(1, 0), Catch::Contains("no group 1"));
}

TEST_CASE("parameters that share memory are refused, with both of them", "[runtime][training]") {
  std::vector<float> memory(8), gradients(8);
  const auto part = [](std::vector<float>& of, std::size_t from) {
    return std::span<float>{of}.subspan(from, 4);
  };
  const Parameter head{"head", part(memory, 0), part(gradients, 0)};
  const auto refused = [&](Parameter other, const std::string& why) {
    CHECK_THROWS_WITH((Sgd{{other, head}, {}}), Catch::Contains(why));
    on_ranks(1, [&](ProcessGroup& group) {
      CHECK_THROWS_WITH((GradientReducer{group, {other, head}}), Catch::Contains(why));
    });
  };
  refused({"tail", part(memory, 3), part(gradients, 4)},
          "the value of parameter 0 ('tail') and the value of parameter 1 ('head') share memory");
  refused({"tail", part(memory, 4), part(gradients, 1)},
          "the gradient of parameter 0 ('tail') and the gradient of parameter 1 ('head') share");
  refused({"", part(memory, 4), part(memory, 4)},
          "the value of parameter 0 and the gradient of parameter 0 share memory");
  const Sgd made{{{"tail", part(memory, 4), part(gradients, 4)}, head}, {}};
  CHECK(made.parameters().size() == 2);
}

TEST_CASE("parameters without gradient are refused", "[runtime][training]") {
  std::vector<float> values(2);
  Parameter parameter{"w", std::span<float>{values}, {}};
  CHECK_THROWS_WITH((Sgd{{parameter}, {}}), Catch::Contains("'w'"));
}
