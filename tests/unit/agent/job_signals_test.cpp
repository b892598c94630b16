#include "agent/job_signals.hpp"

#include "agent/interrupt_watch.hpp"

#include <catch2/catch.hpp>

#include <unistd.h>

#include <csignal>
#include <string>
#include <utility>
#include <vector>

using namespace acc;
using namespace acc::agent;

namespace {

/// The signals of this process, and what they led to.
struct ReadSignals {
  sigset_t mask_before{};
  boost::asio::io_context io{1};
  GroupState group;
  std::vector<std::string> seen;
  std::function<void()> stacks_done;
  bool can_collect = true;
  bool is_guardian_gone = false;
  std::optional<JobSignals> signals;

  ReadSignals() {
    ::sigprocmask(SIG_BLOCK, nullptr, &mask_before);
    group.phase = Phase::running;
    signals.emplace(io, group, ::getppid(), hooks());
    signals->watch();
  }
  ~ReadSignals() {
    static_cast<void>(signals->end_asked());
    ::sigprocmask(SIG_SETMASK, &mask_before, nullptr);
  }
  ReadSignals(const ReadSignals&) = delete;
  ReadSignals& operator=(const ReadSignals&) = delete;

  JobSignals::Hooks hooks() {
    return {[this](const Event& event) { note(event); },
            [this] { seen.emplace_back("child"); },
            [this](int signo) { seen.push_back("passed on " + signal_name(signo)); },
            [this] { seen.emplace_back("press"); },
            [this] { return is_guardian_gone; },
            [this](int signo, std::function<void()> done) {
              if (!can_collect) return false;
              seen.push_back("stacks before " + signal_name(signo));
              stacks_done = std::move(done);
              return true;
            }};
  }
  void note(const Event& event) {
    if (std::holds_alternative<GuardianLost>(event)) {
      seen.emplace_back("guardian lost");
      return;
    }
    const auto* arrived = std::get_if<SignalArrived>(&event);
    REQUIRE(arrived != nullptr);
    if (arrived->signo == SIGINT) ++group.interrupts;
    seen.push_back(signal_name(arrived->signo) + (signals->is_of_two_presses() ? ", of two" : ""));
  }
  std::vector<std::string> after(int signo) {
    ::kill(::getpid(), signo);
    io.restart();
    io.poll();
    return std::exchange(seen, {});
  }
  std::vector<std::string> after_terminal() { return after(terminal_interrupt_signal()); }
};

using Words = std::vector<std::string>;

}  // namespace

TEST_CASE("a signal that may end the job is an event, the others are not", "[agent][signals]") {
  ReadSignals signals;
  CHECK(signals.after(SIGTERM) == Words{"SIGTERM"});
  CHECK(signals.after(SIGUSR1) == Words{"SIGUSR1"});
  CHECK(signals.after(SIGCHLD) == Words{"child"});
  CHECK(signals.after(SIGWINCH) == Words{"passed on SIGWINCH"});
}

TEST_CASE("SIGTERM of the kernel for a dead guardian is no signal to the job", "[agent][signals]") {
  ReadSignals signals;
  signals.is_guardian_gone = true;
  CHECK(signals.after(SIGTERM) == Words{"guardian lost"});
}

TEST_CASE("SIGQUIT ends the workers after their stacks were collected", "[agent][signals]") {
  ReadSignals signals;
  CHECK(signals.after(SIGQUIT) == Words{"stacks before SIGQUIT"});
  SECTION("and a second one doesn't wait for them") {
    CHECK(signals.after(SIGQUIT) == Words{"SIGQUIT"});
  }
  SECTION("when they are there") {
    signals.stacks_done();
    CHECK(signals.seen == Words{"SIGQUIT"});
  }
  SECTION("also where a failure has ended the round by then, and another would follow") {
    signals.group.phase = Phase::stopping;
    signals.stacks_done();
    CHECK(signals.seen.empty());  // not within the event that ended it
    signals.io.restart();
    signals.io.poll();
    CHECK(signals.seen == Words{"SIGQUIT"});
  }
}

TEST_CASE("SIGQUIT doesn't wait for stacks that can't be collected", "[agent][signals]") {
  ReadSignals signals;
  SECTION("as another collection is under way") { signals.can_collect = false; }
  SECTION("as no worker runs") { signals.group.phase = Phase::backing_off; }
  CHECK(signals.after(SIGQUIT) == Words{"SIGQUIT"});
}

TEST_CASE("Ctrl-C in a worker's terminal is a press there, and no signal to the job",
          "[agent][signals]") {
  ReadSignals signals;
  CHECK(signals.after_terminal() == Words{"press"});
  signals.group.phase = Phase::backing_off;  // nobody is there whose terminal it could be
  CHECK(signals.after_terminal().empty());
}

TEST_CASE("SIGINT of a process just behind a Ctrl-C in a worker's terminal isn't lost",
          "[agent][signals]") {
  ReadSignals signals;
  ::kill(::getpid(), terminal_interrupt_signal());
  ::kill(::getpid(), terminal_interrupt_signal());
  CHECK(signals.after(SIGINT) == Words{"press", "press", "SIGINT"});
}

TEST_CASE("Ctrl-C that ended a worker is told before its end", "[agent][signals]") {
  ReadSignals signals;
  ::kill(::getpid(), SIGCHLD);
  CHECK(signals.after_terminal() == Words{"press", "child"});
}

TEST_CASE("Ctrl-C in a worker's terminal after the job hurries the rest of the output",
          "[agent][signals]") {
  ReadSignals signals;
  signals.signals->stop();
  CHECK(signals.after_terminal().empty());
  CHECK(signals.signals->end_asked());
}

TEST_CASE("two presses in a worker's terminal are two interrupts of the job", "[agent][signals]") {
  ReadSignals signals;
  signals.signals->stop_from_terminal();
  CHECK(std::exchange(signals.seen, {}) == Words{"SIGINT, of two", "SIGINT, of two"});
  signals.signals->stop_from_terminal();
  CHECK(signals.seen == Words{"SIGINT"});
}

TEST_CASE("after the job a signal only hurries the rest of the output", "[agent][signals]") {
  ReadSignals signals;
  signals.signals->stop();
  CHECK(signals.after(SIGINT).empty());
  CHECK(signals.signals->end_asked());
  CHECK(signals.signals->end_asked());  // also the next time
}

TEST_CASE("after the job a signal that asks for no end hurries nothing", "[agent][signals]") {
  ReadSignals signals;
  signals.signals->stop();
  CHECK(signals.after(SIGCHLD).empty());
  CHECK_FALSE(signals.signals->end_asked());
}
