#include "runtime/nccl/watchdog.hpp"

#include "runtime/nccl/cuda_library.hpp"
#include "runtime/quiet_thread.hpp"

#include <pthread.h>

#include <algorithm>
#include <thread>

namespace acc::runtime::nccl {

Watchdog& Watchdog::instance() {
  // Never destroyed: its threads may hang in a driver when the process ends, and end with it.
  static auto* const only = new Watchdog;
  return *only;
}

Watchdog::Watchdog() {
  const auto start = [](const char* name, auto run) {
    std::thread thread = quiet_thread(run);
    (void)::pthread_setname_np(thread.native_handle(), name);
    thread.detach();
  };
  start("acc-nccl-probe", [this] { probing(); });
  start("acc-nccl-talk", [this] { talking(); });
  start("acc-nccl-watch", [this] { judging(); });
}

void Watchdog::add(std::shared_ptr<Watched> watched) {
  const std::lock_guard lock{mutex_};
  watched_.push_back(std::move(watched));
  ++wakes_;
  changed_.notify_all();
}

void Watchdog::remove(const Watched& watched) noexcept {
  std::shared_ptr<Watched> last;  // not destroyed under the lock
  const std::lock_guard lock{mutex_};
  const auto at = std::find_if(watched_.begin(), watched_.end(),
                               [&](const auto& one) { return one.get() == &watched; });
  if (at == watched_.end()) return;
  last = std::move(*at);
  watched_.erase(at);
}

void Watchdog::wake() noexcept {
  const std::lock_guard lock{mutex_};
  ++wakes_;
  changed_.notify_all();
}

void Watchdog::spread(const Watched& broken, const Error& cause) noexcept {
  std::vector<std::shared_ptr<Watched>> others;
  {
    const std::lock_guard lock{mutex_};
    others = watched_;
  }
  for (const auto& other : others) {
    if (other.get() != &broken && other->device() == broken.device()) other->neighbour_broke(cause);
  }
}

std::vector<std::shared_ptr<Watched>> Watchdog::next_round(
    std::chrono::steady_clock::time_point until, std::uint64_t* seen) {
  std::unique_lock lock{mutex_};
  changed_.wait(lock, [&] { return !watched_.empty(); });
  changed_.wait_until(lock, until, [&] { return seen != nullptr && wakes_ != *seen; });
  if (seen != nullptr) *seen = wakes_;
  return watched_;
}

void Watchdog::probing() {
  // Otherwise querying events would invalidate a graph that another thread captures.
  bool relaxed = false;
  for (;;) {
    // Not immediately when woken: its queries take a lock of the driver.
    const auto round = next_round(std::chrono::steady_clock::now() + kPeriod, nullptr);
    if (!relaxed && !round.empty()) {
      try {
        int mode = cuda::kCaptureRelaxed;
        (void)cuda::library().thread_exchange_stream_capture_mode(&mode);
        relaxed = true;
      } catch (...) {  // tried again in the next round
      }
    }
    for (const auto& watched : round) watched->probe();
  }
}

void Watchdog::talking() {
  std::uint64_t seen = 0;
  auto next = std::chrono::steady_clock::now() + kPeriod;
  for (;;) {
    const auto round = next_round(next, &seen);
    next = std::chrono::steady_clock::now() + kPeriod;
    for (const auto& watched : round) next = std::min(next, watched->talk());
  }
}

void Watchdog::judging() {
  std::uint64_t seen = 0;
  auto next = std::chrono::steady_clock::now() + kPeriod;
  for (;;) {
    const auto round = next_round(next, &seen);
    next = std::chrono::steady_clock::now() + kPeriod;
    for (const auto& watched : round) next = std::min(next, watched->judge());
  }
}

}  // namespace acc::runtime::nccl
