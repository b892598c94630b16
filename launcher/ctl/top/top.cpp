#include "launcher/ctl/top/top.hpp"

#include "common/exit_status.hpp"
#include "common/host_name.hpp"
#include "launcher/ctl/invocation.hpp"
#include "launcher/ctl/top/fetcher.hpp"
#include "launcher/ctl/top/model.hpp"
#include "launcher/ctl/top/screen.hpp"
#include "launcher/ctl/top/view.hpp"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

namespace acc::ctl::top {

namespace {

constexpr Millis kInterval{1'000};
constexpr int kSignalBase = 128;

/// Signals as something to wait for.
class TerminalSignals {
 public:
  TerminalSignals() {
    sigset_t set;
    ::sigemptyset(&set);
    for (const int signo : {SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGTSTP, SIGCONT, SIGWINCH})
      ::sigaddset(&set, signo);
    ::sigprocmask(SIG_BLOCK, &set, nullptr);
    fd_.reset(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  }
  [[nodiscard]] int fd() const { return fd_.get(); }
  /// 0: none.
  [[nodiscard]] int take() const {
    signalfd_siginfo info{};
    const bool is_there = ::read(fd_.get(), &info, sizeof info) == sizeof info;
    return is_there ? static_cast<int>(info.ssi_signo) : 0;
  }

 private:
  UniqueFd fd_;
};

class Top {
 public:
  Top(std::unique_ptr<Screen> screen, const TerminalSignals& signals, Source source, Model model)
      : screen_{std::move(screen)},
        signals_{signals},
        fetcher_{std::move(source)},
        model_{std::move(model)} {}

  int run() {
    handle(Resized{screen_->size()});
    while (!model_.is_over && !ended_by_) {
      if (clock_now() >= due_ && !fetcher_.is_busy()) {
        fetcher_.ask(wish_of(model_));
        due_ = clock_now() + kInterval;
      }
      wait();
      screen_->draw(frame_of(model_));
    }
    return ended_by_.value_or(0);
  }

 private:
  void handle(const Event& event) {
    auto outcome = step(model_, event, now_ms());
    if (outcome.order) fetcher_.carry_out(*outcome.order);
    if (outcome.asks_now) due_ = clock_now();
  }

  void wait() {
    std::array<pollfd, 3> fds{
        {{STDIN_FILENO, POLLIN, 0}, {signals_.fd(), POLLIN, 0}, {fetcher_.fd(), POLLIN, 0}}};
    // While a question is out its answer wakes us; the time is shown all the same.
    const auto left = std::chrono::ceil<Millis>(due_ - clock_now());
    const auto patience = fetcher_.is_busy() && left <= Millis{0} ? kInterval : left;
    const int n =
        ::poll(fds.data(), fds.size(), static_cast<int>(std::max(Millis{0}, patience).count()));
    if (n <= 0) return handle(Tick{});
    if (fds[1].revents != 0) take_signals();
    if (fds[2].revents != 0) {
      for (const auto& answer : fetcher_.take()) handle(answer);
    }
    if ((fds[0].revents & (POLLHUP | POLLERR | POLLNVAL)) != 0) ended_by_ = kSignalBase + SIGHUP;
    if ((fds[0].revents & POLLIN) == 0) return;
    for (const auto& press : screen_->take_keys()) handle(press);
  }

  void take_signals() {
    while (const int signo = signals_.take()) {
      switch (signo) {
        case SIGINT:  // as in htop: the way to quit
          model_.is_over = true;
          break;
        case SIGTSTP:
          screen_->suspend();
          handle(Resized{screen_->size()});
          due_ = clock_now();
          break;
        case SIGCONT:
          screen_->redraw();
          break;
        case SIGWINCH:
          screen_->resize();
          handle(Resized{screen_->size()});
          break;
        default:
          ended_by_ = kSignalBase + signo;
      }
    }
  }

  std::unique_ptr<Screen> screen_;
  const TerminalSignals& signals_;
  Fetcher fetcher_;
  Model model_;
  Instant due_{};
  std::optional<int> ended_by_;
};

int fail_to_find(const Error& error) {
  return error.code == Errc::not_found ? fail(CtlExit::no_such_job, error.what) : fail(error);
}

}  // namespace

int run_top(const Command& command) {
  const Invocation call{command, find_services(command.value("--socket"))};
  Source source{call.services, call.at()};
  Model model;
  model.host = command.has("--node") ? command.value("--node") : host_name();
  if (!command.operands.empty()) {
    model.wanted = command.operands.front();
    model.page = Page::ranks;
    if (const auto found = source.look_up(model.wanted); !found) return fail_to_find(found.error());
  }
  auto screen = Screen::open();
  if (!screen) return fail(screen.error());
  const TerminalSignals signals;  // before there is another thread
  return Top{std::move(*screen), signals, std::move(source), std::move(model)}.run();
}

}  // namespace acc::ctl::top
