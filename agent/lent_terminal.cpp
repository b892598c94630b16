#include "agent/lent_terminal.hpp"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <utility>

namespace acc::agent {

namespace {

// The watch may not have reported yet the Ctrl-C by which a worker ended: longer than the
// supervisor waits for that.
constexpr Millis kWatchStays{200};

bool is_output_a_pipe() {
  struct stat info {};
  return ::fstat(STDOUT_FILENO, &info) == 0 && S_ISFIFO(info.st_mode);
}

}  // namespace

LentTerminal::LentTerminal(boost::asio::io_context& io, const GuardianLink& guardian,
                           std::optional<LocalRank> reader, const WorkerGroup& workers, Hooks hooks)
    : reader_{reader},
      is_wanted_{!is_output_a_pipe()},
      terminal_{guardian.pid},
      guardian_{guardian},
      workers_{workers},
      hooks_{std::move(hooks)},
      timer_{io} {}

pid_t LentTerminal::reader_pid() const {
  if (!reader_ || reader_->value() >= workers_.records().size()) return 0;
  const pid_t pid = workers_.records()[reader_->value()].pid;
  return workers_.is_living_worker(pid) ? pid : 0;
}

// What we don't see of its keys, the guardian watches.
void LentTerminal::lent() {
  interrupts_.reset();
  note_terminal(guardian_, is_shared() ? 0 : reader_pid());
}

bool LentTerminal::lend_again() {
  const pid_t pid = reader_pid();
  if (is_shared()) note_terminal(guardian_, 0);
  if (pid == 0 || !is_lent_at_start()) return false;
  terminal_.lend_to(pid);
  lent();
  return true;
}

void LentTerminal::take_back(const WorkerRecord& worker, bool had_it) {
  terminal_.take_back_from(worker.pid);
  if (!had_it) return;
  timer_.expires_after(kWatchStays);
  timer_.async_wait([this](boost::system::error_code cancelled) {
    if (!cancelled && reader_pid() == 0) note_terminal(guardian_, 0);
  });
  if (!is_success(*worker.status) && !is_shared()) terminal_.restore_modes();
}

bool LentTerminal::look_for_stop() {
  const pid_t pid = reader_pid();
  siginfo_t info{};
  if (pid == 0) return false;
  if (::waitid(P_PID, static_cast<id_t>(pid), &info, WSTOPPED | WNOHANG) != 0 || info.si_pid == 0)
    return false;
  const bool by_use = info.si_status == SIGTTIN || info.si_status == SIGTTOU;
  if (!by_use && info.si_status != SIGTSTP) return false;
  if (by_use && !std::exchange(is_wanted_, true) && lend_again()) {
    ::killpg(pid, SIGCONT);
    return true;
  }
  terminal_.take_back_from(pid);
  note_terminal(guardian_, 0);
  terminal_.suspend_job();
  return false;
}

void LentTerminal::pressed() {
  if (reader_pid() != 0) obey(interrupts_.press(clock_now()));
}

void LentTerminal::look_at_interrupts() {
  const pid_t pid = reader_pid();
  if (pid != 0) obey(interrupts_.look(clock_now(), terminal_.is_read_by(pid)));
}

void LentTerminal::obey(TerminalInterrupts::Answer answer) {
  if (answer == TerminalInterrupts::Answer::hint) hooks_.on_kept();
  if (answer == TerminalInterrupts::Answer::stop) hooks_.on_stop();
  const auto due = interrupts_.due();
  if (!due) return;
  timer_.expires_at(*due);
  timer_.async_wait([this](boost::system::error_code cancelled) {
    if (!cancelled) look_at_interrupts();
  });
}

}  // namespace acc::agent
