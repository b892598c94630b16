#include "runtime/shm/process_watch.hpp"

#include "common/error.hpp"
#include "common/kept_fd.hpp"
#include "common/text.hpp"
#include "common/unique_fd.hpp"
#include "runtime/fork.hpp"
#include "runtime/quiet_thread.hpp"
#include "runtime/wake_event.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <list>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace acc::runtime::shm {
namespace {

// Interval of look-ups without a pidfd (a kernel before 5.3, a system-call filter, no descriptor
// left).
constexpr int kLookEveryMs = WakeEvent::kLookEveryMs;
constexpr int kShortLookMs = 5;
/// For the thread to end. It wakes at once, except if the program has closed the descriptors by
/// which it is woken.
constexpr std::chrono::seconds kEndTime{1};

/// The fields of /proc/PID/stat after the name, which may contain anything.
std::vector<std::string> stat_fields(pid_t pid) {
  const auto path = "/proc/" + std::to_string(pid) + "/stat";
  const UniqueFd file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  char text[2048];
  const auto size = file ? ::read(file.get(), text, sizeof text) : -1;
  if (size <= 0) return {};
  const std::string_view all{text, static_cast<std::size_t>(size)};
  const auto name_end = all.rfind(')');
  if (name_end == std::string_view::npos) return {};
  return split(trim(all.substr(name_end + 1)), ' ');
}

/// Status of an unreaped process, in the format of waitpid, from /proc.
std::optional<int> status_of_zombie(pid_t pid) {
  constexpr std::size_t kState = 0;
  constexpr std::size_t kExitCode = 49;  // field 52 of proc(5), where the state is 3
  const auto fields = stat_fields(pid);
  if (fields.size() <= kExitCode || fields[kState] != "Z") return std::nullopt;
  return parse_number<int>(fields[kExitCode]);
}

/// Status of a reaped process: Linux 6.15 keeps it with the pidfd.
std::optional<int> status_of_reaped(int pidfd) {
  struct Info {  // struct pidfd_info of linux/pidfd.h, which Debian 12 doesn't have yet
    std::uint64_t mask, cgroup;
    std::uint32_t ids[11];
    std::int32_t exit_code;
  };
  static_assert(sizeof(Info) == 64);
  constexpr std::uint64_t kExit = 1 << 3;
  Info info{};
  info.mask = kExit;
  if (::ioctl(pidfd, _IOWR(0xff, 11, Info), &info) != 0 || (info.mask & kExit) == 0)
    return std::nullopt;
  return info.exit_code;
}

std::string describe(std::optional<int> status) {
  if (!status) return "ended";
  if (WIFSIGNALED(*status)) {
    const int signal = WTERMSIG(*status);
    const char* name = ::sigabbrev_np(signal);
    return "was killed by " + (name ? "SIG" + std::string{name} : std::string{"a signal"}) +
           " (signal " + std::to_string(signal) + ")";
  }
  return "exited with status " + std::to_string(WEXITSTATUS(*status));
}

std::string how_it_ended(pid_t pid, int pidfd) {
  auto status = status_of_zombie(pid);
  if (!status && pidfd >= 0) status = status_of_reaped(pidfd);
  return describe(status);
}

/// Of a pidfd that poll() finds readable. One of the program's own files may have the number now;
/// and of a process that is reaped, the pid may be another's.
bool has_ended_at(int pidfd, pid_t pid) noexcept {
  if (::syscall(SYS_pidfd_send_signal, pidfd, 0, nullptr, 0U) == 0) {
    const char state = process_state(pid);
    return state == 0 || state == 'Z' || state == 'X';
  }
  return errno == ESRCH;
}

}  // namespace

bool has_ended(pid_t pid) noexcept {
  const char state = process_state(pid);
  return state == 'Z' || state == 'X' || (state == 0 && ::kill(pid, 0) != 0 && errno == ESRCH);
}

char process_state(pid_t pid) noexcept {
  try {
    const auto fields = stat_fields(pid);
    return fields.empty() || fields[0].empty() ? '\0' : fields[0][0];
  } catch (...) {  // no memory
    return '\0';
  }
}

void await_end_of_leaver(pid_t pid) noexcept {
  constexpr int kPatienceMs = 500;  // for output and threads of the leaver
  if (pid == ::getpid()) return;    // a thread of ours
  const UniqueFd process{static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))};
  pollfd ended{process.get(), POLLIN, 0};
  if (process || errno == ESRCH) {
    if (process) ::poll(&ended, 1, kPatienceMs);
    return;
  }
  for (int waited = 0; waited < kPatienceMs && !has_ended(pid); waited += kShortLookMs)
    ::poll(nullptr, 0, kShortLookMs);
}

class ProcessWatch::Loop {
 public:
  Loop() {
    if (!wake_)
      throw Error{ErrorCode::system, "watch processes: " + system_error(errno, "socketpair").what};
  }

  /// @return false: it doesn't end, as it can't be woken
  bool stop() noexcept {
    std::unique_lock lock{mutex_};
    stopping_ = true;
    wake_.set();
    return changed_.wait_for(lock, kEndTime, [this] { return ended_; });
  }
  void run() {
    serve();
    const std::lock_guard lock{mutex_};
    ended_ = true;
    changed_.notify_all();
  }

  std::uint64_t add(pid_t pid, Ended ended) {
    UniqueFd fd{static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))};
    const bool is_gone = !fd && errno == ESRCH;
    const std::lock_guard lock{mutex_};
    watched_.push_back({++last_id_, pid, KeptFd{std::move(fd)}, std::move(ended), is_gone});
    wake_.set();
    return last_id_;
  }

  void remove(std::uint64_t id) noexcept {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [&] { return running_ != id; });  // a callback doesn't block
    watched_.remove_if([&](const One& one) { return one.id == id; });
  }

 private:
  struct One {
    std::uint64_t id;
    pid_t pid;
    KeptFd fd;
    Ended ended;
    bool is_gone;
  };

  void serve() {
    for (;;) {
      std::vector<pollfd> fds(1);
      std::vector<std::uint64_t> ids{0};
      std::vector<pid_t> pids{0};
      bool all_have_fds = true;
      {
        const std::lock_guard lock{mutex_};
        if (stopping_) return;
        for (auto& one : watched_) {
          if (!one.fd.is_ours()) one.fd.reset();  // the program has closed it
          all_have_fds = all_have_fds && one.fd;
          if (!one.fd) continue;
          fds.push_back({one.fd.get(), POLLIN, 0});
          ids.push_back(one.id);
          pids.push_back(one.pid);
        }
      }
      // A descriptor closed meanwhile does no harm: its entry is gone by then.
      wake_.poll(fds, all_have_fds ? -1 : kLookEveryMs);
      for (std::size_t i = 1; i < fds.size(); ++i)
        if (fds[i].revents != 0 && is_its_end(ids[i], fds[i], has_ended_at(fds[i].fd, pids[i])))
          tell(ids[i]);
      if (!all_have_fds || wake_.is_lost()) look();
    }
  }

  /// Is it the end of the process that poll found? The program may have closed the descriptor, and
  /// a file of its own may have the number now: the process is looked up from now on. (One that was
  /// just forgotten has no entry any more.)
  /// @param has_ended  by has_ended_at(), which reads files and so isn't asked under the lock
  bool is_its_end(std::uint64_t id, const pollfd& found, bool has_ended) noexcept {
    const std::lock_guard lock{mutex_};
    for (auto& one : watched_) {
      if (one.id != id) continue;
      if (has_ended && (found.revents & POLLNVAL) == 0 && one.fd.is_ours()) return true;
      one.fd.forget();
    }
    return false;
  }

  void look() {
    struct Asked {
      std::uint64_t id;
      pid_t pid;
      bool is_gone;
    };
    std::vector<Asked> asked;  // /proc is read outside of the lock
    {
      const std::lock_guard lock{mutex_};
      for (const auto& one : watched_)
        if (!one.fd) asked.push_back({one.id, one.pid, one.is_gone});
    }
    for (const auto& one : asked)
      if (one.is_gone || has_ended(one.pid)) tell(one.id);
  }

  void tell(std::uint64_t id) {
    One one{};
    {
      const std::lock_guard lock{mutex_};
      for (auto it = watched_.begin(); it != watched_.end(); ++it) {
        if (it->id != id) continue;
        one = std::move(*it);
        watched_.erase(it);
        running_ = id;
        break;
      }
      if (one.id == 0) return;
    }
    one.ended(how_it_ended(one.pid, one.fd.get()));
    const std::lock_guard lock{mutex_};
    running_ = 0;
    changed_.notify_all();
  }

  std::mutex mutex_;
  WakeEvent wake_;
  std::condition_variable changed_;
  std::list<One> watched_;
  std::uint64_t last_id_ = 0;
  std::uint64_t running_ = 0;  ///< id of the running callback; 0: none
  bool stopping_ = false;
  bool ended_ = false;
};

ProcessWatch::ProcessWatch()
    : loop_{std::make_shared<Loop>()}, thread_{quiet_thread([loop = loop_] { loop->run(); })} {}

// A thread that can't be woken keeps what it uses, and ends with the process.
ProcessWatch::~ProcessWatch() {
  if (loop_->stop())
    thread_.join();
  else
    thread_.detach();
}

std::shared_ptr<ProcessWatch> ProcessWatch::shared() {
  // All groups of a process share one thread, which ends with the last of them, and that may be
  // after main. A forked process may have its parent's groups, but not their thread.
  struct Current {
    std::mutex mutex;
    std::weak_ptr<ProcessWatch> watch;
  };
  auto& current = only_of_process<Current>();
  const std::lock_guard lock{current.mutex};
  auto watch = current.watch.lock();
  if (!watch) current.watch = watch = std::make_shared<ProcessWatch>();
  return watch;
}

std::uint64_t ProcessWatch::watch(pid_t pid, Ended ended) {
  return loop_->add(pid, std::move(ended));
}
void ProcessWatch::forget(std::uint64_t id) noexcept { loop_->remove(id); }

}  // namespace acc::runtime::shm
