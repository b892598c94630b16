#include "agent/daemon/accounts.hpp"

#include "agent/daemon/login_user.hpp"
#include "agent/daemon/on_own_thread.hpp"
#include "common/text.hpp"

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <utility>

namespace acc::agent::daemon {

using boost::asio::awaitable;

namespace {

constexpr std::chrono::seconds kLimit{10};  // acc-ctl waits 15 s for an answer

/// The user data base may wait for a directory server, of one user longer than of another.
/// @param asking  the user for whom it is asked
awaitable<Result<LoginUser>> ask(uid_t asking, HeldUpBy what,
                                 std::function<Result<LoginUser>()> look_up, std::string whom) {
  const auto answer = std::make_shared<Result<LoginUser>>(
      Error{Errc::exhausted, "no memory to ask the user data base for " + whom});
  std::function<void()> work = [answer, look_up = std::move(look_up)] {
    try {
      *answer = look_up();
    } catch (const std::exception&) {  // of want of memory
    }
  };
  const bool is_answered = co_await on_own_thread(asking, std::move(work), kLimit, what);
  if (is_answered) co_return std::move(*answer);
  co_return Error{Errc::timed_out,
                  "the user data base gave no answer within 10 s (`getent passwd " +
                      printable(whom, 80) + "`)"};
}

}  // namespace

awaitable<Result<LoginUser>> ask_user(uid_t uid, gid_t gid) {
  std::function<Result<LoginUser>()> look_up = [uid, gid] { return look_up_user(uid, gid); };
  std::string whom = std::to_string(uid);
  co_return co_await ask(uid, HeldUpBy::accounts, std::move(look_up), std::move(whom));
}

awaitable<Result<LoginUser>> ask_user(std::string name) {
  std::function<Result<LoginUser>()> look_up = [name] { return look_up_user(name); };
  co_return co_await ask(0, HeldUpBy::names, std::move(look_up), std::move(name));
}

}  // namespace acc::agent::daemon
