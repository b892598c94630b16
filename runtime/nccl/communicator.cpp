#include "runtime/nccl/communicator.hpp"

#include "common/duration.hpp"
#include "runtime/nccl/limited_call.hpp"

#include <algorithm>
#include <thread>

namespace acc::runtime::nccl {
namespace {

using namespace std::chrono_literals;

/// How long an abort waits for a thread that is inside NCCL with the communicator. That thread may
/// be stuck, and then the abort is what frees it.
constexpr auto kCourtesy = 2s;
/// How often a rank checks during initialisation whether another one has failed.
constexpr auto kNewsPeriod = 200ms;

/// Sleeps of a poll: short at first, as most calls are done immediately, then up to 10 ms.
class Backoff {
 public:
  explicit Backoff(std::chrono::microseconds first) : next_{first} {}
  void sleep() {
    std::this_thread::sleep_for(next_);
    next_ = std::min<std::chrono::microseconds>(next_ * 3 / 2, 10ms);
  }

 private:
  std::chrono::microseconds next_;
};

std::unique_lock<std::mutex> lock_if_possible(std::mutex& mutex) {
  std::unique_lock lock{mutex, std::defer_lock};
  const auto deadline = Clock::now() + kCourtesy;
  // Not a timed mutex: ThreadSanitizer doesn't know its calls in this compiler.
  while (!lock.try_lock() && Clock::now() < deadline) std::this_thread::sleep_for(1ms);
  return lock;
}

}  // namespace

std::string Communicator::title() const {
  return "group '" + who_.name + "', rank " + std::to_string(who_.rank) + " of " +
         std::to_string(who_.size);
}

Deed Communicator::happens(Happening what) noexcept {
  const std::lock_guard lock{state_};
  const auto next = step(phase_, what);
  phase_ = next.phase;
  if (next.deed == Deed::abort) due_ = Deed::abort;
  return next.deed;
}

Phase Communicator::phase() const {
  const std::lock_guard lock{state_};
  return phase_;
}

std::optional<Error> Communicator::cause() const {
  const std::lock_guard lock{state_};
  return cause_;
}

void Communicator::throw_cause() const {
  const std::lock_guard lock{state_};
  throw Error{*cause_};
}

bool Communicator::fail(const Error& cause) noexcept {
  const std::lock_guard lock{state_};
  if (cause_ || phase_ == Phase::done) return false;
  cause_ = cause;
  const auto next = step(phase_, Happening::failed);
  phase_ = next.phase;
  if (next.deed == Deed::abort) due_ = Deed::abort;
  broken_.store(true, std::memory_order_release);
  return true;
}

void Communicator::init(const UniqueId& id, std::optional<Clock::time_point> deadline, Millis limit,
                        const std::function<std::optional<Error>()>& news) {
  if (happens(Happening::begin) != Deed::init) {
    throw Error{ErrorCode::invalid_argument, title() + ": initialised twice"};
  }
  Config config;
  config.blocking = 0;
  config.comm_name = who_.name.c_str();
  Status status{};
  {
    const std::lock_guard lock{in_use_};
    status = api_.comm_init_rank_config(&comm_, who_.size, id, who_.rank, &config);
  }
  Backoff backoff{1ms};
  auto next_news = Clock::now() + kNewsPeriod;
  while (status == Status::in_progress && !broken() && (!deadline || Clock::now() < *deadline)) {
    backoff.sleep();
    status = poll();
    if (status == Status::in_progress && Clock::now() >= next_news) {
      if (const auto found = news()) fail(*found);
      next_news = Clock::now() + kNewsPeriod;
    }
  }
  if (status == Status::success && !broken()) {
    happens(Happening::succeeded);
    return;
  }
  if (status == Status::in_progress) {
    fail(Error{ErrorCode::timed_out,
               title() + ": NCCL has not connected all ranks within " + describe(limit) +
                   "; all of them had come to the store: see NCCL_DEBUG=INFO, NCCL_SOCKET_IFNAME "
                   "and the network between the nodes"});
  } else {
    // Whatever NCCL answers here, this communicator fails to initialise.
    fail(Error{ErrorCode::nccl, title() + ": " + explain(api_, "ncclCommInitRankConfig", status)});
  }
  begin_abort();
  throw_cause();
}

Status Communicator::poll() noexcept {
  const std::lock_guard lock{in_use_};
  Status found = Status::in_progress;
  if (broken() || comm_ == nullptr) return Status::internal;
  const auto asked = api_.comm_get_async_error(comm_, &found);
  return asked == Status::success ? found : asked;
}

void Communicator::settle(const char* name, Status status, Clock::time_point deadline) {
  Backoff backoff{20us};
  while (status == Status::in_progress) {
    throw_if_broken();
    if (Clock::now() >= deadline) {
      throw Error{ErrorCode::timed_out, title() + ": " + name + " did not end in time"};
    }
    backoff.sleep();
    status = poll();
  }
  throw_if_broken();
  if (status == Status::success) return;
  throw Error{code_of(status), title() + ": " + explain(api_, name, status)};
}

std::optional<Error> Communicator::async_error() noexcept {
  // Not waiting for the lock: its holder asks NCCL anyway.
  const std::unique_lock lock{in_use_, std::try_to_lock};
  if (!lock || broken() || comm_ == nullptr) return std::nullopt;
  Status found = Status::success;
  const auto asked = api_.comm_get_async_error(comm_, &found);
  if (asked != Status::success) found = asked;
  if (found == Status::success || found == Status::in_progress) return std::nullopt;
  return Error{ErrorCode::nccl,
               title() + ": " + explain(api_, "asynchronous error of NCCL", found)};
}

void Communicator::begin_abort() noexcept {
  const std::lock_guard lock{state_};
  if (due_ != Deed::abort) return;
  due_ = Deed::nothing;
  try {
    abort_ = run_or_exit(title() + ": ncclCommAbort", who_.abort_limit, [this] {
      const auto in_use = lock_if_possible(in_use_);
      if (comm_ != nullptr) (void)api_.comm_abort(comm_);
      comm_ = nullptr;
    });
  } catch (...) {
    due_ = Deed::abort;  // no thread can be started: the watchdog tries again
  }
}

void Communicator::await_abort() noexcept {
  std::shared_future<void> abort;
  {
    const std::lock_guard lock{state_};
    abort = abort_;
  }
  if (abort.valid()) abort.wait();
}

void Communicator::close(Millis limit) noexcept {
  if (happens(Happening::close) == Deed::finalize) {
    Status status{};
    {
      const std::lock_guard lock{in_use_};
      status = api_.comm_finalize(comm_);
    }
    const auto deadline = Clock::now() + limit;
    Backoff backoff{100us};
    while (status == Status::in_progress && Clock::now() < deadline) {
      backoff.sleep();
      status = poll();
    }
    if (status == Status::success && happens(Happening::succeeded) == Deed::destroy) {
      try {
        run_or_exit(title() + ": ncclCommDestroy", who_.abort_limit, [this] {
          const std::lock_guard lock{in_use_};
          (void)api_.comm_destroy(comm_);
          comm_ = nullptr;
        }).wait();
      } catch (...) {  // no thread: it is left to the end of the process
      }
      return;
    }
    try {
      fail(Error{ErrorCode::aborted,
                 title() + ": the peers did not end their part within " + describe(limit)});
    } catch (...) {
      happens(Happening::failed);
    }
  }
  begin_abort();
  await_abort();
}

}  // namespace acc::runtime::nccl
