#include "common/agent_client.hpp"
#include "common/clocks.hpp"
#include "common/text.hpp"
#include "common/worker_env.hpp"
#include "runtime/quiet_thread.hpp"
#include "runtime/timeout.hpp"

#include <acc/agent.hpp>
#include <acc/error.hpp>
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace acc::agent {

namespace {

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
void heartbeat(std::uint64_t step) {
  Line::one().tell([&](AgentClient& agent) { return agent.beat(step).has_value(); });
}
void checkpoint(std::uint64_t step) {
  Line::one().tell([&](AgentClient& agent) { return agent.checkpoint(step).has_value(); });
}
void no_restart(std::string_view why) {
  Line::one().tell(
      [&](AgentClient& agent) { return agent.no_restart(std::string{why}).has_value(); });
}

// ---- who may write ----

namespace {

std::string variable(std::string_view name) {
  const char* value = std::getenv(std::string{name}.c_str());
  return value != nullptr ? value : "";
}

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
  const auto address = variable(worker_env::kAccAgentSocket);
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
