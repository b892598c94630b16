#include "agent/lease_terms.hpp"
#include "tests/unit/agent/coordinated.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <vector>

using namespace acc;
using namespace acc::agent;
using std::chrono::seconds;

namespace {

/// A coordinated node and a model of what lives on it, fed with whatever may happen in an order
/// drawn from a seed.
class AnyOrder {
 public:
  explicit AnyOrder(std::uint32_t seed) : dice_{seed * 2654435761U + 1} {
    story_.group.size = 1 + roll(4);
    if (roll(2) == 0) story_.group.terminal.rank = LocalRank{0};
    lives_.assign(story_.group.size, false);
    feed(Began{story_.now});
  }
  bool go_on() {
    story_.now += Millis{roll(3000)};
    switch (roll(10)) {
      case 0:
      case 1:
        worker_ends();
        break;
      case 2:
      case 3:
        if (living() == 0 && !starting_) feed(Emptied{story_.now, roll(2) == 0, 0.5});
        break;
      case 4:
        feed(TimerFired{static_cast<Timer>(roll(kTimers)), story_.now});
        break;
      case 5:
        feed(RoundOrdered{Round{roll(40)}, {}, story_.now});
        break;
      case 6:
        if (starting_) answer_start();
        break;
      default:
        something_rare();
    }
    return finishes_ == 0;
  }
  [[nodiscard]] std::uint32_t rounds() const { return rounds_; }

 private:
  std::uint32_t roll(std::uint32_t n) {
    dice_ = dice_ * 1664525U + 1013904223U;
    return (dice_ >> 8U) % n;
  }
  [[nodiscard]] std::ptrdiff_t living() const { return std::ranges::count(lives_, true); }

  void worker_ends() {
    const auto who = roll(story_.group.size);
    if (!lives_[who]) return;
    lives_[who] = false;
    const ExitStatus ends[] = {Exited{0}, Exited{0}, Signaled{SIGKILL}, Exited{1}};
    const ExitStatus status = ends[roll(std::size(ends))];
    feed(WorkerExited{LocalRank{who}, status, story_.now, false, roll(2) == 0});
  }
  void answer_start() {
    starting_ = false;
    constexpr int kErrors[] = {EAGAIN, ENOENT, ETIME};
    if (const auto which = roll(12); which < 3) {
      feed(StartFailed{{LocalRank{0}, kErrors[which], which == 2 ? kLeaseStep : "x"}, story_.now});
    } else {
      lives_.assign(lives_.size(), true);
      feed(RoundStarted{story_.now});
    }
  }
  void something_rare() {
    const Event events[] = {
        StopOrdered{roll(2) == 0 ? 0 : SIGINT, Millis{roll(5) * 1000}, roll(8) == 0, story_.now,
                    roll(2) == 0},
        SignalOrdered{SIGUSR1},
        LeaseOver{story_.now},
        SignalArrived{SIGUSR1, story_.now},
        SignalArrived{roll(2) == 0 ? SIGINT : SIGTERM, story_.now},
        JobClosed{{Outcome::failed, 1}, story_.now},
        GuardianLost{story_.now},
        StopAsked{Millis{roll(4) * 1000}, story_.now},
        RestartAsked{story_.now},
        TerminalInterrupted{story_.now},
    };
    const auto which = roll(40);
    if (which < std::size(events) && (which < 4 || roll(4) == 0)) feed(events[which]);
  }

  void feed(const Event& event) {
    for (const auto& action : step(story_.group, event)) std::visit(*this, action);
    REQUIRE((story_.group.phase != Phase::awaiting || living() == 0));
  }

 public:  // std::visit calls these
  void operator()(const StartRound& start) {
    REQUIRE(living() == 0);
    REQUIRE_FALSE(starting_);
    // The next try of the same round is still the same start.
    REQUIRE((!is_owed_ || start.round == last_));
    REQUIRE((is_owed_ || rounds_ == 0 || start.round > last_));
    last_ = start.round;
    starting_ = true;
    is_owed_ = true;
    ++rounds_;
  }
  void operator()(const ReportCompleted&) {
    REQUIRE(living() == 0);
    REQUIRE(is_owed_);
    is_owed_ = false;
  }
  void operator()(const ReportStopped&) {
    REQUIRE(living() == 0);
    REQUIRE_FALSE(starting_);
    is_owed_ = false;
  }
  void operator()(const Finish& finish) {
    ++finishes_;
    REQUIRE(finishes_ == 1);
    REQUIRE((finish.end.outcome == Outcome::unkillable || living() == 0));
    REQUIRE_FALSE(starting_);
    is_owed_ = false;
  }
  void operator()(const KillAll&) { starting_ = false; }  // gives up a start
  template <class Other>
  void operator()(const Other&) {}

  /// All ends that are due come at last: is the start answered?
  void settle() {
    if (starting_) answer_start();
    for (int i = 0; i < 200 && is_owed_ && finishes_ == 0; ++i) {
      story_.now += seconds{10};
      for (std::uint32_t who = 0; who < lives_.size(); ++who) {
        if (!lives_[who]) continue;
        lives_[who] = false;
        feed(WorkerExited{LocalRank{who}, Exited{0}, story_.now});
      }
      feed(TimerFired{Timer::interrupt, story_.now});
      feed(TimerFired{Timer::culprit, story_.now});
      feed(Emptied{story_.now, false, 0.5});
      feed(TimerFired{Timer::backoff, story_.now});
      if (starting_) answer_start();
    }
    REQUIRE_FALSE(is_owed_);
  }

 private:
  Story story_;
  std::vector<bool> lives_;
  std::uint32_t dice_;
  bool starting_ = false;  ///< StartRound was said, RoundStarted not yet
  bool is_owed_ = false;   ///< a started round has no report yet
  Round last_{0};
  std::uint32_t rounds_ = 0;
  int finishes_ = 0;
};

}  // namespace

TEST_CASE("no order of events starts a round over a living one or leaves one without a report (P1)",
          "[agent][supervisor]") {
  std::uint32_t rounds = 0;
  for (std::uint32_t seed = 1; seed <= 3000; ++seed) {
    INFO("seed " << seed);
    AnyOrder node{seed};
    for (int i = 0; i < 200 && node.go_on(); ++i) {
    }
    node.settle();
    rounds += node.rounds();
  }
  CHECK(rounds > 3000);  // the dice do reach the interesting part
}
