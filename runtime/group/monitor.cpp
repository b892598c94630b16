#include "runtime/group/monitor.hpp"

#include "common/duration.hpp"
#include "common/unique_fd.hpp"
#include "runtime/bootstrap/quiet_thread.hpp"
#include "runtime/group/fork.hpp"
#include "runtime/group/group.hpp"

#include <nlohmann/json.hpp>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <thread>

namespace acc::runtime::monitor {

namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

// One write, so that the lines of several ranks don't mix.
void tell(const std::string& what) noexcept {
  const std::string line = "acc: " + what + "\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

// What the handler may touch.
std::atomic<int> g_wake{-1};
struct sigaction g_before;  // written before the handler is there

void on_signal(int signo, siginfo_t* info, void* context) {
  const int saved = errno;
  const std::uint64_t one = 1;
  const int fd = g_wake.load(std::memory_order_relaxed);
  if (fd >= 0) [[maybe_unused]]
    const auto written = ::write(fd, &one, sizeof one);
  if ((g_before.sa_flags & SA_SIGINFO) != 0) {
    if (g_before.sa_sigaction != nullptr) g_before.sa_sigaction(signo, info, context);
  } else if (g_before.sa_handler != SIG_DFL && g_before.sa_handler != SIG_IGN) {
    g_before.sa_handler(signo);
  }
  errno = saved;
}

std::string file_of(const Group& group, const std::string& folder) {
  std::string name = group.facts().name;
  for (char& c : name)
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.'))
      c = '_';
  return folder + "/flight-" + name + "-rank" + std::to_string(group.facts().rank) + "-" +
         std::to_string(::getpid()) + ".jsonl";
}

std::string header_of(const Group& group, std::string_view why) {
  const auto& facts = group.facts();
  nlohmann::ordered_json head{{"group", facts.name},
                              {"rank", facts.rank},
                              {"size", facts.size},
                              {"pid", ::getpid()},
                              {"round", variable("ACC_ROUND")},
                              {"why", why},
                              {"calls", group.record().calls()},
                              {"now_ns", Clock::now().time_since_epoch().count()},
                              {"unix_time", std::time(nullptr)}};
  const auto me = static_cast<std::size_t>(facts.rank);
  if (me < facts.ranks.size()) head["host"] = facts.ranks[me].host;
  return head.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) + "\n";
}

void write_record(const Group& group, const std::string& folder, std::string_view why) {
  const std::string path = file_of(group, folder);
  const std::string text = header_of(group, why) + group.flight_record();
  const UniqueFd file{::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)};
  std::string_view rest = text;
  while (file && !rest.empty()) {
    const auto n = ::write(file.get(), rest.data(), rest.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) break;
    rest.remove_prefix(static_cast<std::size_t>(n));
  }
  if (!file || !rest.empty()) tell("write the flight record " + path + ": " + std::strerror(errno));
}

// For good: nobody expects a signal that did no harm to become deadly again.
void handle_signal() {
  struct sigaction current {};
  ::sigaction(SIGUSR2, nullptr, &current);
  if ((current.sa_flags & SA_SIGINFO) != 0 && current.sa_sigaction == on_signal) return;
  g_before = current;
  struct sigaction ours {};
  ours.sa_sigaction = on_signal;
  ours.sa_flags = SA_SIGINFO | SA_RESTART;
  ::sigemptyset(&ours.sa_mask);
  ::sigaction(SIGUSR2, &ours, nullptr);
}

class Monitor {
 public:
  static Monitor& one();

  void watch(Group& group) {
    const std::lock_guard lock{mutex_};
    if (groups_.empty()) begin();
    groups_.emplace(&group, Told{});
  }
  void forget(Group& group) noexcept {
    std::thread ended;
    {
      const std::lock_guard lock{mutex_};
      groups_.erase(&group);
      if (groups_.empty()) ended = end();
    }
    if (ended.joinable()) ended.join();
  }
  void dump(Group& group, std::string_view why) {
    std::string folder;
    {
      const std::lock_guard lock{mutex_};
      folder = folder_;
    }
    if (!folder.empty()) write_record(group, folder, why);
  }

 private:
  // What was said last of a group's slow call.
  struct Told {
    FlightRecorder::Ticket ticket = 0;
    Millis next{0};
  };

  void begin();
  std::thread end() noexcept;
  void work(std::shared_ptr<UniqueFd> wake, Millis patience, std::uint64_t life);
  void look(Group& group, Told& told, Millis patience);

  const std::uint64_t made_in_ = fork_generation();
  std::mutex mutex_;
  std::map<Group*, Told> groups_;
  std::string folder_;
  std::shared_ptr<UniqueFd> wake_;
  std::thread thread_;
  std::uint64_t life_ = 0;  // counts the threads: one that has been told to end sees another number
};

// Never destroyed: groups may outlive statics. A forked process takes a new one, as the thread of
// the old one isn't there and its lock may be held for ever.
Monitor& Monitor::one() {
  static std::atomic<Monitor*> newest{nullptr};
  Monitor* current = newest.load(std::memory_order_acquire);
  while (current == nullptr || current->made_in_ != fork_generation()) {
    auto fresh = std::make_unique<Monitor>();
    if (newest.compare_exchange_strong(current, fresh.get(), std::memory_order_acq_rel))
      return *fresh.release();
  }
  return *current;
}

void Monitor::begin() {
  folder_ = variable("ACC_FLIGHT_DIR");
  const std::string slow = variable("ACC_WATCHDOG");
  const auto patience = slow.empty() ? Result<Millis>{Millis{0}} : parse_duration(slow);
  if (!patience)
    throw runtime::Error{ErrorCode::invalid_argument, "ACC_WATCHDOG: " + patience.error().what};
  if (folder_.empty() && *patience == Millis{0}) return;
  if (!folder_.empty()) ::mkdir(folder_.c_str(), 0777);  // what is wrong shows when we write
  wake_ = std::make_shared<UniqueFd>(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!*wake_)
    throw runtime::Error{ErrorCode::system, "eventfd: " + std::string{std::strerror(errno)}};
  g_wake.store(wake_->get());
  if (!folder_.empty()) handle_signal();
  thread_ = quiet_thread(
      [this, wake = wake_, limit = *patience, life = life_] { work(wake, limit, life); });
  ::pthread_setname_np(thread_.native_handle(), "acc-monitor");
}

std::thread Monitor::end() noexcept {
  ++life_;
  if (wake_) {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(wake_->get(), &one, sizeof one);
    g_wake.store(-1);
    wake_.reset();
  }
  return std::move(thread_);
}

void Monitor::work(std::shared_ptr<UniqueFd> wake, Millis patience, std::uint64_t life) {
  const bool watches = patience > Millis{0};
  const int pause =
      watches ? static_cast<int>(std::clamp<Millis::rep>(patience.count() / 4, 5, 1000)) : -1;
  std::unique_lock lock{mutex_};
  while (life == life_) {
    lock.unlock();
    pollfd ready{wake->get(), POLLIN, 0};
    ::poll(&ready, 1, pause);
    std::uint64_t count = 0;
    const bool asked = ::read(wake->get(), &count, sizeof count) > 0;
    lock.lock();
    if (life != life_) return;
    for (auto& [group, told] : groups_) {
      if (asked) write_record(*group, folder_, "SIGUSR2");
      if (watches) look(*group, told, patience);
    }
  }
}

void Monitor::look(Group& group, Told& told, Millis patience) {
  const auto slow = group.record().oldest_running();
  if (!slow) return;
  const auto lasted = std::chrono::duration_cast<Millis>(Clock::now() - slow->begin);
  if (told.ticket != slow->ticket) told = {slow->ticket, patience};
  if (lasted < told.next) return;
  told.next = 2 * lasted;
  const auto missing = group.backend().waits_for();
  tell("group '" + group.facts().name + "', rank " + std::to_string(group.facts().rank) + ": " +
       runtime::to_string(slow->what) + " has been running for " + describe(lasted) +
       (missing.empty() ? "" : ", waiting for " + describe_ranks(missing)));
}

}  // namespace

void watch(Group& group) { Monitor::one().watch(group); }
void forget(Group& group) noexcept { Monitor::one().forget(group); }

void dump(Group& group, std::string_view why) noexcept {
  try {
    Monitor::one().dump(group, why);
  } catch (const std::exception& e) {
    tell(std::string{"write the flight record: "} + e.what());
  }
}

}  // namespace acc::runtime::monitor
