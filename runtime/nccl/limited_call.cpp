#include "runtime/nccl/limited_call.hpp"

#include "common/duration.hpp"

#include <unistd.h>

#include <cstdio>
#include <memory>
#include <thread>

namespace acc::runtime::nccl {

std::shared_future<void> run_or_exit(std::string what, std::chrono::milliseconds limit,
                                     std::function<void()> call) {
  auto promise = std::make_shared<std::promise<void>>();
  auto back = promise->get_future().share();
  // Both threads are detached: a hung one can't be joined, and they hold what they use.
  std::thread{[back, what = std::move(what), limit] {
    if (back.wait_for(limit) == std::future_status::ready) return;
    const auto line = "acc: " + what + " did not return within " + describe(limit) +
                      ": the process ends with status " + std::to_string(kStuckStatus) + "\n";
    // write and not stdio: another thread may hold stderr's lock and be stuck with it.
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
    ::_exit(kStuckStatus);
  }}.detach();
  std::thread{[promise, call = std::move(call)] {
    call();
    promise->set_value();
  }}.detach();
  return back;
}

}  // namespace acc::runtime::nccl
