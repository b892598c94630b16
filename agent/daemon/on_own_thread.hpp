#pragma once

#include <boost/asio/awaitable.hpp>

#include <chrono>
#include <functional>

#include <sys/types.h>

/// Reads of a user's processes, which that user can hold up in the kernel for any time: while an
/// execve() waits for a file on a FUSE file system of the user's own, nobody reads the process's
/// /proc/PID/environ, stat or exe. Nor does a look-up in the user data base end while a directory
/// server is away. What does so runs on a thread of its own, which is left behind when its time is
/// over, and ends with this process at the latest.
namespace acc::agent::daemon {

/// Each has threads of its own: look-ups that hang don't keep a job's processes from being ended,
/// nor do names, of which other nodes ask for many, keep their asker's own jobs waiting.
enum class HeldUpBy { processes, accounts, names };

/// @param work  owns all that it uses, as it may outlive the caller. A variable that is moved here,
/// no lambda: GCC 12 destroys twice what a function object made in a co_await holds
/// @return false: it hasn't ended in time, or couldn't begin, as too many of that user's are under
/// way. What it writes to mustn't be read then.
[[nodiscard]] boost::asio::awaitable<bool> on_own_thread(uid_t uid, std::function<void()> work,
                                                         std::chrono::milliseconds limit,
                                                         HeldUpBy what = HeldUpBy::processes);
/// The same for processes; it blocks meanwhile.
[[nodiscard]] bool run_on_own_thread(uid_t uid, std::function<void()> work,
                                     std::chrono::milliseconds limit);

/// The same, and nobody waits for it.
void begin_on_own_thread(uid_t uid, std::function<void()> work);

}  // namespace acc::agent::daemon
