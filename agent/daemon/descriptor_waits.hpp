#pragma once

#include "common/error.hpp"
#include "common/unique_fd.hpp"

#include <boost/asio/awaitable.hpp>

#include <chrono>
#include <string>

/// Waits for descriptors on the loop, each with a deadline.
namespace acc::agent::daemon {

/// Writes `request` and a newline, and reads the reply's line, which is returned without its end.
boost::asio::awaitable<Result<std::string>> ask_agent(UniqueFd socket, std::string request,
                                                      std::chrono::milliseconds limit);
/// All until the end of file.
/// @return with what was waited for: timed_out, if it doesn't end; malformed, once there are more
///   than `most` bytes
boost::asio::awaitable<Result<std::string>> read_to_end(UniqueFd fd, std::size_t most,
                                                        std::chrono::milliseconds limit,
                                                        std::string what);
/// Until the descriptor is readable: a pidfd's process has ended. False: the time is over. One that
/// the loop can't take (no memory) is looked at again and again; without a descriptor, as of a
/// dup() that failed, it is false after a pause, for the caller to try again.
boost::asio::awaitable<bool> await_readable(UniqueFd fd, std::chrono::milliseconds limit);

}  // namespace acc::agent::daemon
