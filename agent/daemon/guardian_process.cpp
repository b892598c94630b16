#include "agent/daemon/guardian_process.hpp"

#include "agent/small_file.hpp"
#include "agent/spawn.hpp"
#include "common/exit_codes.hpp"
#include "common/passed_signals.hpp"
#include "common/signals_blocked.hpp"
#include "common/text.hpp"

#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/keyctl.h>
#include <linux/sched.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>

namespace acc::agent::daemon {

namespace {

enum class Step : int { descriptors, session, limits, groups, identity, output, folder, exec };

struct Failure {
  Step step = Step::exec;
  int errnum = 0;
};

// Above those that a child gets.
constexpr int kSpare = 10;
constexpr int kGate = 3;
constexpr int kStatus = 4;

// All that the child reads: gathered before the fork, as it may not allocate.
struct Prepared {
  const char* launcher;
  char* const* argv;
  char* const* envp;
  const char* working_directory;
  const char* user_folder;  ///< null: none
  int output_fd;
  int gate;
  int status;
  int secret;  ///< -1: none
  bool changes_user;
  bool is_of_own_user;
  uid_t uid;
  gid_t gid;
  const gid_t* groups;
  std::size_t group_count;
  mode_t mask;
  const rlimit* nofile;
  bool resets_oom_score;
};

[[noreturn]] void fail(const Prepared& child, Step step) {
  const Failure failure{step, errno};
  [[maybe_unused]] const auto n = ::write(child.status, &failure, sizeof failure);
  ::_exit(127);
}

void set_signals() {
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  for (int signo = 1; signo < NSIG; ++signo) ::sigaction(signo, &standard, nullptr);
  sigset_t blocked;
  ::sigemptyset(&blocked);
  // They wait until acc-launch handles them: in its first milliseconds one would kill it.
  for (const int signo : kPassedSignals) ::sigaddset(&blocked, signo);
  ::sigprocmask(SIG_SETMASK, &blocked, nullptr);
}

// A change of the user keeps the session keyring: a job that had the daemon's could read and replace
// the keys in it, root's and those of all other jobs. False: it is still the daemon's.
bool leave_session_keyring() {
  if (::syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, nullptr) >= 0) return true;
  return errno == ENOSYS || errno == EPERM;  // no keys here, for nobody: a container's filter
}

// As su and sshd give it: of the user, with the user's own keyring in it. A user who has used up
// the quota for keys keeps the one above, which is root's and empty.
void open_session_keyring() {
  if (::syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, nullptr) < 0) return;
  ::syscall(SYS_keyctl, KEYCTL_LINK, KEY_SPEC_USER_KEYRING, KEY_SPEC_SESSION_KEYRING);
}

// libc's functions would first ask all threads of this process, which has none of them any more.
void take_identity(const Prepared& child) {
  if (!child.changes_user) return;
  if (!leave_session_keyring()) fail(child, Step::identity);
  // Root of a user namespace of one user (unshare -Ur) can't set groups, and has no other user's
  // jobs: its own keep its groups.
  const bool has_groups = ::syscall(SYS_setgroups, child.group_count, child.groups) == 0 ||
                          (errno == EPERM && child.is_of_own_user);
  if (!has_groups) fail(child, Step::groups);
  if (::syscall(SYS_setresgid, child.gid, child.gid, child.gid) != 0 ||
      ::syscall(SYS_setresuid, child.uid, child.uid, child.uid) != 0)
    fail(child, Step::identity);
  // With fs.suid_dumpable set, the change has made it dumpable: it has the daemon's memory.
  ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  open_session_keyring();
}

int open_spare(const Prepared& child, const char* name, int flags, Step step) {
  const int fd = ::open(name, flags | O_CLOEXEC | O_NOCTTY, 0600);
  if (fd < 0) fail(child, step);
  const int spare = ::fcntl(fd, F_DUPFD_CLOEXEC, kSpare);
  if (spare < 0) fail(child, Step::descriptors);
  ::close(fd);
  return spare;
}

void place(const Prepared& child, int fd, int as) {
  if (::dup2(fd, as) < 0) fail(child, Step::descriptors);
}

void close_others(int first) {
  if (::syscall(SYS_close_range, first, ~0U, 0) == 0) return;
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  constexpr rlim_t kMost = 65536;
  const int end = static_cast<int>(limit.rlim_cur < kMost ? limit.rlim_cur : kMost);
  for (int fd = first; fd < end; ++fd) ::close(fd);
}

// From here on the user's other processes may stop this one for as long as they like: it must have
// nothing of the daemon's, whose lock, ports and connections it would hold.
void keep_own_descriptors(Prepared& child) {
  const int null = open_spare(child, "/dev/null", O_RDWR, Step::descriptors);
  const int output = child.output_fd >= 0 ? child.output_fd : null;
  place(child, null, STDIN_FILENO);
  place(child, output, STDOUT_FILENO);
  place(child, output, STDERR_FILENO);
  if (::dup3(child.gate, kGate, O_CLOEXEC) < 0 || ::dup3(child.status, kStatus, O_CLOEXEC) < 0)
    fail(child, Step::descriptors);
  child.status = kStatus;
  if (child.secret >= 0) place(child, child.secret, kSecretDescriptor);
  close_others(child.secret >= 0 ? kSecretDescriptor + 1 : kStatus + 1);
}

// As the user, in whose folder they are.
void open_logs(const Prepared& child) {
  if (child.user_folder == nullptr) return;
  if (::chdir(child.user_folder) != 0) fail(child, Step::output);
  ::unlink("started");
  ::unlink("exit.json");
  constexpr int kAppend = O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK;
  const int out = open_spare(child, "stdout.log", kAppend, Step::output);
  const int err = open_spare(child, "stderr.log", kAppend, Step::output);
  place(child, out, STDOUT_FILENO);
  place(child, err, STDERR_FILENO);
}

// Async-signal-safe calls only: another thread of the daemon may hold any lock.
[[noreturn]] void run_child(const Prepared& given) {
  Prepared child = given;
  set_signals();
  if (::setsid() < 0) fail(child, Step::session);
  if (child.resets_oom_score) {
    const int fd = ::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    [[maybe_unused]] const auto n = ::write(fd, "0", 1);
    if (fd >= 0) ::close(fd);
  }
  keep_own_descriptors(child);
  if (child.nofile != nullptr && ::setrlimit(RLIMIT_NOFILE, child.nofile) != 0)
    fail(child, Step::limits);
  take_identity(child);
  open_logs(child);
  ::umask(child.mask);
  if (::chdir(child.working_directory) != 0) fail(child, Step::folder);
  char open = 0;
  ssize_t n = 0;
  do n = ::read(kGate, &open, 1);
  while (n < 0 && errno == EINTR);
  if (n != 1) ::_exit(0);  // the daemon died before it had recorded us
  ::execve(child.launcher, child.argv, child.envp);
  fail(child, Step::exec);
}

/// A pipe that holds the secret as one line, and nothing else ever.
Result<UniqueFd> pipe_with(const rendezvous::SecretBytes& secret) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return system_error(errno, "start acc-launch: pipe");
  UniqueFd read_end{ends[0]};
  const UniqueFd write_end{ends[1]};
  const auto text = secret.view();
  const bool is_written =
      ::write(write_end.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
      ::write(write_end.get(), "\n", 1) == 1;
  if (!is_written) return system_error(errno, "start acc-launch: hand over the secret");
  return read_end;
}

UniqueFd spare_copy(int fd) { return UniqueFd{::fcntl(fd, F_DUPFD_CLOEXEC, kSpare)}; }

// As fork(), with a pidfd, and born into the control group.
pid_t clone_process(int cgroup_fd, int& pidfd) {
  clone_args arguments{};
  arguments.flags = CLONE_PIDFD;
  arguments.pidfd = reinterpret_cast<std::uintptr_t>(&pidfd);
  arguments.exit_signal = SIGCHLD;
  if (cgroup_fd >= 0) {
    arguments.flags |= CLONE_INTO_CGROUP;
    arguments.cgroup = static_cast<std::uint64_t>(cgroup_fd);
  }
  const auto pid = static_cast<pid_t>(::syscall(SYS_clone3, &arguments, sizeof arguments));
  if (pid >= 0) return pid;
  if (cgroup_fd >= 0) return clone_process(-1, pidfd);  // the group was refused: without it
  if (errno != ENOSYS && errno != EPERM) return -1;
  const pid_t plain = ::fork();  // a container with an older seccomp profile
  if (plain > 0) pidfd = static_cast<int>(::syscall(SYS_pidfd_open, plain, 0U));
  return plain;
}

struct Forked {
  pid_t pid;
  UniqueFd pidfd;
};

Result<Forked> fork_child(const Prepared& child, int cgroup_fd) {
  int pidfd = -1;
  pid_t pid = -1;
  int why = 0;
  {
    const AllSignalsBlocked blocked;  // no handler of ours may run in the child
    pid = clone_process(cgroup_fd, pidfd);
    if (pid == 0) run_child(child);
    why = errno;
  }
  if (pid < 0) return system_error(why, "start acc-launch: fork");
  Forked forked{pid, UniqueFd{pidfd}};
  if (forked.pidfd) return forked;
  // No descriptor was left: its end would not be seen.
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  return system_error(why, "start acc-launch: pidfd_open");
}

bool is_protected_from_oom() {
  const auto score = parse_number<int>(trim(read_small_file("/proc/self/oom_score_adj")));
  return score.value_or(0) < 0;
}

}  // namespace

Result<HeldGuardian> HeldGuardian::fork(const GuardianRequest& request) {
  int gate[2];
  int status[2];
  if (::pipe2(gate, O_CLOEXEC) != 0) return system_error(errno, "start acc-launch: pipe");
  HeldGuardian held;
  const UniqueFd gate_end{gate[0]};
  held.gate_.reset(gate[1]);
  if (::pipe2(status, O_CLOEXEC | O_NONBLOCK) != 0)
    return system_error(errno, "start acc-launch: pipe");
  const UniqueFd status_end{status[1]};
  held.status_.reset(status[0]);
  const UniqueFd gate_of_child = spare_copy(gate_end.get());
  const UniqueFd status_of_child = spare_copy(status_end.get());
  const UniqueFd output = request.output_fd >= 0 ? spare_copy(request.output_fd) : UniqueFd{};
  if (!gate_of_child || !status_of_child || (request.output_fd >= 0 && !output))
    return system_error(errno, "start acc-launch: descriptors");
  UniqueFd secret;
  std::vector<std::string> words{"acc-launch"};
  if (!request.secret.view().empty()) {
    const auto pipe = pipe_with(request.secret);
    if (!pipe) return pipe.error();
    secret = spare_copy(pipe->get());
    if (!secret) return system_error(errno, "start acc-launch: descriptors");
    words.push_back("--secret_fd=" + std::to_string(kSecretDescriptor));
  }
  words.insert(words.end(), request.words.begin(), request.words.end());
  const CStringArray argv{std::move(words)};
  const CStringArray envp{request.environment};
  const Prepared child{
      request.launcher.c_str(),
      argv.get(),
      envp.get(),
      request.working_directory.c_str(),
      request.user_folder.empty() ? nullptr : request.user_folder.c_str(),
      output.get(),
      gate_of_child.get(),
      status_of_child.get(),
      secret ? secret.get() : -1,
      ::geteuid() == 0,
      request.user.uid == ::geteuid(),
      request.user.uid,
      request.user.gid,
      request.user.groups.data(),
      request.user.groups.size(),
      request.umask,
      request.nofile ? &*request.nofile : nullptr,
      is_protected_from_oom(),
  };
  auto forked = fork_child(child, request.cgroup_fd);
  if (!forked) return forked.error();
  held.pid_ = forked->pid;
  held.pidfd_ = std::move(forked->pidfd);
  return held;
}

void HeldGuardian::open_gate() {
  // The child may have died of a signal meanwhile: then this fails, and its end tells.
  struct sigaction ignore {};
  struct sigaction before {};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignore, &before);
  [[maybe_unused]] const auto n = ::write(gate_.get(), "1", 1);
  ::sigaction(SIGPIPE, &before, nullptr);
  gate_.reset();
}

StartError HeldGuardian::explain(const GuardianRequest& request, std::string_view bytes) {
  Failure failure;
  if (bytes.size() != sizeof failure)
    return {to_int(ExitCode::failure), "acc-launch could not be started"};
  std::memcpy(&failure, bytes.data(), sizeof failure);
  const std::string why = std::strerror(failure.errnum);
  const std::string as = " (as user " + request.user.name + ")";
  switch (failure.step) {
    case Step::folder:
      return {to_int(ExitCode::failure),
              "working directory " + in_quotes(request.working_directory) + ": " + why + as};
    case Step::output:
      return {to_int(ExitCode::output),
              "the job's logs in " + in_quotes(request.user_folder) + ": " + why + as};
    case Step::groups:
      return {to_int(ExitCode::failure), "set the groups of the user " + request.user.name + ": " +
                                             why + " (/proc/self/setgroups of acc-agent)"};
    case Step::identity:
      return {to_int(ExitCode::failure), "become the user " + request.user.name + ": " + why};
    case Step::exec:
      return {
          to_int(failure.errnum == ENOENT ? ExitCode::command_not_found : ExitCode::cannot_execute),
          "execute " + in_quotes(request.launcher) + ": " + why + as};
    default:
      return {to_int(ExitCode::resources), "set up acc-launch: " + why};
  }
}

}  // namespace acc::agent::daemon
