#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <string>

/// Calls that may hang and have no time-out: above all ncclCommAbort (NVIDIA/nccl #549, #863, #992,
/// #1013, #1777).
namespace acc::runtime::nccl {

/// Exit status of a process whose GPU doesn't respond: only a new process helps, which the agent
/// starts. EX_IOERR, for a device that doesn't answer.
inline constexpr int kStuckStatus = 74;

/// Prints the reason to stderr and ends the process without destructors, which would hang as well.
[[noreturn]] void exit_stuck(const std::string& why) noexcept;

/// Runs `call` in its own thread. If it hasn't returned after `limit`: exit_stuck.
/// @return ready when the call returns. Its destructor doesn't wait.
[[nodiscard]] std::shared_future<void> run_or_exit(std::string what,
                                                   std::chrono::milliseconds limit,
                                                   std::function<void()> call);

}  // namespace acc::runtime::nccl
