#include "runtime/nccl/limited_call.hpp"

#include "common/duration.hpp"
#include "runtime/quiet_thread.hpp"

#include <unistd.h>

#include <cstdio>
#include <memory>

namespace acc::runtime::nccl {

void exit_stuck(const std::string& why) noexcept {
  try {
    const auto line =
        "acc: " + why + ": the process ends with status " + std::to_string(kStuckStatus) + "\n";
    // write, not stdio: a stuck thread may hold stderr's lock.
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
  } catch (...) {  // no memory for the text
  }
  ::_exit(kStuckStatus);
}

std::shared_future<void> run_or_exit(std::string what, std::chrono::milliseconds limit,
                                     std::function<void()> call) {
  auto promise = std::make_shared<std::promise<void>>();
  auto back = promise->get_future().share();
  // Both threads are detached: a hung one can't be joined, and they hold what they use.
  quiet_thread([back, what = std::move(what), limit] {
    if (back.wait_for(limit) == std::future_status::ready) return;
    exit_stuck(what + " did not return within " + describe(limit));
  }).detach();
  quiet_thread([promise, call = std::move(call)] {
    call();
    promise->set_value();
  }).detach();
  return back;
}

}  // namespace acc::runtime::nccl
