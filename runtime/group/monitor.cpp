#include "runtime/group/monitor.hpp"

#include "common/duration.hpp"
#include "common/unique_fd.hpp"
#include "runtime/fork.hpp"
#include "runtime/group/flight_signals.hpp"
#include "runtime/quiet_thread.hpp"
#include "runtime/wake_event.hpp"

#include <nlohmann/json.hpp>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <system_error>
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

std::string file_of(const Watched& group, const std::string& folder) {
  std::string name = group.facts.name;
  for (char& c : name)
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.'))
      c = '_';
  return folder + "/flight-" + name + "-rank" + std::to_string(group.facts.rank) + "-" +
         std::to_string(::getpid()) + ".jsonl";
}

std::string header_of(const Watched& group, std::string_view why) {
  const auto& facts = group.facts;
  nlohmann::ordered_json head{{"group", facts.name},
                              {"rank", facts.rank},
                              {"size", facts.size},
                              {"pid", ::getpid()},
                              {"round", variable("ACC_ROUND")},
                              {"why", why},
                              {"calls", group.record.calls()},
                              {"now_ns", Clock::now().time_since_epoch().count()},
                              {"unix_time", std::time(nullptr)}};
  const auto me = static_cast<std::size_t>(facts.rank);
  if (me < facts.ranks.size()) head["host"] = facts.ranks[me].host;
  return head.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) + "\n";
}

void write_record(const Watched& group, const std::string& folder, std::string_view why) {
  const std::string path = file_of(group, folder);
  const std::string text =
      header_of(group, why) + to_json_lines(group.record, group.facts.name, group.facts.rank);
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

/// Makes the folder; an error is reported once, before a record is needed.
void prepare(const std::string& folder) {
  static std::atomic<bool> warned{false};
  std::error_code why;
  std::filesystem::create_directories(folder, why);
  if (!why && ::access(folder.c_str(), W_OK | X_OK) != 0)
    why = std::error_code{errno, std::generic_category()};
  if (!why || warned.exchange(true)) return;
  tell("ACC_FLIGHT_DIR=" + folder + ": " + why.message() + "; no flight records will be written");
}

/// For records being written at SIGTERM: a disk may hang.
constexpr auto kWritingTime = std::chrono::seconds{2};

class Monitor {
 public:
  static Monitor& one() { return only_of_process<Monitor>(); }

  void watch(const Watched& group) {
    const std::lock_guard lock{mutex_};
    if (groups_.empty()) begin();
    groups_.emplace(&group, Warned{});
  }
  void forget(const Watched& group) noexcept {
    std::thread ended;
    {
      const std::lock_guard lock{mutex_};
      groups_.erase(&group);
      if (groups_.empty()) ended = end();
    }
    if (ended.joinable()) ended.join();
    // A SIGTERM that arrived when no thread was left to write records.
    if (flight_signals::take().to_end) flight_signals::end_as_asked();
  }
  void dump(const Watched& group, std::string_view why) {
    std::string folder;
    {
      const std::lock_guard lock{mutex_};
      folder = folder_;
      if (folder.empty()) return;
      // A group being destroyed is no longer listed.
      if (const auto known = groups_.find(&group); known != groups_.end())
        known->second.has_cause = true;
      ++writing_;
    }
    struct Done {
      Monitor& monitor;
      ~Done() {
        const std::lock_guard lock{monitor.mutex_};
        --monitor.writing_;
        monitor.written_.notify_all();
      }
    } done{*this};
    write_record(group, folder, why);
  }

 private:
  // The last warning about a group's slow call.
  struct Warned {
    FlightRecorder::Ticket ticket = 0;
    Millis next{0};
    bool has_cause = false;  ///< its record has the cause of the break: not to be overwritten
  };

  void begin();
  std::thread end() noexcept;
  void answer(flight_signals::Asked asked, std::unique_lock<std::mutex>& lock);
  void work(std::shared_ptr<WakeEvent> wake, Millis patience, std::uint64_t life);
  void look(const Watched& group, Warned& warned, Millis patience);

  std::mutex mutex_;
  std::map<const Watched*, Warned> groups_;
  std::string folder_;
  int writing_ = 0;  ///< groups that are breaking
  std::condition_variable written_;
  std::shared_ptr<WakeEvent> wake_;
  std::thread thread_;
  std::uint64_t life_ = 0;  // counts the threads: one that was stopped sees another number
};

void Monitor::begin() {
  folder_ = variable("ACC_FLIGHT_DIR");
  const std::string slow = variable("ACC_WATCHDOG");
  const auto patience = slow.empty() ? Result<Millis>{Millis{0}} : parse_duration(slow);
  if (!patience)
    throw runtime::Error{ErrorCode::invalid_argument, "ACC_WATCHDOG: " + patience.error().what};
  if (folder_.empty() && *patience == Millis{0}) return;
  if (!folder_.empty()) prepare(folder_);
  if (!wake_ || wake_->fd() < 0) wake_ = std::make_shared<WakeEvent>();
  if (!*wake_)
    throw runtime::Error{ErrorCode::system, "socketpair: " + std::string{std::strerror(errno)}};
  if (!folder_.empty()) flight_signals::install(*wake_);
  try {
    thread_ = quiet_thread(
        [this, wake = wake_, limit = *patience, life = life_] { work(wake, limit, life); });
  } catch (...) {
    flight_signals::detach();  // no thread would handle a signal
    throw;
  }
  ::pthread_setname_np(thread_.native_handle(), "acc-monitor");
}

// The event stays: a signal handler of another thread may be about to set it.
std::thread Monitor::end() noexcept {
  ++life_;
  if (wake_) {
    wake_->set();
    flight_signals::detach();
  }
  return std::move(thread_);
}

void Monitor::work(std::shared_ptr<WakeEvent> wake, Millis patience, std::uint64_t life) {
  const bool watches = patience > Millis{0};
  const int pause =
      watches ? static_cast<int>(std::clamp<Millis::rep>(patience.count() / 4, 5, 1000)) : -1;
  std::unique_lock lock{mutex_};
  while (life == life_) {
    lock.unlock();
    pollfd ready{};
    wake->poll({&ready, 1}, pause);
    lock.lock();
    if (life != life_) return;
    answer(flight_signals::take(), lock);
    if (!watches) continue;
    for (auto& [group, warned] : groups_) look(*group, warned, patience);
  }
}

// A launcher sends SIGTERM as soon as one rank has failed, mostly before the calls of the others
// fail: their records show where each of them was.
void Monitor::answer(flight_signals::Asked asked, std::unique_lock<std::mutex>& lock) {
  if (asked.signo == 0) return;
  const bool is_term = asked.signo == SIGTERM || asked.to_end;
  for (const auto& [group, warned] : groups_)
    if (!warned.has_cause) write_record(*group, folder_, is_term ? "SIGTERM" : "SIGUSR2");
  if (!asked.to_end) return;
  written_.wait_for(lock, kWritingTime, [this] { return writing_ == 0; });
  flight_signals::end_as_asked();
}

void Monitor::look(const Watched& group, Warned& warned, Millis patience) {
  const auto slow = group.record.oldest_running();
  if (!slow) return;
  const auto lasted = std::chrono::duration_cast<Millis>(Clock::now() - slow->begin);
  if (warned.ticket != slow->ticket) warned = {slow->ticket, patience};
  if (lasted < warned.next) return;
  warned.next = 2 * lasted;
  const auto missing = group.backend.waits_for();
  tell("group '" + group.facts.name + "', rank " + std::to_string(group.facts.rank) + ": " +
       runtime::to_string(slow->what) + " has been running for " + describe(lasted) +
       (missing.empty() ? "" : ", waiting for " + describe_ranks(missing)));
}

}  // namespace

void watch(const Watched& group) { Monitor::one().watch(group); }
void forget(const Watched& group) noexcept { Monitor::one().forget(group); }

void dump(const Watched& group, std::string_view why) noexcept {
  try {
    Monitor::one().dump(group, why);
  } catch (const std::exception& e) {
    tell(std::string{"write the flight record: "} + e.what());
  }
}

}  // namespace acc::runtime::monitor
