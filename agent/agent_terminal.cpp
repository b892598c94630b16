#include "agent/agent_loop.hpp"
#include "agent/interrupt_watch.hpp"

#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

// The terminal and the worker that has it; what is left to be written when the workers are gone.
namespace acc::agent {

namespace {

// From a stop on a sink that takes nothing holds up no worker for longer: it has its grace for a
// checkpoint, not for words. A job that was stopped waits no longer for it either …
constexpr Millis kStoppingPatience{2'000};
// … and for one that is merely slow not for ever.
constexpr Millis kStoppedFlush{30'000};
constexpr Millis kHurriedFlush{300};
constexpr Millis kForever{std::chrono::hours{24 * 365}};

}  // namespace

pid_t AgentLoop::reader_pid() const {
  if (!reader_ || reader_->value() >= workers_.records().size()) return 0;
  const pid_t pid = workers_.records()[reader_->value()].pid;
  return workers_.is_living_worker(pid) ? pid : 0;
}

// Ctrl-Z stopped the worker that has the terminal, or one in the background wanted to read it: the
// shell must know, and it watches the guardian only.
void AgentLoop::suspend_with_worker() {
  const pid_t pid = reader_pid();
  siginfo_t info{};
  if (pid == 0 || group_.phase != Phase::running) return;
  if (::waitid(P_PID, static_cast<id_t>(pid), &info, WSTOPPED | WNOHANG) != 0 || info.si_pid == 0)
    return;
  const bool by_terminal =
      info.si_status == SIGTSTP || info.si_status == SIGTTIN || info.si_status == SIGTTOU;
  if (!by_terminal) return;
  terminal_.take_back_from(pid);
  note_terminal(guardian_, 0);
  terminal_.suspend_job();
}

void AgentLoop::continue_workers() {
  if (const pid_t pid = reader_pid(); pid != 0 && terminal_.can_lend()) {
    terminal_.lend_to(pid);
    group_.terminal_rank = reader_;
    lend_terminal();
  }
  workers_.signal(SIGCONT);
}

// The worker that reads has the terminal: what we don't see of its keys, the guardian watches.
void AgentLoop::lend_terminal() {
  interrupts_.reset();
  note_terminal(guardian_, reader_pid());
}

void AgentLoop::take_terminal_from(const WorkerRecord& record) {
  const bool had_it = group_.terminal_rank == record.local_rank;
  terminal_.take_back_from(record.pid);
  if (!had_it) return;
  note_terminal(guardian_, 0);
  interrupt_timer_.cancel();
  if (!is_success(*record.status)) terminal_.restore_modes();
}

void AgentLoop::on_terminal_interrupt() {
  if (group_.phase != Phase::running && group_.phase != Phase::stopping) return;
  obey(interrupts_.press(clock_now()));
}

void AgentLoop::look_at_interrupts() {
  const pid_t pid = reader_pid();
  if (pid == 0 || finish_) return;
  obey(interrupts_.look(clock_now(), terminal_.is_read_by(pid)));
}

void AgentLoop::obey(TerminalInterrupts::Answer answer) {
  if (answer == TerminalInterrupts::Answer::hint) narrator_.kept_interrupt();
  if (answer == TerminalInterrupts::Answer::stop) {
    // The first one only went to the worker; with it, this is the second.
    if (group_.interrupts == 0) handle(SignalArrived{SIGINT, clock_now()});
    handle(SignalArrived{SIGINT, clock_now()});
    check_emptied();
  }
  const auto due = interrupts_.due();
  if (!due) return;
  interrupt_timer_.expires_at(*due);
  interrupt_timer_.async_wait([this](boost::system::error_code cancelled) {
    if (!cancelled) look_at_interrupts();
  });
}

// With several workers stdin is /dev/null, which pdb and input() tell in words that lead nowhere.
void AgentLoop::hint_at_stdin(const FailureReport& failure) const {
  if (reader_ == failure.worker.local_rank) return;
  const std::string text = failure.tail + (failure.error ? failure.error->message : "");
  const bool wanted_input = text.find("bdb.BdbQuit") != std::string::npos ||
                            text.find("EOFError: EOF when reading a line") != std::string::npos;
  if (!wanted_input) return;
  narrator_.note("rank " + std::to_string(failure.worker.rank.value()) +
                 " wanted to read its standard input, which is /dev/null with several workers: "
                 "--stdin " +
                 std::to_string(failure.worker.local_rank.value()) + " gives it ours");
}

void AgentLoop::spare_stopping_workers() {
  const bool is_ending = group_.phase == Phase::stopping || group_.phase == Phase::killing;
  if (is_ending &&
      (group_.stop_signal != 0 || (group_.stop_ordered && group_.stop_ordered->for_good)))
    output_.shorten_patience(kStoppingPatience);
}

// How long the rest of the output is waited for. The loop has ended: signals are looked for here.
OutputHub::FlushLimits AgentLoop::flush_limits() {
  if (service_.watchdog_period()) service_.feed_watchdog();
  signalfd_siginfo info{};
  while (::read(signals_.native_handle(), &info, sizeof info) == sizeof info) {
    const auto signo = static_cast<int>(info.ssi_signo);
    is_flush_hurried_ = is_flush_hurried_ || signo == SIGINT || signo == SIGTERM ||
                        signo == SIGHUP || signo == SIGQUIT;
  }
  if (is_flush_hurried_ || group_.guardian_lost || group_.interrupts >= 2)
    return {kHurriedFlush, kHurriedFlush};
  const Millis patience = plan_.output.patience;
  if (group_.stop_signal == 0) return {patience, kForever};
  return {std::min(patience, kStoppingPatience), kStoppedFlush};
}

}  // namespace acc::agent
