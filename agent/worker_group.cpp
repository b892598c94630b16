#include "agent/worker_group.hpp"

#include "agent/containment.hpp"
#include "agent/pmi_server.hpp"
#include "common/log.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

namespace acc::agent {

namespace asio = boost::asio;

WorkerGroup::WorkerGroup(asio::io_context& io, Containment& containment, OutputHub& output,
                         OnExit on_exit)
    : io_{io}, containment_{containment}, output_{output}, on_exit_{std::move(on_exit)} {}

namespace {

// A kernel or a container may refuse CLONE_INTO_CGROUP although the folder could be made.
bool is_cgroup_refusal(const SpawnFailure& failure, int cgroup_fd) {
  return cgroup_fd >= 0 && std::string_view{failure.step} == "clone" &&
         !is_transient(failure.errnum);
}

}  // namespace

std::optional<StartFailure> WorkerGroup::start(const Launch& launch,
                                               RoundEnvironment& environment) {
  records_.assign(launch.count, {});
  pidfds_.clear();
  living_.clear();
  if (!dev_null_) dev_null_ = UniqueFd{::open("/dev/null", O_RDONLY | O_CLOEXEC)};
  pidfds_.reserve(launch.count);
  std::optional<StartFailure> failure;
  for (std::uint32_t i = 0; i < launch.count && !failure; ++i) {
    const LocalRank local{i};
    auto& record = records_[i];
    record.local_rank = local;
    record.rank = Rank{launch.first_rank.value() + i};
    const auto streams = output_.open(local, record.rank);
    if (!streams) {
      failure = StartFailure{local, streams.error().errnum, "pipe"};
      break;
    }
    UniqueFd pmi;
    if (launch.pmi != nullptr) {
      auto connected = launch.pmi->connect(local);
      if (!connected) {
        failure = StartFailure{local, EMFILE, "socketpair"};
        break;
      }
      pmi = std::move(*connected);
    }
    const bool owns_stdin = launch.stdin_rank == local;
    SpawnRequest request;
    request.path = launch.path.c_str();
    request.argv = launch.argv;
    request.envp = environment.for_worker(local);
    request.stdin_fd = owns_stdin ? -1 : dev_null_.get();
    request.stdout_fd = streams->out;
    request.stderr_fd = streams->err;
    request.pmi_fd = pmi.get();
    request.terminal_fd = owns_stdin && launch.stdin_terminal ? STDIN_FILENO : -1;
    request.cgroup_fd = containment_.cgroup_fd();
    auto result = spawner_(request);
    if (auto* refused = std::get_if<SpawnFailure>(&result);
        refused && is_cgroup_refusal(*refused, request.cgroup_fd)) {
      log::info("cgroup_refused", {{"errno", refused->errnum}});
      containment_.give_up_cgroup();
      request.cgroup_fd = -1;
      result = spawner_(request);
    }
    output_.close_child_ends(local);
    if (const auto* refused = std::get_if<SpawnFailure>(&result)) {
      failure = StartFailure{local, refused->errnum, refused->step};
      break;
    }
    auto& spawned = std::get<Spawned>(result);
    record.pid = spawned.pid;
    living_.emplace(spawned.pid, i);
    // In epoll from its first moment: deaths during the start are told in their order, too.
    auto& pidfd = pidfds_.emplace_back(std::make_unique<asio::posix::stream_descriptor>(io_));
    boost::system::error_code refused;
    pidfd->assign(spawned.pidfd.get(), refused);
    if (refused) {
      living_.erase(spawned.pid);  // unwatched, it is reaped as an orphan
      failure = StartFailure{local, refused.value(), "epoll"};
      break;
    }
    static_cast<void>(spawned.pidfd.release());
  }
  for (std::size_t i = 0; i < pidfds_.size(); ++i) {
    if (pidfds_[i]->is_open()) watch(i);
  }
  return failure;
}

void WorkerGroup::watch(std::size_t index) {
  // epoll reports in the order in which the workers died: the first one told is the first that
  // failed.
  pidfds_[index]->async_wait(asio::posix::stream_descriptor::wait_read,
                             [this, index](boost::system::error_code error) {
                               if (!error) take_exit(index);
                             });
}

void WorkerGroup::take_exit(std::size_t index) {
  auto& record = records_[index];
  int status = 0;
  rusage usage{};
  const pid_t reaped = ::wait4(record.pid, &status, WNOHANG, &usage);
  if (reaped == 0) return watch(index);
  if (reaped < 0) status = 255 << 8;  // somebody else has taken it: all we know is that it is gone
  living_.erase(record.pid);
  pidfds_[index].reset();
  record.status = exit_status_from_wait(status);
  if (record.abort_code && !is_success(*record.status)) record.status = Exited{*record.abort_code};
  record.ended = std::chrono::steady_clock::now();
  record.peak_rss_bytes = static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
  output_.drain(record.local_rank);
  reap_orphans();
  on_exit_(record);
}

static bool is_stopped(pid_t pid) {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(pid), &info, WSTOPPED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == pid;
}

static bool is_dead(pid_t pid) {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == pid;
}

void WorkerGroup::signal(int signo) {
  for (const auto& [pid, index] : living_) {
    auto& record = records_[index];
    const bool ends = signo == SIGTERM || signo == SIGINT || signo == SIGQUIT || signo == SIGHUP ||
                      signo == SIGKILL;
    if (ends && !record.asked_to_end) record.was_stopped = is_stopped(pid);
    record.asked_to_end = record.asked_to_end || (ends && !is_dead(pid));  // else it died by itself
    // The leader is not reaped yet, so the number of its group can't have been given to others.
    ::killpg(pid, signo);
    if (ends) ::killpg(pid, SIGCONT);  // a stopped process heeds nothing but SIGKILL
  }
}

void WorkerGroup::abort(Rank rank, int code) {
  for (const auto& [pid, index] : living_) {
    auto& record = records_[index];
    if (record.rank != rank || record.asked_to_end) continue;
    record.abort_code = code;
    ::killpg(pid, SIGKILL);
  }
}

void WorkerGroup::reap_orphans() {
  for (;;) {
    siginfo_t info{};
    if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
    if (living_.contains(info.si_pid)) return;  // its own watch takes it, and calls us again
    ::waitpid(info.si_pid, nullptr, WNOHANG);
  }
}

}  // namespace acc::agent
