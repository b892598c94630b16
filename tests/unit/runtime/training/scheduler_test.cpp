#include "tests/support/thread_groups.hpp"

#include <catch2/catch.hpp>

#include <acc/accelerator.hpp>
#include <acc/error.hpp>
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

using namespace acc::runtime;
using acc::testing::on_ranks;

namespace {

/// Rows of tests/golden/schedules/recorded.txt, by case: what torch 1.13 did.
using Rows = std::map<std::string, std::vector<std::vector<double>>>;

Rows recorded(const std::string& kind) {
  std::ifstream file{ACC_RECORDED_SCHEDULES};
  REQUIRE(file.is_open());
  Rows rows;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words{line};
    std::string its_kind, name, word;
    int number = 0;
    words >> its_kind >> name >> number;
    if (its_kind != kind) continue;
    auto& row = rows[name].emplace_back();
    while (words >> word) row.push_back(std::strtod(word.c_str(), nullptr));
  }
  return rows;
}

bool same(double one, double other) {
  return std::abs(one - other) <= 1e-14 * std::max(std::abs(one), std::abs(other));
}

/// Two groups of one parameter each, as the script's.
struct TwoGroups {
  std::vector<double> first{1.0, -2.0, 0.5}, second{1.0, -2.0, 0.5};
  std::vector<double> first_gradient = std::vector<double>(3), second_gradient = first_gradient;
  std::vector<Parameter> parameters() {
    return {{"first", TensorView{std::span{first}}, TensorView{std::span{first_gradient}}},
            {"second", TensorView{std::span{second}}, TensorView{std::span{second_gradient}}}};
  }
};

bool is_second(const Parameter& parameter) { return parameter.name == "second"; }

std::unique_ptr<Optimizer> sgd(TwoGroups& of, double rate, double other_rate) {
  return std::make_unique<Sgd>(
      of.parameters(),
      SgdOptions{.learning_rate = rate,
                 .momentum = 0.9,
                 .groups = {{.name = "b", .contains = is_second, .learning_rate = other_rate}}});
}

using MakeScheduler = std::function<std::unique_ptr<Scheduler>(Optimizer&)>;

MakeScheduler lambda(Schedule schedule) {
  return [schedule](Optimizer& optimizer) {
    return std::make_unique<LambdaScheduler>(optimizer, schedule);
  };
}
MakeScheduler one_cycle(OneCycleOptions options) {
  return [options](Optimizer& optimizer) {
    return std::make_unique<OneCycleScheduler>(optimizer, options);
  };
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

TEST_CASE("rates and momentum after each step are torch's", "[runtime][training]") {
  const std::map<std::string, MakeScheduler> makers{
      {"constant", lambda(constant_with_warmup(10))},
      {"constant-no-warmup", lambda(constant_with_warmup())},
      {"linear", lambda(linear_with_warmup(10, 100))},
      {"linear-no-warmup", lambda(linear_with_warmup(0, 7))},
      {"linear-all-warmup", lambda(linear_with_warmup(5, 5))},
      {"cosine", lambda(cosine_with_warmup(10, 100))},
      {"cosine-cycles", lambda(cosine_with_warmup(3, 50, 1.5))},
      {"lambda", lambda([](std::uint64_t step) { return std::pow(0.95, step); })},
      {"lambda-groups",
       [](Optimizer& optimizer) {
         const Schedule halves = [](std::uint64_t step) { return std::pow(0.5, step); };
         return std::make_unique<LambdaScheduler>(
             optimizer, std::vector<Schedule>{halves, linear_with_warmup(2, 10)});
       }},
      {"onecycle", one_cycle({.max_rate = 0.1, .total_steps = 30})},
      {"onecycle-linear",
       one_cycle({.max_rate = 0.1, .total_steps = 30, .anneal = OneCycleOptions::Anneal::linear})},
      {"onecycle-three", one_cycle({.max_rate = 0.1, .total_steps = 30, .three_phase = true})},
      {"onecycle-groups",
       one_cycle({.max_rates = {0.1, 0.02}, .total_steps = 17, .pct_start = 0.25})},
      {"onecycle-still", one_cycle({.max_rate = 0.1, .total_steps = 11, .cycle_momentum = false})},
      {"onecycle-adamw", one_cycle({.max_rate = 0.1,
                                    .total_steps = 20,
                                    .base_momentum = 0.7,
                                    .div_factor = 10,
                                    .final_div_factor = 100})},
  };
  const Rows all = recorded("rates");
  REQUIRE(all.size() == makers.size());
  for (const auto& [name, rows] : all) {
    TwoGroups parameters;
    const auto optimizer = name == "onecycle-adamw"
                               ? std::make_unique<AdamW>(
                                     parameters.parameters(),
                                     AdamWOptions{.groups = {{.name = "b", .contains = is_second}}})
                               : sgd(parameters, 0.1, 0.01);
    const auto scheduler = makers.at(name)(*optimizer);
    for (std::size_t step = 0; step < rows.size(); ++step) {
      if (step > 0) scheduler->step();
      INFO(name << " after " << step);
      for (std::size_t group = 0; group < 2; ++group) {
        CHECK(same(optimizer->groups()[group].learning_rate, rows[step][2 * group]));
        CHECK(same(optimizer->groups()[group].momentum, rows[step][2 * group + 1]));
      }
    }
    CHECK(scheduler->steps() + 1 == rows.size());
  }
}

TEST_CASE("groups with settings of their own move as torch's do", "[runtime][training]") {
  for (const auto& [name, rows] : recorded("weights")) {
    TwoGroups parameters;
    const ParameterGroup group{
        .name = "b", .contains = is_second, .learning_rate = 0.01, .weight_decay = 0};
    std::unique_ptr<Optimizer> optimizer;
    std::unique_ptr<Scheduler> scheduler;
    if (name == "sgd") {
      optimizer = std::make_unique<Sgd>(
          parameters.parameters(),
          SgdOptions{
              .learning_rate = 0.1, .momentum = 0.9, .weight_decay = 0.1, .groups = {group}});
      scheduler = std::make_unique<LambdaScheduler>(*optimizer, cosine_with_warmup(2, 12));
    } else {
      optimizer = std::make_unique<AdamW>(
          parameters.parameters(),
          AdamWOptions{.learning_rate = 0.1, .weight_decay = 0.1, .groups = {group}});
      scheduler = std::make_unique<OneCycleScheduler>(
          *optimizer, OneCycleOptions{.max_rates = {0.1, 0.05}, .total_steps = 12});
    }
    for (std::size_t step = 0; step < rows.size(); ++step) {
      for (std::size_t i = 0; i < 3; ++i) {
        const auto drift = 0.01 * static_cast<double>(step);
        parameters.first_gradient[i] = 0.3 * parameters.first[i] + drift;
        parameters.second_gradient[i] = 0.6 * parameters.second[i] + drift;
      }
      optimizer->step();
      scheduler->step();
      INFO(name << " after " << step + 1);
      for (std::size_t i = 0; i < 3; ++i) {
        CHECK(parameters.first[i] == Approx(rows[step][i]).epsilon(1e-12));
        CHECK(parameters.second[i] == Approx(rows[step][3 + i]).epsilon(1e-12));
      }
    }
  }
}

namespace {

struct LoopCase {
  MakeScheduler make;
  int processes = 1;
  std::uint64_t accumulation = 1;
  bool split = false;
  bool with_optimizer = true;
  std::vector<int> skipped = {};  ///< steps of the optimizer
  std::size_t epoch = 100;        ///< batches
};

/// Rate and steps of the scheduler after each of so many batches; the same on every rank.
std::vector<std::vector<double>> drive(ProcessGroup& group, const LoopCase& loop,
                                       std::size_t batches) {
  AcceleratorOptions options;
  options.gradient_accumulation_steps = loop.accumulation;
  options.mixed_precision = loop.skipped.empty() ? MixedPrecision::no : MixedPrecision::fp16;
  Accelerator accelerator{group, options};
  std::vector<float> value(2, 1.0F);
  GradientReducer& reducer = accelerator.prepare_model({{"w", std::span<float>{value}, {}}});
  Sgd optimizer{reducer, {.learning_rate = 0.1, .momentum = 0.9}};
  const auto scheduler = loop.make(optimizer);
  const auto processes = static_cast<std::size_t>(loop.processes);
  Dataset<int> dataset{loop.epoch * processes,
                       [](std::size_t index) { return static_cast<int>(index); }};
  auto loader = accelerator.data_loader(
      dataset, {.batch_size = loop.split ? processes : 1, .split_batches = loop.split});
  accelerator.prepare(optimizer);
  accelerator.prepare(loader);
  accelerator.prepare(*scheduler, {.step_with_optimizer = loop.with_optimizer});
  std::vector<std::vector<double>> rows;
  int steps = 0;
  while (rows.size() < batches) {
    for ([[maybe_unused]] const auto& batch : loader) {
      const auto accumulating = accelerator.accumulate();
      const bool bad = accelerator.sync_gradients() && std::ranges::count(loop.skipped, steps) > 0;
      accelerator.backward([&](double) {
        static_cast<float*>(reducer.gradient(0).data)[0] +=
            bad ? std::numeric_limits<float>::infinity() : 1.0F;
        reducer.ready(0);
      });
      steps += accelerator.sync_gradients() ? 1 : 0;
      accelerator.step(optimizer);
      accelerator.step(*scheduler);
      accelerator.zero_grad(optimizer);
      rows.push_back({optimizer.learning_rate(), static_cast<double>(scheduler->steps())});
      if (rows.size() == batches) break;
    }
  }
  return rows;
}

}  // namespace

TEST_CASE("a scheduler in a loop is stepped as Accelerate steps it", "[runtime][training]") {
  const MakeScheduler linear = lambda(linear_with_warmup(4, 40));
  const MakeScheduler cycle = one_cycle({.max_rate = 0.1, .total_steps = 20});
  const std::map<std::string, LoopCase> cases{
      {"linear-1", {.make = linear, .epoch = 5}},
      {"linear-2", {.make = linear, .processes = 2, .epoch = 5}},
      {"linear-3", {.make = linear, .processes = 3, .accumulation = 2, .epoch = 5}},
      {"linear-2-split", {.make = linear, .processes = 2, .split = true, .epoch = 5}},
      {"linear-2-alone",
       {.make = linear, .processes = 2, .accumulation = 3, .with_optimizer = false, .epoch = 5}},
      {"linear-2-skips",
       {.make = linear, .processes = 2, .accumulation = 2, .skipped = {0, 1, 3}, .epoch = 7}},
      {"onecycle-1", {.make = cycle}},
      {"onecycle-3", {.make = cycle, .processes = 3}},
      {"onecycle-2-accumulates", {.make = cycle, .processes = 2, .accumulation = 3}},
  };
  const Rows all = recorded("loop");
  REQUIRE(all.size() == cases.size());
  for (const auto& [name, rows] : all) {
    const LoopCase& loop = cases.at(name);
    std::atomic<int> right = 0;
    on_ranks(loop.processes, [&, &rows = rows](ProcessGroup& group) {
      const auto mine = drive(group, loop, rows.size());
      right += std::ranges::equal(mine, rows,
                                  [](const auto& one, const auto& other) {
                                    return same(one[0], other[0]) && one[1] == other[1];
                                  })
                   ? 1
                   : 0;
    });
    INFO(name);
    CHECK(right == loop.processes);
  }
}

TEST_CASE("what a scheduler can't do is refused in words", "[runtime][training]") {
  TwoGroups parameters;
  const auto optimizer = sgd(parameters, 0.1, 0.01);
  CHECK_THAT(refusal([&] { OneCycleScheduler{*optimizer, {}}; }), Catch::Contains("total_steps"));
  CHECK_THAT(refusal([&] {
               OneCycleScheduler{*optimizer, {.max_rates = {0.1}, .total_steps = 5}};
             }),
             Catch::Contains("1 max_rates for 2 groups"));
  CHECK_THAT(refusal([&] {
               LambdaScheduler{*optimizer, std::vector<Schedule>{linear_with_warmup(1, 2)}};
             }),
             Catch::Contains("1 schedules for 2 groups"));
  CHECK_THAT(refusal([&] { LambdaScheduler{*optimizer, Schedule{}}; }), Catch::Contains("empty"));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK_THAT(refusal([&] {
               LambdaScheduler{*optimizer, [&](std::uint64_t) { return nan; }};
             }),
             Catch::Contains("learning rate of nan"));
  Sgd still{parameters.parameters(), {.learning_rate = 1}};
  CHECK_THAT(refusal([&] {
               OneCycleScheduler{still, {.total_steps = 5}};
             }),
             Catch::Contains("no momentum to cycle"));
  OneCycleScheduler once{still, {.total_steps = 1, .cycle_momentum = false}};
  once.step();
  CHECK_THAT(refusal([&] { once.step(); }), Catch::Contains("1 steps are over"));

  Accelerator accelerator{ProcessGroup::single()};
  CHECK_THAT(refusal([&] { accelerator.step(once); }), Catch::Contains("isn't prepared"));
  accelerator.prepare(once);
  CHECK_THAT(refusal([&] { accelerator.prepare(once); }), Catch::Contains("prepared already"));
}

TEST_CASE("the state of a scheduler comes back, and that of another one doesn't fit",
          "[runtime][training]") {
  TwoGroups parameters;
  const auto optimizer = sgd(parameters, 0.1, 0.01);
  LambdaScheduler scheduler{*optimizer, linear_with_warmup(0, 10)};
  for (int i = 0; i < 4; ++i) scheduler.step();
  scheduler.count_accumulated_batch();
  const auto again = sgd(parameters, 7, 7);  // another rate than the run began with
  LambdaScheduler resumed{*again, linear_with_warmup(0, 10)};
  resumed.load_state_text(scheduler.state_text());
  again->load_state_text(optimizer->state_text());
  CHECK(resumed.steps() == 4);
  CHECK(resumed.count() == scheduler.count());
  CHECK(again->groups()[1].learning_rate == optimizer->groups()[1].learning_rate);
  scheduler.step();
  resumed.step();
  for (std::size_t group = 0; group < 2; ++group)
    CHECK(again->groups()[group].learning_rate == optimizer->groups()[group].learning_rate);
  Sgd one{parameters.parameters(), {.learning_rate = 1}};
  LambdaScheduler other{one, linear_with_warmup(0, 10)};
  CHECK_THAT(refusal([&] { other.load_state_text(scheduler.state_text()); }),
             Catch::Contains("2 groups"));
  CHECK_THAT(refusal([&] { one.load_state_text(optimizer->state_text()); }),
             Catch::Contains("2 groups"));
  for (const char* text : {"", "{}", "[]", R"({"steps":1})", R"({"steps":-1,"count":1})"})
    CHECK_THROWS_AS(resumed.load_state_text(text), Error);
}

TEST_CASE("a parameter belongs to the first group that contains it, else to group 0",
          "[runtime][training]") {
  TwoGroups parameters;
  const auto all = [](const Parameter&) { return true; };
  Sgd optimizer{parameters.parameters(),
                {.learning_rate = 1,
                 .weight_decay = 0.5,
                 .groups = {{.name = "b", .contains = is_second, .weight_decay = 0},
                            {.name = "all", .contains = all, .learning_rate = 3}}}};
  CHECK(optimizer.group_of(0) == 2);
  CHECK(optimizer.group_of(1) == 1);
  REQUIRE(optimizer.groups().size() == 3);
  CHECK(optimizer.groups()[1].learning_rate == 1);
  CHECK(optimizer.groups()[1].weight_decay == 0);
  CHECK(optimizer.groups()[2].learning_rate == 3);
  CHECK(optimizer.groups()[2].weight_decay == 0.5);
  optimizer.set_learning_rate(2, 4);
  CHECK(optimizer.learning_rate() == 1);
  optimizer.set_learning_rate(9);
  for (const GroupSettings& group : optimizer.groups()) CHECK(group.learning_rate == 9);
  CHECK_THAT(refusal([&] { optimizer.set_learning_rate(3, 1); }), Catch::Contains("no group 3"));
  CHECK_THAT(refusal([&] {
               Sgd{parameters.parameters(), {.groups = {{.name = "x", .contains = {}}}}};
             }),
             Catch::Contains("'x'"));
  CHECK_THAT(
      refusal([&] {
        Sgd{parameters.parameters(), {.learning_rate = std::numeric_limits<double>::infinity()}};
      }),
      Catch::Contains("learning rate of inf"));
}

TEST_CASE("optimizers and schedulers that differ between the ranks are told when they are prepared",
          "[runtime][training]") {
  std::vector<std::string> told(2), scheduled(2);
  on_ranks(2, [&](ProcessGroup& group) {
    Accelerator accelerator{group};
    std::vector<float> value(4);
    GradientReducer& reducer = accelerator.prepare_model({{"w", std::span<float>{value}, {}}});
    const auto rank = static_cast<std::size_t>(group.rank());
    Sgd other{reducer, {.learning_rate = 0.1 * (group.rank() + 1)}};
    told[rank] = refusal([&] { accelerator.prepare(other); });
    Sgd same{reducer, {.learning_rate = 0.1}};
    accelerator.prepare(same);
    LambdaScheduler scheduler{same, linear_with_warmup(0, 100 + 50 * rank)};
    scheduled[rank] = refusal([&] { accelerator.prepare(scheduler); });
    group.barrier();  // nothing is broken
  });
  CHECK(told[0] ==
        "prepare: the ranks have different optimizers: rank 0 has Sgd of 1 parameters, rate 0.1, "
        "rank 1 has Sgd of 1 parameters, rate 0.2");
  CHECK(told[1] == told[0]);
  CHECK_THAT(scheduled[0], Catch::Contains("different schedulers"));
  CHECK(scheduled[1] == scheduled[0]);
}
