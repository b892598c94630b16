#include "agent/guardian.hpp"

#include "agent/containment.hpp"
#include "agent/interrupt_watch.hpp"
#include "agent/job_folder_notes.hpp"
#include "agent/lease_timer.hpp"
#include "agent/lease_watch.hpp"
#include "agent/orphan_sweep.hpp"
#include "agent/process_stat.hpp"
#include "agent/report_file.hpp"
#include "agent/shell_interrupt.hpp"
#include "agent/signal_sender.hpp"
#include "agent/small_file.hpp"
#include "agent/terminal.hpp"
#include "common/exit_codes.hpp"
#include "common/exit_status.hpp"
#include "common/host_name.hpp"
#include "common/passed_signals.hpp"
#include "common/poll_now.hpp"
#include "common/unique_fd.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <optional>
#include <string>
#include <unordered_set>

// Raw system calls and no Asio: this process must stay small and must be hard to kill by a bug.
namespace acc::agent {

namespace {

constexpr std::array kJobControl{SIGTSTP, SIGCONT, SIGWINCH};
// An agent that is still there so long after the third Ctrl-C is killed; a fourth one kills at
// once.
constexpr std::chrono::seconds kDeafAgent{20};
constexpr unsigned kImpatient = 3;
// A stopped agent acts on no signal, and would say so at its end alone.
constexpr std::chrono::seconds kStoppedAgent{5};
// On several hosts it leaves by itself, with the right exit code, one second after the third.
constexpr std::chrono::seconds kDeafOnHosts{5};
// A manager's signal reaches all processes of a job within that.
constexpr std::chrono::milliseconds kBehindManager{500};
constexpr std::chrono::nanoseconds kHeldAgent{std::chrono::milliseconds{200}};

/// By SIGSTOP, or for another reason that SIGCONT ends.
bool is_stopped(pid_t pid) { return read_process_stat(pid).state == 'T'; }

bool is_ignored(int signo) {
  struct sigaction action {};
  return ::sigaction(signo, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

sigset_t guarded_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGCHLD);
  ::sigaddset(&set, SIGTTOU);  // blocked: a background process may then take the terminal back
  ::sigaddset(&set, SIGTTIN);
  for (const int signo : kJobControl) ::sigaddset(&set, signo);
  for (const int signo : kPassedSignals) {
    if (signo != SIGHUP || !is_ignored(SIGHUP)) ::sigaddset(&set, signo);  // nohup stays nohup
  }
  return set;
}

// If a standard descriptor is closed when we start, a pipe of ours would get its number. What is
// written to one that was closed is refused, as before, so that lost output is counted and told.
void fill_standard_descriptors() {
  for (int fd = ::open("/dev/null", O_RDONLY); fd >= 0; fd = ::open("/dev/null", O_RDONLY)) {
    if (fd <= STDERR_FILENO) continue;
    ::close(fd);
    return;
  }
}

void become_agent(pid_t guardian) {
  ::prctl(PR_SET_NAME, "acc:agent");  // to tell it from the guardian in ps
  ::setpgid(0, 0);                    // Ctrl-C goes to the guardian alone, so it counts once
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  // While it reads the command line it may wait for a file that nobody writes; then outlive().
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != guardian) ::_exit(to_int(ExitCode::agent_lost));
}

// A shell that runs `helper & exec acc-launch …` or `exec > >(tee log)` leaves us children that we
// did not start and must not kill.
std::unordered_set<pid_t> children_from_before() {
  siginfo_t info{};
  if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0)
    return {};  // the usual case: none
  const auto children = children_of_this_process();
  return {children.begin(), children.end()};
}

GuardianBoard* make_board() {
  void* const page = ::mmap(nullptr, sizeof(GuardianBoard), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return page == MAP_FAILED ? nullptr : new (page) GuardianBoard{};
}

/// `pid` itself counts.
bool descends_from(pid_t ancestor, pid_t pid) {
  constexpr int kDeepest = 64;
  for (int i = 0; i < kDeepest && pid > 1 && pid != ancestor; ++i)
    pid = read_process_stat(pid).parent;
  return pid > 1 && pid == ancestor;
}

// As the signal does it, so that a shell shows 148 for SIGTSTP. A group without a shell that could
// continue it (orphaned) isn't stopped by SIGTSTP or SIGTTIN: by SIGSTOP then. If we were stopped,
// the SIGCONT that follows is blocked and pending.
void stop_this_process(int signo) {
  sigset_t stop;
  ::sigemptyset(&stop);
  ::sigaddset(&stop, signo);
  ::raise(signo);
  ::sigprocmask(SIG_UNBLOCK, &stop, nullptr);
  ::sigprocmask(SIG_BLOCK, &stop, nullptr);
  sigset_t pending;
  ::sigpending(&pending);
  if (::sigismember(&pending, SIGCONT) == 0) ::raise(SIGSTOP);
}

// Its other end is closed until there is a lease (lease_timer.hpp).
int read_end_of_new_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return -1;
  ::close(ends[1]);
  return ends[0];
}

// Taken before the agent is there: on a busy machine its workers may set the terminal's modes
// before this process runs again.
struct BeforeTheAgent {
  std::unordered_set<pid_t> children = children_from_before();
  std::optional<termios> modes = terminal_modes();
};

class Guardian {
 public:
  Guardian(pid_t agent, const sigset_t& signals, BeforeTheAgent before, GuardianBoard* board,
           int wake_fd, int pipe_fd)
      : agent_{agent},
        not_ours_{std::move(before.children)},
        board_{board},
        lease_{agent, board},
        lease_timer_{board, pipe_fd},
        wake_fd_{wake_fd},
        pipe_fd_{pipe_fd},
        agent_fd_{static_cast<int>(::syscall(SYS_pidfd_open, agent, 0U))},
        signal_fd_{::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK)},
        modes_{before.modes} {}

  int run() {
    const int status = wait_for_agent();
    end_watch();
    lease_timer_.end();
    if (!WIFEXITED(status)) await_orphans();
    const int killed = sweep();
    take_terminal_back();
    if (WIFEXITED(status)) {
      const bool gave_up = WEXITSTATUS(status) == to_int(ExitCode::agent_lost);
      write_report(WEXITSTATUS(status), gave_up ? "ended by an error of its own" : "");
      if (gave_up) {
        restore_terminal_modes(modes_);
        sweep_dead_cgroups();
      }
      return WEXITSTATUS(status);
    }
    restore_terminal_modes(modes_);
    // It ignores that once it starts workers: help or a plan had no reader.
    if (WTERMSIG(status) == SIGPIPE) {
      write_report(128 + SIGPIPE, "");
      return 128 + SIGPIPE;
    }
    tell_agents_death(status, killed);
    write_report(to_int(ExitCode::agent_lost), describe(exit_status_from_wait(status)));
    sweep_dead_cgroups();
    if (board_ != nullptr && board_->temporary_folder[0] != '\0') {
      std::error_code ignored;
      std::filesystem::remove_all(board_->temporary_folder, ignored);
    }
    return to_int(ExitCode::agent_lost);
  }

  /// All is over, and all is written.
  void notify_shell(int exit_code) {
    seen_.by_key_in_workers_terminal = board_ != nullptr && board_->worker_was_interrupted;
    const auto notice = shell_notice(exit_code, seen_);
    if (notice == ShellNotice::group_and_death) interrupt_group();
    if (notice != ShellNotice::exit_code) die_of_interrupt();
  }

 private:
  void write_report(int exit_code, const std::string& lost) {
    if (board_ == nullptr) return;
    const auto written = write_missing_report(*board_, exit_code, lost);
    if (written.has_error()) say("the report is lost: " + written.error().what);
  }

  // Until the agent ends. Signals are passed on; the third Ctrl-C starts a clock.
  int wait_for_agent() {
    for (;;) {
      sleep();
      lease_.check();  // first: what a signal would continue may have to be dead by now
      follow_terminal();
      forward_signals();
      forward_held();
      if (const auto status = reap()) return *status;
      // Dead, and a debugger takes its status first: its descriptor stays readable meanwhile.
      is_agent_held_ = is_ready(agent_fd_.get(), POLLIN);
      lease_timer_.ensure();  // also after the end of one
      tell_of_stopped_agent();
      if (is_agent_deaf() || (interrupts_ > kImpatient && !is_on_hosts())) ::kill(agent_, SIGKILL);
    }
  }

  void sleep() {
    pollfd fds[] = {{signal_fd_.get(), POLLIN, 0},
                    {is_agent_held_ ? -1 : agent_fd_.get(), POLLIN, 0},
                    {wake_fd_.get(), POLLIN, 0},
                    {lease_.clock_fd(), POLLIN, 0}};
    auto patience = lease_.may_sleep();
    if (is_agent_held_) patience = std::min(patience.value_or(kHeldAgent), kHeldAgent);
    for (const auto& until : {deaf_from_, look_at_, held_until_}) {
      if (!until) continue;
      const std::chrono::nanoseconds left = *until - std::chrono::steady_clock::now();
      patience = std::max(std::chrono::nanoseconds{0}, std::min(left, patience.value_or(left)));
    }
    constexpr std::int64_t kSecond = 1'000'000'000;
    timespec timeout{};
    if (patience) timeout = {patience->count() / kSecond, patience->count() % kSecond};
    ::ppoll(fds, std::size(fds), patience ? &timeout : nullptr, nullptr);
    std::uint64_t rings = 0;
    if (fds[2].revents != 0) {
      [[maybe_unused]] const auto n = ::read(wake_fd_.get(), &rings, sizeof rings);
    }
  }

  void tell_of_stopped_agent() {
    if (!look_at_ || std::chrono::steady_clock::now() < *look_at_) return;
    look_at_.reset();
    if (!is_stopped(agent_)) return;
    const auto pid = std::to_string(agent_);
    say_if_it_is_taken("the agent (pid " + pid +
                       ") is stopped (SIGSTOP), and acts on no signal: 'kill -CONT " + pid +
                       "' lets it go on, a third Ctrl-C kills it and the workers");
  }

  bool is_agent_deaf() {
    if (!deaf_from_ || std::chrono::steady_clock::now() < *deaf_from_) return false;
    deaf_from_.reset();
    return board_ == nullptr || !board_->finishing;
  }

  [[nodiscard]] bool is_on_hosts() const { return board_ != nullptr && board_->is_on_hosts; }

  void tell_agents_death(int status, int killed) const {
    say("the agent (pid " + std::to_string(agent_) + ") was " +
        describe(exit_status_from_wait(status)) + "; " + std::to_string(killed) +
        " left-over process" + (killed == 1 ? "" : "es") + " killed (exit code " +
        std::to_string(to_int(ExitCode::agent_lost)) + ")");
  }

  void say(const std::string& words) const {
    const bool names_host = board_ != nullptr && board_->is_reported_elsewhere;
    const auto text = "acc-launch: " + (names_host ? host_name() + ": " : "") + words + "\n";
    [[maybe_unused]] const auto n = ::write(STDERR_FILENO, text.data(), text.size());
  }

  /// While it guards: a full pipe or a stopped terminal must not keep it from signals and leases.
  void say_if_it_is_taken(const std::string& words) const {
    if (is_ready(STDERR_FILENO, POLLOUT)) say(words);
  }

  void forward_signals() {
    signalfd_siginfo info{};
    while (::read(signal_fd_.get(), &info, sizeof info) == sizeof info) {
      const int signo = static_cast<int>(info.ssi_signo);
      if (signo == SIGTTIN || signo == SIGTTOU) share_terminal(signo);
      if (signo == SIGCHLD || signo == SIGTTIN || signo == SIGTTOU) continue;
      const auto now = std::chrono::steady_clock::now();
      if (signo == SIGINT && is_echo(info, now)) continue;
      if (signo == SIGINT && info.ssi_code == SI_KERNEL) key_at_ = now;
      if (signo == SIGINT) (info.ssi_code == SI_KERNEL ? seen_.by_key : seen_.by_process) = true;
      if (signo == SIGINT && ++interrupts_ == kImpatient) {
        const std::chrono::seconds patience = is_on_hosts() ? kDeafOnHosts : kDeafAgent;
        deaf_from_ = is_stopped(agent_) ? now : now + patience;
      }
      if ((signo == SIGINT || signo == SIGTERM) && !look_at_) look_at_ = now + kStoppedAgent;
      // Stopped, we could not watch it; and the agents on other hosts wouldn't stop with us.
      if (signo == SIGTSTP && (lease_.has_lease() || is_on_hosts())) {
        say_if_it_is_taken("a job on several nodes can't be suspended");
        continue;
      }
      if (signo != SIGTSTP && signo != SIGCONT && is_of_job_manager(info)) {
        held_.push_back(signo);
        held_until_ = now + kBehindManager;
        continue;
      }
      ::kill(agent_, signo);
      // The shell waits for us, not for the workers: when they are suspended, so are we.
      if (signo == SIGTSTP) stop_this_process(SIGTSTP);
    }
  }

  // What started us had the key, too, and passes it on: one press.
  [[nodiscard]] bool is_echo(const signalfd_siginfo& info,
                             std::chrono::steady_clock::time_point now) const {
    constexpr std::chrono::seconds kEcho{1};
    return info.ssi_code != SI_KERNEL && key_at_ && now - *key_at_ < kEcho &&
           descends_from(static_cast<pid_t>(info.ssi_pid), ::getppid());
  }

  // Another process of our group, a pager behind us, reads the terminal that a worker has, or sets
  // its modes: all of the group but us are stopped by that. It is the group's from now on. The
  // worker has the terminal before the agent has noted that.
  void share_terminal(int signo) {
    const pid_t foreground = ::tcgetpgrp(STDIN_FILENO);
    if (board_ != nullptr && foreground > 0 && descends_from(agent_, foreground)) {
      board_->terminal_is_shared = true;
      ::tcsetpgrp(STDIN_FILENO, ::getpgrp());
      ::kill(0, SIGCONT);  // also to us, and so to the agent
    } else if (signo == SIGTTIN) {
      stop_this_process(SIGTTIN);
    }
  }

  // The agent gets it from the manager, too, at about this moment: it tells by that one that the
  // workers have it, and a signal that is pending swallows the next one.
  void forward_held() {
    if (!held_until_ || std::chrono::steady_clock::now() < *held_until_) return;
    held_until_.reset();
    for (const int signo : std::exchange(held_, {})) ::kill(agent_, signo);
  }

  // Reaps whatever is dead; the agent's status if it was among them.
  std::optional<int> reap() {
    std::optional<int> agent_status;
    int status = 0;
    for (pid_t pid; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      if (pid == agent_) {
        agent_status = status;
        if (board_ != nullptr) board_->agent_is_gone = true;
      }
      if (pid == interrupt_watch_) interrupt_watch_ = -1;
      if (lease_timer_.reaped(pid, status)) lease_.timer_ended();
    }
    return agent_status;
  }

  // Ctrl-C goes to the group that has the terminal: where that is a worker's, a process of ours in
  // it tells the agent.
  void follow_terminal() {
    const pid_t group = board_ != nullptr ? board_->terminal_group.load() : 0;
    if (group == terminal_group_) return;
    end_watch();
    terminal_group_ = group;
    if (group <= 0) return;
    board_->worker_was_interrupted = false;
    interrupt_watch_ = start_interrupt_watch(group, agent_, *board_);
  }

  void end_watch() {
    if (interrupt_watch_ > 0) end_interrupt_watch(interrupt_watch_);
    interrupt_watch_ = -1;
  }

  // Their life lines have ended with the agent: they stop the job on other hosts.
  void await_orphans() {
    const Millis patience{board_ != nullptr ? board_->orphan_patience_ms.load() : 0};
    if (patience.count() == 0) return;
    const Instant until = clock_now() + patience;
    for (unsigned stops = 0; stops == 0 && has_orphans();) {
      const auto left = std::chrono::ceil<Millis>(until - clock_now()).count();
      if (left <= 0) return;
      pollfd fd{signal_fd_.get(), POLLIN, 0};
      ::poll(&fd, 1, static_cast<int>(left));
      signalfd_siginfo info{};
      while (::read(signal_fd_.get(), &info, sizeof info) == sizeof info)
        stops += info.ssi_signo == SIGINT || info.ssi_signo == SIGTERM ? 1 : 0;
      reap();
    }
  }

  [[nodiscard]] bool has_orphans() const {
    const auto children = children_of_this_process();
    return std::ranges::any_of(children, [&](pid_t pid) { return !not_ours_.contains(pid); });
  }

  // What a dead agent left behind: at once and whatever it forks meanwhile where there is a cgroup;
  // then what became ours. How many had to be killed.
  int sweep() {
    if (board_ != nullptr && board_->has_cgroup)
      write_small_file(std::string{board_->cgroup} + "/cgroup.kill", "1");
    return sweep_orphans(not_ours_, signal_fd_.get());
  }

  // A worker may have had the terminal; without it the shell's user would type into nothing.
  static void take_terminal_back() {
    const pid_t front = ::tcgetpgrp(STDIN_FILENO);
    // Only from a group that is gone: another job of the shell may have it by right.
    if (front > 0 && front != ::getpgrp() && ::kill(-front, 0) != 0)
      ::tcsetpgrp(STDIN_FILENO, ::getpgrp());
  }

  pid_t agent_;
  std::unordered_set<pid_t> not_ours_;
  GuardianBoard* board_;
  LeaseWatch lease_;
  LeaseTimer lease_timer_;
  UniqueFd wake_fd_;
  UniqueFd pipe_fd_;
  UniqueFd agent_fd_;
  UniqueFd signal_fd_;
  std::optional<termios> modes_;
  pid_t terminal_group_ = 0;
  pid_t interrupt_watch_ = -1;
  std::vector<int> held_;  ///< signals of a job's manager, until then
  std::optional<std::chrono::steady_clock::time_point> held_until_;
  unsigned interrupts_ = 0;
  InterruptsSeen seen_;
  std::optional<std::chrono::steady_clock::time_point> key_at_;  ///< the last Ctrl-C of a terminal
  std::optional<Instant> deaf_from_;  ///< an agent that still runs then does not react to signals
  std::optional<Instant> look_at_;    ///< whether the agent is stopped: one was asked to end
  bool is_agent_held_ = false;        ///< dead, and a debugger takes its status first
};

}  // namespace

int run_guarded(const std::function<int(const GuardianLink&)>& agent_main) {
  fill_standard_descriptors();
  const JobFolderNotes notes;
  // Inherited as ignored, the kernel would reap our children and we would wait for ever.
  ::signal(SIGCHLD, SIG_DFL);
  BeforeTheAgent before;
  GuardianBoard* const board = make_board();
  const int wake_fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  const int pipe_fd = read_end_of_new_pipe();
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  const sigset_t signals = guarded_signals();
  ::sigprocmask(SIG_BLOCK, &signals, nullptr);
  const pid_t guardian = ::getpid();
  const pid_t agent = ::fork();
  if (agent < 0) {
    std::perror("acc-launch: cannot start the agent process: fork");
    notes.ended(to_int(ExitCode::resources));
    return to_int(ExitCode::resources);
  }
  if (agent == 0) {
    become_agent(guardian);
    const GuardianLink link{guardian, board, wake_fd, pipe_fd};
    const int exit_code = agent_main(link);
    // A leak sanitizer searches in a child process: killed with an old lease, it would be awaited
    // for ever.
    drop_lease(link);
    std::exit(exit_code);
  }
  // Not before the fork: the agent and its children decide for themselves.
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);  // ulimit -f: as a full disk, also for the report of a lost agent
  notes.sync();
  Guardian guarding{agent, signals, std::move(before), board, wake_fd, pipe_fd};
  const int exit_code = guarding.run();
  if (board == nullptr)
    notes.ended(exit_code);
  else
    notes.ended(exit_code, board->was_stopped, board->refusal);
  guarding.notify_shell(exit_code);
  return exit_code;
}

}  // namespace acc::agent
