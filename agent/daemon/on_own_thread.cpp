#include "agent/daemon/on_own_thread.hpp"

#include "agent/daemon/descriptor_waits.hpp"
#include "common/log.hpp"
#include "common/unique_fd.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace acc::agent::daemon {

namespace {

/// The threads of each user, also those that were left behind.
class Running {
 public:
  bool begin(uid_t uid) {
    constexpr int kMostOfUser = 8;
    const std::lock_guard lock{mutex_};
    auto& count = counts_[uid];
    if (count >= kMostOfUser) return false;
    ++count;
    return true;
  }
  void end(uid_t uid) {
    const std::lock_guard lock{mutex_};
    if (--counts_[uid] == 0) counts_.erase(uid);
  }

 private:
  std::mutex mutex_;
  std::map<uid_t, int> counts_;
};

// Never destroyed: a thread may end while this process does.
Running& running() {
  static auto* const kRunning = new Running;
  return *kRunning;
}

struct Call {
  UniqueFd done{::eventfd(0, EFD_CLOEXEC)};
  std::atomic<bool> has_ended = false;
};

// Nothing: it can't be run.
std::shared_ptr<Call> begin(uid_t uid, std::function<void()> work) {
  auto call = std::make_shared<Call>();
  if (!call->done || !running().begin(uid)) return nullptr;
  try {
    std::thread{[uid, call, work = std::move(work)] {
      work();
      call->has_ended = true;
      running().end(uid);
      ::eventfd_write(call->done.get(), 1);
    }}.detach();
  } catch (const std::system_error&) {  // no thread left
    running().end(uid);
    return nullptr;
  }
  return call;
}

bool check_end(uid_t uid, const Call* call) {
  if (call != nullptr && call->has_ended) return true;
  log::warn("user_processes_unreadable",
            {{"uid", uid}, {"why", call == nullptr ? "too many reads of them wait" : "a read waits"}});
  return false;
}

}  // namespace

boost::asio::awaitable<bool> on_own_thread(uid_t uid, std::function<void()> work,
                                           std::chrono::milliseconds limit) {
  const auto call = begin(uid, std::move(work));
  if (call) {
    UniqueFd copy{::dup(call->done.get())};
    co_await await_readable(std::move(copy), limit);
  }
  co_return check_end(uid, call.get());
}

void begin_on_own_thread(uid_t uid, std::function<void()> work) {
  (void)begin(uid, std::move(work));
}

bool run_on_own_thread(uid_t uid, std::function<void()> work, std::chrono::milliseconds limit) {
  const auto call = begin(uid, std::move(work));
  if (call) {
    pollfd one{call->done.get(), POLLIN, 0};
    ::poll(&one, 1, static_cast<int>(limit.count()));
  }
  return check_end(uid, call.get());
}

}  // namespace acc::agent::daemon
