#include "agent/daemon/job_processes.hpp"

#include "agent/control_protocol.hpp"
#include "agent/daemon/crash_point.hpp"
#include "agent/daemon/descriptor_waits.hpp"
#include "agent/daemon/job_group.hpp"
#include "agent/daemon/on_own_thread.hpp"
#include "agent/daemon/on_pool.hpp"
#include "agent/daemon/process_identity.hpp"
#include "agent/daemon/user_file.hpp"
#include "agent/job_folder_notes.hpp"
#include "common/log.hpp"
#include "common/random.hpp"

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace acc::agent::daemon {

namespace asio = boost::asio;
using asio::awaitable;
using namespace std::chrono_literals;
using Descriptor = asio::posix::stream_descriptor;

namespace {

/// Of an agent that lost its guardian: for the workers' grace.
constexpr auto kSweepLimit = 60s;
constexpr auto kAgentLimit = 2s;
constexpr auto kStacksLimit = 15s;
/// To look through /proc, also on a machine with very many processes that does much else.
constexpr auto kScanLimit = 20s;
/// Before the guardian's own end.
constexpr auto kKillLimit = 5s;
/// From the start of an agent to its socket.
constexpr auto kSocketLimit = 3s;

/// It is there, and isn't what is read (user_file.hpp); not by an error of the system.
bool is_refused(const Error& error) { return error.errnum == 0; }

}  // namespace

void send_to(const UniqueFd& process, int signo) {
  ::syscall(SYS_pidfd_send_signal, process.get(), signo, nullptr, 0U);
}

Result<Found> JobProcesses::look(const Job& job, const UniqueFd& process) const {
  Found found;
  found.jitter = random_fraction();
  found.same_boot = job.stored.guardian.boot_id == boot_id();
  found.lives = static_cast<bool>(process);
  // It was recorded before the fork: what lies there is of an earlier guardian.
  if (found.lives || job.stored.guardian.pid == 0) return found;
  const auto folder = folder_.open_user_folder(job.id());
  if (folder.has_error()) {
    // Hidden by its user's mount: not to be taken for one that never began, and begun twice.
    found.has_started = is_refused(folder.error());
    if (found.has_started || folder.error().errnum == ENOENT) return found;
    return folder.error();
  }
  const auto started = has_user_file(folder->get(), "started");
  if (started.has_error()) return started.error();
  found.has_started = *started;
  constexpr std::size_t kLongest = 4096;
  const auto text = read_user_file(folder->get(), "exit.json", job.stored.uid, kLongest);
  if (text.has_error()) {
    if (is_refused(text.error()) || text.error().errnum == ENOENT) return found;
    return text.error();
  }
  const auto note = decode_exit(*text);
  if (note.has_error()) return found;
  found.exit_code = note->exit_code;
  found.was_stopped = note->was_stopped;
  found.not_started = note->not_started;
  if (note->time_ms >= job.stored.started_ms && note->time_ms <= wall_ms())
    found.ended_ms = note->time_ms;
  return found;
}

namespace {

awaitable<void> pause_for(std::chrono::milliseconds time) {
  asio::steady_timer timer{co_await asio::this_coro::executor, time};
  boost::system::error_code ignored;
  co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
}

}  // namespace

awaitable<Found> JobProcesses::look_until_read(JobPtr job) const {
  for (bool is_told = false;; is_told = true) {
    const auto found = look(*job, UniqueFd{});
    if (found.has_value()) co_return *found;
    if (!is_told)
      log::error(
          "job_end_unknown",
          {{"job", job->id()}, {"why", found.error().what}, {"next", "looks again each second"}});
    co_await pause_for(1s);
  }
}

namespace {

/// One of the sweeps of a user.
class SweepTurn {
 public:
  SweepTurn(std::shared_ptr<std::map<uid_t, int>> sweeps, uid_t uid)
      : sweeps_{std::move(sweeps)}, uid_{uid} {
    ++(*sweeps_)[uid_];
  }
  ~SweepTurn() {
    if (--(*sweeps_)[uid_] == 0) sweeps_->erase(uid_);
  }
  SweepTurn(const SweepTurn&) = delete;
  SweepTurn& operator=(const SweepTurn&) = delete;

 private:
  std::shared_ptr<std::map<uid_t, int>> sweeps_;
  uid_t uid_;
};

// Nothing: they can't be read now.
awaitable<std::optional<std::vector<FoundProcess>>> find_processes(uid_t uid, std::string mark,
                                                                   std::size_t most) {
  const auto found = std::make_shared<std::vector<FoundProcess>>();
  std::function<void()> find = [=] { *found = processes_with(uid, mark, most); };
  const bool is_known = co_await on_own_thread(uid, std::move(find), kScanLimit);
  std::optional<std::vector<FoundProcess>> answer;
  if (is_known) answer = std::move(*found);
  co_return answer;
}

// What can't be read now is killed by the next sweep, or with the control group.
awaitable<void> kill_processes(uid_t uid, std::string mark, pid_t spared) {
  std::function<void()> kill = [=] { kill_processes_with(uid, mark, spared); };
  (void)co_await on_own_thread(uid, std::move(kill), kKillLimit);
}

}  // namespace

awaitable<void> JobProcesses::sweep(JobPtr job) const {
  constexpr std::size_t kPortion = 32;
  constexpr int kSweepsOfAUser = 2;
  using Clock = std::chrono::steady_clock;
  const auto uid = job->stored.uid;
  const auto mark = std::string{kJobFolderVariable} + '=' + folder_.user_path(job->id());
  const auto end = Clock::now() + kSweepLimit;  // the agent's grace runs meanwhile
  while (sweeps_->contains(uid) && sweeps_->at(uid) >= kSweepsOfAUser) co_await pause_for(100ms);
  const SweepTurn turn{sweeps_, uid};
  const auto give_up = std::max(end, Clock::now()) + 5s;
  for (;;) {
    const bool is_late = Clock::now() >= end;
    if (is_late) {
      auto copy = mark;
      co_await kill_processes(uid, std::move(copy), 0);
    }
    auto copy = mark;
    auto left = co_await find_processes(uid, std::move(copy), kPortion);
    if ((left && left->empty()) || Clock::now() >= give_up) break;
    if (!left) {
      co_await pause_for(1s);
      continue;
    }
    for (auto& process : *left) {
      const auto patience = std::chrono::duration_cast<std::chrono::milliseconds>(
          (is_late ? give_up : end) - Clock::now());
      co_await await_readable(std::move(process.fd), std::max(patience, 1ms));
    }
    co_await pause_for(50ms);
  }
  kill_job_group(group_, job->id());
}

awaitable<void> JobProcesses::remove_group(JobPtr job) const {
  constexpr auto kPatience = 30s;
  if (std::exchange(job->loses_group, true)) co_return;
  const auto end = std::chrono::steady_clock::now() + kPatience;
  for (auto pause = 10ms;; pause = std::min(2 * pause, 1'000ms)) {
    std::function<std::uint64_t()> remove = [group = group_, id = job->id()] {
      return remove_job_group(group, id) ? 1U : 0U;
    };
    if (co_await on_pool(*files_, std::move(remove)) != 0) break;
    if (std::chrono::steady_clock::now() >= end) {
      log::warn("job_group_left", {{"job", job->id()}, {"group", group_}});
      break;
    }
    co_await pause_for(pause);
  }
  job->loses_group = false;
}

awaitable<void> JobProcesses::group_removed(JobPtr job) const {
  while (job->loses_group) co_await pause_for(10ms);
}

Result<void> JobProcesses::send_signal(const Job& job, int signo) const {
  if (!job.process.is_open())
    return Error{Errc::bad_usage, "job " + job.id() + " has no process to signal"};
  auto& process = const_cast<Descriptor&>(job.process);
  if (::syscall(SYS_pidfd_send_signal, process.native_handle(), signo, nullptr, 0U) != 0)
    return system_error(errno, "signal job " + job.id());
  return {};
}

namespace {

/// Tells when something appears in a folder. The kernel lets a user have few instances of inotify
/// (128), and ours are root's: beyond kMost, a request looks at its folder again every 100 ms.
class FolderWatch {
 public:
  /// @param closer  where an instance is closed, which takes the kernel 10 to 100 ms; shared, as
  ///                the request that waits may end with the loop, behind all others that use it
  FolderWatch(std::shared_ptr<std::atomic<int>> watched,
              std::shared_ptr<boost::asio::thread_pool> closer, int folder)
      : watched_{std::move(watched)}, closer_{std::move(closer)}, counts_{*watched_ < kMost} {
    if (!counts_) {
      fd_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));  // never readable
      return;
    }
    ++*watched_;
    fd_.reset(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
    const auto path = "/proc/self/fd/" + std::to_string(folder);
    if (::inotify_add_watch(fd_.get(), path.c_str(), IN_MOVED_TO | IN_CREATE) < 0) fd_.reset();
  }
  ~FolderWatch() {
    if (!counts_) return;
    boost::asio::post(*closer_, [fd = std::move(fd_), watched = watched_]() mutable {
      fd.reset();
      --*watched;
    });
  }
  FolderWatch(const FolderWatch&) = delete;
  FolderWatch& operator=(const FolderWatch&) = delete;

  [[nodiscard]] bool is_open() const { return static_cast<bool>(fd_); }
  [[nodiscard]] UniqueFd changes() const { return UniqueFd{::dup(fd_.get())}; }
  void forget_changes() const {
    char events[4096];
    while (counts_ && ::read(fd_.get(), events, sizeof events) > 0) continue;
  }
  [[nodiscard]] Millis look_again() const { return counts_ ? Millis::max() : Millis{100}; }

 private:
  static constexpr int kMost = 16;
  std::shared_ptr<std::atomic<int>> watched_;
  std::shared_ptr<boost::asio::thread_pool> closer_;
  bool counts_;
  UniqueFd fd_;
};

}  // namespace

// The agent renames its socket into the folder when its first workers are on their way.
awaitable<Result<UniqueFd>> JobProcesses::connect(JobPtr job, bool is_awaited) const {
  const auto folder = folder_.open_user_folder(job->id());
  if (folder.has_error()) co_return folder.error();
  const auto try_once = [&] {
    return connect_user_socket(folder->get(), "control.sock", job->stored.uid);
  };
  const auto is_final = [](const Result<UniqueFd>& socket) {
    return socket.has_value() || socket.error().code != Errc::not_found;
  };
  auto socket = try_once();
  const auto deadline = clock_now() + kSocketLimit;
  std::optional<FolderWatch> watch;  // of a request that waits: one, whatever its user does there
  while (!is_final(socket)) {
    const auto left = std::chrono::duration_cast<Millis>(deadline - clock_now());
    const Error unavailable{Errc::unavailable, "job " + job->id() +
                                                   " is only just being started, its agent can't "
                                                   "be asked yet: try again in a moment"};
    if (!is_awaited || left <= Millis{0} || !job->process.is_open()) co_return unavailable;
    if (watch)
      co_await await_readable(watch->changes(), std::min<Millis>(left, watch->look_again()));
    else
      watch.emplace(watched_, files_, folder->get());
    if (!watch->is_open()) co_return unavailable;
    watch->forget_changes();
    socket = try_once();  // it may have come before the watch, or with what was forgotten
  }
  co_return socket;
}

awaitable<Result<std::string>> JobProcesses::ask(JobPtr job, std::string request) const {
  auto socket = co_await connect(job, !request.starts_with(control::kStatusRequest));
  if (socket.has_error()) co_return socket.error();
  const auto limit = request == control::kStacksRequest ? kStacksLimit : kAgentLimit;
  co_return co_await ask_agent(std::move(*socket), std::move(request), limit);
}

awaitable<void> JobProcesses::stop(JobPtr job, std::optional<std::uint32_t> grace_s) const {
  crash_point("stop.recorded");
  // A guardian or an agent that was stopped (SIGSTOP) would act on nothing, and its job never end.
  if (job->process.is_open()) (void)send_signal(*job, SIGCONT);
  if (grace_s) {
    const auto reply =
        co_await ask(job, "{\"do\": \"stop\", \"grace_s\": " + std::to_string(*grace_s) + "}");
    if (reply.has_value() && reply->find("\"error\"") == std::string::npos) co_return;
  }
  if (job->process.is_open()) (void)send_signal(*job, SIGTERM);  // one that has just ended
  crash_point("stop.sent");
}

awaitable<void> JobProcesses::kill(JobPtr job) const {
  if (!job->process.is_open()) co_return;
  log::warn("job_killed", {{"job", job->id()}, {"why", "its grace is over"}});
  // The agent first: its guardian then sweeps up what the workers left.
  auto mark = std::string{kJobFolderVariable} + '=' + folder_.user_path(job->id());
  co_await kill_processes(job->stored.uid, std::move(mark), job->stored.guardian.pid);
  const auto end = std::chrono::steady_clock::now() + 5s;
  for (auto left = 5'000ms; left > 0ms;
       left = std::chrono::duration_cast<std::chrono::milliseconds>(
           end - std::chrono::steady_clock::now())) {
    if (!job->process.is_open()) co_return;
    UniqueFd copy{::dup(job->process.native_handle())};
    if (co_await await_readable(std::move(copy), left)) co_return;
  }
  kill_job_group(group_, job->id());
  if (job->process.is_open()) (void)send_signal(*job, SIGKILL);
}

}  // namespace acc::agent::daemon
