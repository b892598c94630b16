#include "common/agent_client.hpp"
#include "common/clocks.hpp"
#include "common/heartbeat_slot.hpp"
#include "common/text.hpp"
#include "common/worker_env.hpp"
#include "runtime/group/agent_slot.hpp"
#include "runtime/quiet_thread.hpp"
#include "runtime/timeout.hpp"

#include <acc/agent.hpp>
#include <acc/error.hpp>
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace acc::agent {

namespace {

std::string variable(std::string_view name) {
  const char* value = std::getenv(std::string{name}.c_str());
  return value != nullptr ? value : "";
}

// Reports return immediately, except with an agent whose socket is full or that is stopped.
constexpr Millis kPatience{2'000};

// The connection for reports, one per process. After a failure it stays closed: the agent is gone,
// and the process will be stopped anyway.
class Line {
 public:
  static Line& one() {
    static auto* const line = new Line;  // never destroyed: threads may report until the very end
    return *line;
  }
  template <class Tell>
  bool tell(Tell what) {
    const std::lock_guard lock{mutex_};
    if (!tried_) {
      tried_ = true;
      if (auto made = AgentClient::from_environment(kPatience)) client_.emplace(std::move(*made));
    }
    if (client_ && !what(*client_)) client_.reset();
    return client_.has_value();
  }

 private:
  std::mutex mutex_;
  bool tried_ = false;
  std::optional<AgentClient> client_;
};

}  // namespace

bool present() {
  return Line::one().tell([](AgentClient&) { return true; });
}

// ---- heartbeats ----

namespace {

// Looked for once: an atomic pointer, so that a heartbeat costs no more than its stores.
std::atomic<acc::heartbeat::Slot*> g_slot{nullptr};

// The first report is a message, too: it wakes the agent, which from then on looks at the page by
// itself.
void announce(std::uint64_t step) {
  Line::one().tell([&](AgentClient& agent) { return agent.beat(step).has_value(); });
}

acc::heartbeat::Slot* find_slot() {
  static auto* const found = acc::heartbeat::map_slot(variable(worker_env::kAccHeartbeatPage));
  return found;
}

// Null: reports go by message.
acc::heartbeat::Slot* slot_for_reports() {
  static auto* const slot = [] {
    auto* const found = find_slot();
    if (found != nullptr) announce(0);
    g_slot.store(found, std::memory_order_release);
    return found;
  }();
  return slot;
}

// The first call, or without a page.
[[gnu::noinline]] void beat_slowly(std::uint64_t step) {
  auto* const slot = slot_for_reports();
  if (slot != nullptr)
    acc::heartbeat::write_beat(*slot, step);
  else
    announce(step);
}

struct OpenSection {
  std::string name;
  std::uint64_t since_ns = 0;
  Millis limit{0};
};

class Sections {
 public:
  static Sections& one() {
    static auto* const sections = new Sections;  // never destroyed, as the line
    return *sections;
  }
  void begin(std::string_view name, Millis limit) {
    const std::lock_guard lock{mutex_};
    open_.push_back(
        {std::string{name.empty() ? "unnamed" : name}, acc::heartbeat::coarse_now_ns(), limit});
    report();
  }
  void end() {
    const std::lock_guard lock{mutex_};
    if (open_.empty()) return;
    open_.pop_back();
    report();
  }

 private:
  void report() {
    const OpenSection none;
    const auto& now = open_.empty() ? none : open_.back();
    if (auto* const slot = slot_for_reports(); slot != nullptr) {
      acc::heartbeat::write_section(*slot, now.name, now.since_ns,
                                    static_cast<std::uint64_t>(now.limit.count()));
      return;
    }
    Line::one().tell([&](AgentClient& agent) {
      return (open_.empty() ? agent.section_end() : agent.section(now.name, now.limit)).has_value();
    });
  }

  std::mutex mutex_;
  std::vector<OpenSection> open_;
};

}  // namespace

void heartbeat(std::uint64_t step) {
  if (auto* const slot = g_slot.load(std::memory_order_acquire); slot != nullptr) [[likely]]
    return acc::heartbeat::write_beat(*slot, step);
  beat_slowly(step);
}

void checkpoint(std::uint64_t step) {
  // Without an announcement: save_state calls this in programs that send no heartbeats.
  if (auto* const slot = find_slot(); slot != nullptr)
    acc::heartbeat::write_checkpoint(*slot, step);
  Line::one().tell([&](AgentClient& agent) { return agent.checkpoint(step).has_value(); });
}

void begin_section(std::string_view name, std::chrono::milliseconds limit) {
  if (limit < Millis{0})
    throw runtime::Error{
        runtime::ErrorCode::invalid_argument,
        "section " + in_quotes(std::string{name}) + ": its time limit is negative"};
  Sections::one().begin(name, limit);
}
void end_section() { Sections::one().end(); }

Section::Section(std::string_view name, std::optional<std::chrono::milliseconds> limit) {
  begin_section(name, limit.value_or(Millis{0}));
}
Section::~Section() { end_section(); }

void no_restart(std::string_view why) {
  Line::one().tell(
      [&](AgentClient& agent) { return agent.no_restart(std::string{why}).has_value(); });
}

// ---- who may write ----

namespace {

[[noreturn]] void cannot_tell(const Error& error) {
  using runtime::ErrorCode;
  throw runtime::Error{
      error.code == Errc::timed_out ? ErrorCode::timed_out : ErrorCode::system,
      "can't tell whether this process's round is still the current one: " + error.what};
}

}  // namespace

// Without a round in its hello, so that an agent that already runs another round answers.
bool is_current(std::chrono::milliseconds timeout) {
  timeout = runtime::checked_timeout(timeout, "the timeout of is_current");
  const auto named = variable(worker_env::kAccAgentSocket);
  const std::string address{worker_env::worker_socket_in(named)};
  if (address.empty()) return true;
  const auto rank = parse_number<std::uint32_t>(variable(worker_env::kRank));
  const auto round = parse_number<std::uint64_t>(variable(worker_env::kAccRound));
  if (!round) cannot_tell({Errc::bad_usage, "ACC_ROUND isn't set beside ACC_AGENT_SOCKET"});
  auto line = AgentClient::connect(address, Rank{rank.value_or(0)}, std::nullopt);
  if (!line) {
    cannot_tell({line.error().code,
                 line.error().what +
                     " (a container needs the host's network for it; unset ACC_AGENT_SOCKET where "
                     "nothing is to be asked)"});
  }
  const Instant deadline = boot_now() + timeout;
  for (;;) {
    const Instant asked = boot_now();
    const auto left = std::chrono::ceil<Millis>(deadline - asked);
    const auto granted = line->current(Round{*round}, std::max(left, Millis{0}));
    if (!granted) cannot_tell(granted.error());
    if (!*granted) return false;
    // The grant counts from the request: if it expired while this process slept, ask again.
    if (boot_now() - asked < **granted) return true;
    if (boot_now() >= deadline)
      cannot_tell({Errc::timed_out, "this process sleeps longer than an answer holds"});
  }
}

// ---- beats by a thread ----

struct Heartbeat::Thread {
  std::atomic<std::uint64_t> step{0};
  std::mutex mutex;
  std::condition_variable changed;
  bool ended = false;
  std::thread thread;

  void work(Millis every) {
    std::unique_lock lock{mutex};
    while (!ended) {
      lock.unlock();
      heartbeat(step.load(std::memory_order_relaxed));
      lock.lock();
      changed.wait_for(lock, every, [this] { return ended; });
    }
  }
};

Heartbeat::Heartbeat(std::chrono::milliseconds every) : thread_{std::make_unique<Thread>()} {
  every = runtime::checked_timeout(every, "the interval of Heartbeat");
  if (every == Millis{0})
    throw runtime::Error{runtime::ErrorCode::invalid_argument,
                         "the interval of Heartbeat is 0 ms: it must be at least 1 ms"};
  if (!present()) return;
  thread_->thread = runtime::quiet_thread([t = thread_.get(), every] { t->work(every); });
}

Heartbeat::~Heartbeat() {
  {
    const std::lock_guard lock{thread_->mutex};
    thread_->ended = true;
    thread_->changed.notify_all();
  }
  if (thread_->thread.joinable()) thread_->thread.join();
}

void Heartbeat::at(std::uint64_t step) noexcept {
  thread_->step.store(step, std::memory_order_relaxed);
}

}  // namespace acc::agent

namespace acc::runtime {

heartbeat::Slot* agent_slot() { return agent::find_slot(); }

void note_failed_peer(const Error& cause, int rank) noexcept {
  const bool is_of_peer =
      cause.code() == ErrorCode::peer_lost || cause.code() == ErrorCode::aborted;
  const auto& ranks = cause.ranks();
  const bool is_own = std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
  if (!is_of_peer || is_own || std::uncaught_exceptions() > 0) return;
  try {
    if (auto* const slot = agent_slot(); slot != nullptr)
      slot->peer_failed.store(1, std::memory_order_relaxed);
  } catch (const std::exception&) {  // no memory: the agent doesn't wait then
  }
}

}  // namespace acc::runtime
