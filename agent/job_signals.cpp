#include "agent/job_signals.hpp"

#include "agent/interrupt_watch.hpp"
#include "agent/signal_sender.hpp"
#include "common/passed_signals.hpp"

#include <boost/asio/post.hpp>

#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>
#include <utility>

namespace acc::agent {

namespace {

int open_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signo : {SIGCHLD, SIGTSTP, SIGCONT, SIGWINCH, terminal_interrupt_signal()})
    ::sigaddset(&set, signo);
  struct sigaction hang_up {};
  ::sigaction(SIGHUP, nullptr, &hang_up);
  const bool has_nohup = hang_up.sa_handler == SIG_IGN;  // it stays ignored
  for (const int signo : kPassedSignals) {
    if (signo != SIGHUP || !has_nohup) ::sigaddset(&set, signo);
  }
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  return ::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

int open_presses() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, terminal_interrupt_signal());
  return ::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

bool read_one(int fd, signalfd_siginfo& info) {
  return ::read(fd, &info, sizeof info) == sizeof info;
}

}  // namespace

bool asks_for_end(const Event& event) {
  const auto* signal = std::get_if<SignalArrived>(&event);
  return signal != nullptr ? ends_any_job(signal->signo)
                           : std::holds_alternative<GuardianLost>(event);
}

JobSignals::JobSignals(boost::asio::io_context& io, const GroupState& group, pid_t guardian,
                       Hooks hooks)
    : group_{group},
      guardian_{guardian},
      hooks_{std::move(hooks)},
      signals_{io, open_signals()},
      presses_{open_presses()} {}

void JobSignals::watch() {
  signals_.async_wait(
      boost::asio::posix::stream_descriptor::wait_read, [this](boost::system::error_code error) {
        if (error) return;
        take_arrived();
        if (!is_stopped_) watch();
      });
}

// The kernel hands out lower numbers first. The key that ended a worker is told before its end is.
void JobSignals::take_presses() {
  signalfd_siginfo info{};
  while (!is_stopped_ && read_one(presses_.get(), info)) take_press();
}

void JobSignals::take_press() {
  if (group_.phase == Phase::running || group_.phase == Phase::stopping) hooks_.on_press();
}

void JobSignals::take_arrived() {
  using From = DeliveredSignals::From;
  signalfd_siginfo info{};
  for (take_presses(); !is_stopped_ && read_one(signals_.native_handle(), info); take_presses()) {
    const int signo = static_cast<int>(info.ssi_signo);
    if (signo == terminal_interrupt_signal()) {
      take_press();
      continue;
    }
    const bool is_of_guardian = static_cast<pid_t>(info.ssi_pid) == guardian_;
    const auto from = is_of_guardian            ? From::guardian
                      : is_of_job_manager(info) ? From::manager
                                                : From::other;
    if (signo == SIGCHLD || delivered_.take(signo, from, clock_now())) take(signo);
  }
}

void JobSignals::take(int signo) {
  switch (signo) {
    case SIGCHLD:
      return hooks_.on_child();
    case SIGTSTP:
    case SIGCONT:
    case SIGWINCH:
      return hooks_.on_job_control(signo);
    case SIGQUIT:
      return dump_stacks_before(signo);
    case SIGTERM:
      if (hooks_.is_guardian_gone()) return hooks_.on_event(GuardianLost{clock_now()});
      [[fallthrough]];
    default:
      hooks_.on_event(SignalArrived{signo, clock_now()});
  }
}

// As a core dump would, the stacks show what the workers were doing. A second signal doesn't wait.
void JobSignals::dump_stacks_before(int signo) {
  const auto stop = [this, signo] { hooks_.on_event(SignalArrived{signo, clock_now()}); };
  const bool is_second = std::exchange(stops_after_stacks_, true);
  if (group_.phase != Phase::running || is_second) return stop();
  const bool is_collecting = hooks_.collect_stacks(signo, [this, stop] {
    if (is_stopped_) return;
    if (group_.phase == Phase::running) return stop();
    // The round has ended meanwhile, perhaps in the event that is being handled: the job must not
    // go on with another one.
    boost::asio::post(signals_.get_executor(), [this, stop] {
      if (!is_stopped_) stop();
    });
  });
  if (!is_collecting) stop();
}

void JobSignals::stop_from_terminal() {
  if (is_stopped_) return;
  if (group_.interrupts == 0) {
    is_of_two_presses_ = true;
    hooks_.on_event(SignalArrived{SIGINT, clock_now()});
  }
  hooks_.on_event(SignalArrived{SIGINT, clock_now()});
  is_of_two_presses_ = false;
}

bool JobSignals::end_asked() {
  signalfd_siginfo info{};
  while (read_one(signals_.native_handle(), info)) {
    const auto signo = static_cast<int>(info.ssi_signo);
    end_asked_ = end_asked_ || ends_any_job(signo) || signo == terminal_interrupt_signal();
  }
  return end_asked_;
}

}  // namespace acc::agent
