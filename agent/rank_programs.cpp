#include "agent/rank_programs.hpp"

#include "agent/process_stat.hpp"
#include "agent/signal_targets.hpp"
#include "common/poll_now.hpp"
#include "common/unique_fd.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <utility>

namespace acc::agent {

namespace {

bool asks_whole_group(int signo) { return signo == SIGINT || signo == SIGQUIT; }

struct Program {
  bool lives = false;  ///< and is still in the group of its worker
  UniqueFd pidfd;      ///< none: there is no descriptor to spare
};

// Without descriptors /proc can't be read either: then it lives as long as its group has its
// number.
Program look_at(pid_t program, pid_t worker) {
  UniqueFd pidfd{static_cast<int>(::syscall(SYS_pidfd_open, program, 0U))};
  if (!pidfd && errno == ESRCH) return {};
  // In this order: the number may be another process's meanwhile, but then of this group, too.
  if (::getpgid(program) != worker) return {};
  const bool has_ended =
      pidfd ? is_ready(pidfd.get(), POLLIN) : read_process_stat(program).state == 'Z';
  if (has_ended) return {};
  return {true, std::move(pidfd)};
}

}  // namespace

RankPrograms::RankPrograms(boost::asio::io_context& io, OnWaiting on_waiting)
    : io_{io}, on_waiting_{std::move(on_waiting)}, patience_{io} {}

void RankPrograms::signal(pid_t worker, int signo, std::span<const pid_t> orphans, bool asks_end) {
  const bool spares = spares_helpers(signo);
  const bool is_noted = asks_end && (spares || asks_whole_group(signo));
  SignalTargets targets;
  bool is_told_apart = false;
  if (spares || is_noted) {
    // Before the signal: a shell that dies of it has no children any more.
    if (const auto processes = processes_of_worker(worker, orphans)) {
      targets = signal_targets(*processes);
      is_told_apart = true;
    } else if (is_noted) {
      targets.programs = programs_of_small(worker);
    }
  }
  if (is_noted) {
    auto& asked = asked_[worker];
    for (const pid_t pid : targets.programs) {
      if (pid == worker || std::ranges::count(asked, pid) != 0 || ignores_signal(pid, signo))
        continue;
      asked.push_back(pid);
    }
  }
  // The leader is not reaped yet, so the number of its group can't have been given to others.
  if (!spares || !is_told_apart) {
    ::killpg(worker, signo);
    return;
  }
  for (const pid_t pid : targets.programs) {
    if (::getpgid(pid) == worker) ::kill(pid, signo);
  }
  if (signo == SIGTERM || signo == SIGHUP || asks_end) spared_[worker] = std::move(targets.helpers);
}

bool RankPrograms::await_programs(pid_t worker, std::function<void()> then) {
  if (!asked_.contains(worker)) return false;
  awaited_[worker].then = std::move(then);
  if (!await_one(worker)) {
    awaited_.erase(worker);
    return false;
  }
  tell_later();
  return true;
}

// One after the other, in any order: the rank is over with the last one that ends.
bool RankPrograms::await_one(pid_t worker) {
  auto& programs = asked_[worker];
  for (; !programs.empty(); programs.pop_back()) {
    auto program = look_at(programs.back(), worker);
    if (!program.lives) continue;
    watch(worker, std::move(program.pidfd));
    return true;
  }
  asked_.erase(worker);
  return false;
}

// One that can't be watched is looked at again after a while.
void RankPrograms::watch(pid_t worker, UniqueFd pidfd) {
  constexpr std::chrono::milliseconds kLookAgain{200};
  auto on_change = [this, worker](boost::system::error_code error) {
    if (error || await_one(worker)) return;
    const auto ended = awaited_.extract(worker);
    if (!ended.empty()) ended.mapped().then();
  };
  auto& awaited = awaited_[worker];
  awaited.pidfd = std::make_unique<Descriptor>(io_);
  boost::system::error_code refused;
  if (pidfd) awaited.pidfd->assign(pidfd.get(), refused);
  if (pidfd && !refused) {
    static_cast<void>(pidfd.release());
    awaited.pidfd->async_wait(Descriptor::wait_read, std::move(on_change));
    return;
  }
  awaited.look_again = std::make_unique<boost::asio::steady_timer>(io_, kLookAgain);
  awaited.look_again->async_wait(std::move(on_change));
}

// A program that ends within that is nothing to tell.
void RankPrograms::tell_later() {
  constexpr std::chrono::seconds kPatience{1};
  if (std::exchange(is_told_, true)) return;
  patience_.expires_after(kPatience);
  patience_.async_wait([this](boost::system::error_code error) {
    if (error) return;
    std::vector<pid_t> workers;
    for (const auto& [worker, awaited] : awaited_) workers.push_back(worker);
    if (workers.empty()) {
      is_told_ = false;
    } else {
      on_waiting_(workers);
    }
  });
}

void RankPrograms::end_helpers(pid_t worker) {
  const auto spared = spared_.extract(worker);
  if (spared.empty()) return;
  for (const pid_t pid : spared.mapped()) {
    if (::getpgid(pid) == worker && read_process_stat(pid).parent == ::getpid())
      ::kill(pid, SIGTERM);
  }
}

std::vector<pid_t> RankPrograms::living(pid_t worker) const {
  std::vector<pid_t> living;
  const auto asked = asked_.find(worker);
  if (asked == asked_.end()) return living;
  for (const pid_t pid : asked->second) {
    if (look_at(pid, worker).lives) living.push_back(pid);
  }
  return living;
}

void RankPrograms::clear() {
  patience_.cancel();
  is_told_ = false;
  asked_.clear();
  spared_.clear();
  awaited_.clear();
}

}  // namespace acc::agent
