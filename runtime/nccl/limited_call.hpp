#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <string>

/// Calls that may hang and have no limit of their own: ncclCommAbort above all (NVIDIA/nccl #549,
/// #863, #992, #1013, #1777).
namespace acc::runtime::nccl {

/// With this status a process ends whose GPU can't be brought to let go: nothing but a new process
/// helps, and the agent starts one. EX_IOERR, as it is a device that doesn't answer.
inline constexpr int kStuckStatus = 74;

/// Says why on stderr and ends the process, without destructors: those would hang as well.
[[noreturn]] void exit_stuck(const std::string& why) noexcept;

/// Runs `call` in a thread of its own. When it isn't back after `limit`: exit_stuck.
/// @return ready when the call is back. It doesn't wait when it is destroyed.
[[nodiscard]] std::shared_future<void> run_or_exit(std::string what,
                                                   std::chrono::milliseconds limit,
                                                   std::function<void()> call);

}  // namespace acc::runtime::nccl
