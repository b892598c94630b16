#pragma once

#include "agent/daemon/guardian_words.hpp"
#include "common/error.hpp"

#include <boost/asio/awaitable.hpp>

#include <string>

/// The user data base, asked without blocking the loop. Where it gives no answer within 10 s, as
/// while a directory server is away, the error is timed_out.
namespace acc::agent::daemon {

/// As look_up_user().
boost::asio::awaitable<Result<LoginUser>> ask_user(uid_t uid, gid_t gid);
boost::asio::awaitable<Result<LoginUser>> ask_user(std::string name);

}  // namespace acc::agent::daemon
