#include "agent/daemon/trial_processes.hpp"

#include "agent/daemon/job_group.hpp"
#include "agent/daemon/on_own_thread.hpp"
#include "agent/daemon/on_pool.hpp"
#include "agent/daemon/process_identity.hpp"
#include "agent/small_file.hpp"
#include "common/log.hpp"
#include "common/random.hpp"
#include "common/text.hpp"

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace acc::agent::daemon {

namespace asio = boost::asio;
using asio::awaitable;
using namespace std::chrono_literals;

namespace {

constexpr std::string_view kGroupPrefix = "_trial-";  // names of jobs begin with a letter or digit

using Work = std::function<awaitable<std::uint64_t>()>;

/// True once `work` returned 0. It runs again after pauses until `limit` has passed.
awaitable<bool> repeat(Work work, std::chrono::milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  asio::steady_timer pause{co_await asio::this_coro::executor};
  for (auto time = 2ms;; time = std::min<std::chrono::milliseconds>(time * 2, 100ms)) {
    const auto left = co_await work();
    if (left == 0) co_return true;
    if (std::chrono::steady_clock::now() >= end) co_return false;
    pause.expires_after(time);
    boost::system::error_code ignored;
    co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
}

// Several daemons, each with its own state folder, may run in one control group.
bool is_of_living_daemon(std::string_view name) {
  name.remove_prefix(kGroupPrefix.size());
  const auto pid = parse_number<pid_t>(name.substr(0, name.find('-')));
  return pid && *pid > 0 && (::kill(*pid, 0) == 0 || errno != ESRCH);
}

// A group is busy until the last of its processes has exited.
awaitable<std::uint64_t> kill_and_remove(asio::thread_pool& pool, std::string jobs_group,
                                         std::vector<std::string> names) {
  std::function<std::uint64_t()> work = [=] {
    std::uint64_t left = 0;
    for (const auto& name : names) left += remove_job_group(jobs_group, name) ? 0 : 1;
    return left;
  };
  co_return co_await on_pool(pool, std::move(work));
}

// @return how many; 1 also where they can't be read
awaitable<std::uint64_t> kill_marked(uid_t uid, std::string mark) {
  const auto killed = std::make_shared<std::uint64_t>(0);
  std::function<void()> kill = [=] { *killed = kill_processes_with(uid, mark); };
  const bool is_known = co_await on_own_thread(uid, std::move(kill), 5s);
  co_return is_known ? *killed : 1;
}

}  // namespace

TrialProcesses::TrialProcesses(std::string jobs_group, uid_t uid, asio::thread_pool& pool)
    : jobs_group_{std::move(jobs_group)},
      uid_{uid},
      pool_{pool},
      name_{std::string{kGroupPrefix} + std::to_string(::getpid()) + '-' + random_name()},
      group_{make_job_group(jobs_group_, name_, ::geteuid(), ::getegid())} {}

void TrialProcesses::enter(GuardianRequest& request) const {
  request.cgroup_fd = group_.get();
  request.environment.push_back(mark());
}

bool TrialProcesses::look_after_fork() {
  const auto events = read_small_file(jobs_group_ + '/' + name_ + "/cgroup.events");
  if (group_ && events.find("populated 1") != std::string::npos) return true;
  drop_job_group(jobs_group_, name_);
  group_.reset();
  return false;
}

void TrialProcesses::kill_soon() const {
  if (group_) return kill_job_group(jobs_group_, name_);
  begin_on_own_thread(uid_, [uid = uid_, mark = mark()] { kill_processes_with(uid, mark); });
}

awaitable<bool> TrialProcesses::end(std::chrono::milliseconds limit) const {
  Work work;
  if (group_)
    work = [this] { return kill_and_remove(pool_, jobs_group_, {name_}); };
  else
    work = [this] { return kill_marked(uid_, mark()); };
  co_return co_await repeat(std::move(work), limit);
}

awaitable<void> end_earlier_trials(std::string jobs_group, asio::thread_pool& pool) {
  if (jobs_group.empty()) co_return;
  std::vector<std::string> names;
  if (DIR* const folder = ::opendir(jobs_group.c_str()); folder != nullptr) {
    while (const dirent* entry = ::readdir(folder))
      if (std::string_view{entry->d_name}.starts_with(kGroupPrefix) &&
          !is_of_living_daemon(entry->d_name))
        names.emplace_back(entry->d_name);
    ::closedir(folder);
  }
  if (names.empty()) co_return;
  Work work = [&] { return kill_and_remove(pool, jobs_group, names); };
  const bool is_clear = co_await repeat(std::move(work), 10s);
  if (!is_clear) log::warn("trials_left", {{"group", jobs_group}, {"why", "not to be killed"}});
}

}  // namespace acc::agent::daemon
