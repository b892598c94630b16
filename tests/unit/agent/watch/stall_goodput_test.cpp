#include "agent/job_name.hpp"
#include "agent/watch/goodput.hpp"
#include "agent/watch/learned_times.hpp"
#include "agent/watch/stall_detector.hpp"
#include "tests/support/temporary_folder.hpp"

#include <catch2/catch.hpp>

#include <chrono>
#include <fstream>

using namespace acc;
using namespace acc::agent;
using namespace std::chrono_literals;

static const Instant kBegin{1000s};

TEST_CASE("a job whose workers do nothing for the time-out has stalled, told once",
          "[agent][stall]") {
  StallDetector stall{60s};
  stall.begin(kBegin);
  std::vector<WorkerUsage> usage{{100, 5}, {200, 6}};
  CHECK_FALSE(stall.look(usage, kBegin + 10s));
  CHECK_FALSE(stall.look(usage, kBegin + 69s));
  usage[0].cpu_ms += 20;  // a timer that woke it up
  CHECK(stall.look(usage, kBegin + 70s) == 60s);
  CHECK_FALSE(stall.look(usage, kBegin + 140s));
  usage[1].io_bytes += 1;
  CHECK_FALSE(stall.look(usage, kBegin + 150s));
  CHECK(stall.look(usage, kBegin + 210s) == 60s);
}

TEST_CASE("a stall was told again and again, as reading its stacks made the workers run",
          "[agent][stall]") {
  StallDetector stall{60s};
  stall.begin(kBegin);
  std::vector<WorkerUsage> usage{{100, 5}, {200, 6}};
  CHECK_FALSE(stall.look(usage, kBegin + 10s));
  CHECK(stall.look(usage, kBegin + 70s) == 60s);
  usage[0].cpu_ms += 500;
  usage[1].io_bytes += 1000;
  stall.leave_out(2s, usage);
  CHECK_FALSE(stall.look(usage, kBegin + 80s));
  CHECK_FALSE(stall.look(usage, kBegin + 300s));
  usage[1].io_bytes += 1;  // work of its own
  CHECK_FALSE(stall.look(usage, kBegin + 310s));
  CHECK(stall.look(usage, kBegin + 370s) == 60s);
}

TEST_CASE("a stall was told again and again, as timers of libraries woke the workers up",
          "[agent][stall]") {
  StallDetector stall{5s};
  stall.begin(kBegin);
  std::vector<WorkerUsage> usage{{100, 5}};
  std::size_t told = 0;
  for (Instant now = kBegin; now < kBegin + 300s; now += 500ms) {
    usage[0].cpu_ms += now < kBegin + 30s ? 10 : 18;  // 2 to 3.6 %: near the limit
    if (stall.look(usage, now)) ++told;
  }
  CHECK(told == 1);
  usage[0].cpu_ms += 300;
  CHECK_FALSE(stall.look(usage, kBegin + 301s));
  CHECK(stall.look(usage, kBegin + 306s) == 5s);
}

// Cumulative processor time at each look: `share` of one core, the kernel's ticks are 10 ms.
static std::optional<Millis> told_with(double share, Millis timeout, Millis until) {
  StallDetector stall{timeout};
  stall.begin(kBegin);
  for (Millis at{0}; at <= until; at += stall.interval()) {
    const auto ticks = static_cast<std::uint64_t>(share * static_cast<double>(at.count()) / 10);
    if (stall.look({{100, 5}, {3000 + 10 * ticks, 6}}, kBegin + at)) return at;
  }
  return std::nullopt;
}

TEST_CASE("a stuck job of gloo was never told with a time-out of 30 s or more", "[agent][stall]") {
  const Millis timeout = GENERATE(Millis{2s}, Millis{10s}, Millis{30s}, Millis{45s}, Millis{30min});
  // One group of gloo; seven; rank 0 asks the rendezvous store for a rank that never comes.
  const double share = GENERATE(0.0015, 0.0065, 0.0124);
  CAPTURE(timeout.count(), share);
  const auto told = told_with(share, timeout, 2 * timeout);
  REQUIRE(told);
  CHECK(*told <= timeout + timeout / 4);
  CHECK_FALSE(told_with(0.2, timeout, 3 * timeout));
}

TEST_CASE("a job that works for a second every five minutes, and moves no byte, hasn't stalled",
          "[agent][stall]") {
  StallDetector stall{30min};
  stall.begin(kBegin);
  WorkerUsage usage{100, 5};
  Millis worked{0};
  for (Millis at{0}; at <= Millis{3h}; at += stall.interval()) {
    if (at >= worked + Millis{5min}) {
      usage.cpu_ms += 1000;  // a third of a percent, in one go
      worked = at;
    }
    REQUIRE_FALSE(stall.look({{100, 5}, usage}, kBegin + at));
  }
}

TEST_CASE("stacks that are asked for again and again put off no stall", "[agent][stall]") {
  StallDetector stall{60s};
  stall.begin(kBegin);
  std::vector<WorkerUsage> usage{{100, 5}};
  Instant now = kBegin;
  CHECK_FALSE(stall.look(usage, now));
  for (int i = 0; i < 7; ++i) {
    now += 8s;
    CHECK_FALSE(stall.look(usage, now));
    usage[0].io_bytes += 1000;
    now += 1s;
    stall.leave_out(1s, usage);
  }
  CHECK(stall.look(usage, now + 4s) == 60s);
}

TEST_CASE("one worker that computes, prints or ends is enough", "[agent][stall]") {
  StallDetector stall{60s};
  stall.begin(kBegin);
  std::vector<WorkerUsage> usage{{100, 5}, {200, 6}};
  stall.look(usage, kBegin);
  stall.look(usage, kBegin + 54s);
  SECTION("computes") { usage[1].cpu_ms += 500; }
  SECTION("prints") { usage[0].io_bytes += 1; }
  SECTION("ends") { usage.pop_back(); }
  CHECK_FALSE(stall.look(usage, kBegin + 61s));
}

TEST_CASE("no worker is no stall", "[agent][stall]") {
  StallDetector stall{60s};
  stall.begin(kBegin);
  CHECK_FALSE(stall.look({}, kBegin));
  CHECK_FALSE(stall.look({}, kBegin + 10min));
}

TEST_CASE("a node whose workers had completed counted the whole attempt as a restart",
          "[agent][goodput]") {
  Goodput goodput{kBegin};
  goodput.round_started(kBegin);
  goodput.checkpoint(kBegin + 10s);
  goodput.round_ended(false, kBegin + 20s);
  CHECK(goodput.at(kBegin + 21s).restarting == 0s);  // the job may be over
  goodput.round_failed_elsewhere(kBegin + 22s);
  CHECK(goodput.at(kBegin + 24s).restarting == 2s);
  CHECK(goodput.at(kBegin + 24s).lost_work == 10s);
  goodput.round_started(kBegin + 25s);
  CHECK(goodput.at(kBegin + 40s).restarting == 3s);
  CHECK(goodput.at(kBegin + 40s).lost_work == 10s);
}

TEST_CASE("a node whose rank was done early counted what the others computed after it as a restart",
          "[agent][goodput]") {
  Goodput goodput{kBegin};
  goodput.round_started(kBegin);
  goodput.round_ended(false, kBegin + 10s);
  SECTION("its coordinator told it of the failure") {
    goodput.round_failed_elsewhere(kBegin + 60s);
    goodput.round_failed_elsewhere(kBegin + 61s);  // the first one counts
    goodput.round_started(kBegin + 62s);
    CHECK(goodput.at(kBegin + 70s).restarting == 2s);
  }
  SECTION("a failure from before its own end, reported late") {
    goodput.round_failed_elsewhere(kBegin + 9s);
    goodput.round_started(kBegin + 12s);
    CHECK(goodput.at(kBegin + 20s).restarting == 2s);
  }
  SECTION("the coordinator was lost, and its successor knows of no failure") {
    goodput.round_started(kBegin + 62s);
    CHECK(goodput.at(kBegin + 70s).restarting == 0s);
  }
}

TEST_CASE("a failure elsewhere is no end of workers that run", "[agent][goodput]") {
  Goodput goodput{kBegin};
  goodput.round_failed_elsewhere(kBegin + 1s);
  CHECK(goodput.at(kBegin + 4s).restarting == 0s);  // none has run
  goodput.round_started(kBegin + 4s);
  goodput.round_failed_elsewhere(kBegin + 10s);  // they are ended for it, and that counts
  CHECK(goodput.at(kBegin + 20s).restarting == 0s);
  goodput.round_ended(true, kBegin + 10s);
  goodput.round_failed_elsewhere(kBegin + 15s);
  goodput.round_started(kBegin + 20s);
  CHECK(goodput.at(kBegin + 20s).waiting == 4s);
  CHECK(goodput.at(kBegin + 20s).restarting == 10s);
}

TEST_CASE("goodput: waiting, restarts and work after the last checkpoint are lost",
          "[agent][goodput]") {
  Goodput goodput{kBegin};
  goodput.round_started(kBegin + 10s);
  goodput.checkpoint(kBegin + 60s);
  goodput.round_ended(true, kBegin + 90s);  // 30 s of work lost
  goodput.round_started(kBegin + 100s);
  const auto figures = goodput.at(kBegin + 200s);
  CHECK(figures.total == 200s);
  CHECK(figures.waiting == 10s);
  CHECK(figures.restarting == 10s);
  CHECK(figures.lost_work == 30s);
  CHECK(figures.goodput() == Approx(0.75));
}

TEST_CASE("a checkpoint between a failure and its report loses no work", "[agent][goodput]") {
  Goodput goodput{kBegin};
  goodput.round_started(kBegin);
  goodput.checkpoint(kBegin + 50s);
  goodput.round_ended(true, kBegin + 49s);
  goodput.round_started(kBegin + 60s);
  CHECK(goodput.at(kBegin + 60s).lost_work == 0s);
  CHECK(goodput.at(kBegin + 60s).restarting == 11s);
}

TEST_CASE("without a reported checkpoint lost work isn't known", "[agent][goodput]") {
  Goodput goodput{kBegin};
  goodput.round_started(kBegin);
  goodput.round_ended(true, kBegin + 50s);
  goodput.round_ended(true, kBegin + 55s);  // the stop after the failure
  const auto figures = goodput.at(kBegin + 100s);
  CHECK_FALSE(figures.knows_checkpoints);
  CHECK(figures.lost_work == 0s);
  CHECK(figures.restarting == 50s);
  CHECK(figures.goodput() == Approx(0.5));
}

TEST_CASE("what a job of one script had taught held for all others whose script has that name",
          "[agent][hang]") {
  const auto mark = [](std::vector<std::string> words) {
    JobPlan plan;
    plan.command = std::move(words);
    CHECK(job_name(plan) == "train");
    return command_mark(plan);
  };
  const auto one = mark({"/usr/bin/python3", "-u", "/a/train.py", "--size", "7b"});
  CHECK(one.size() == 3);
  CHECK(one.find_first_not_of("0123456789abcdef") == std::string::npos);
  CHECK(mark({"/usr/bin/python3", "-u", "/a/train.py", "--size", "7b"}) == one);
  CHECK(mark({"/usr/bin/python3", "-u", "/b/train.py", "--size", "7b"}) != one);
  CHECK(mark({"/usr/bin/python3", "-u", "/a/train.py", "--size", "1b"}) != one);
  CHECK(mark({"/usr/bin/python3", "train.py"}) == mark({"/usr/bin/python3", "train.py"}));
  CHECK(mark({"/a/train"}) != mark({"/b/train"}));
  CHECK(job_name(JobPlan{}) == "job");
  CHECK(command_mark(JobPlan{}).size() == 3);
}

TEST_CASE("learned times are kept for the next run, a damaged file is none", "[agent][hang]") {
  const testing::TestFolder folder;
  const auto file = (folder / "a/b/job.times").string();
  write_learned_times(file, {12s, 90s});
  CHECK(read_learned_times(file) == LearnedTimes{12s, 90s});
  for (const std::string text : {"", "1", "1 2 3", "-5 3", "x y", "99999999999999999999 1"}) {
    std::ofstream{file} << text;
    CAPTURE(text);
    CHECK(read_learned_times(file) == LearnedTimes{});
  }
}
