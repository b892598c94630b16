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

}  // namespace

// Without descriptors /proc can't be read either: then it lives as long as its group has its
// number.
RankPrograms::Look RankPrograms::look_at(const Asked& program) {
  UniqueFd pidfd{static_cast<int>(::syscall(SYS_pidfd_open, program.pid, 0U))};
  if (!pidfd && errno == ESRCH) return {};
  // In this order: the number may be another process's meanwhile, but then of this group, too.
  if (::getpgid(program.pid) != program.group) return {};
  const bool has_ended =
      pidfd ? is_ready(pidfd.get(), POLLIN) : read_process_stat(program.pid).state == 'Z';
  if (has_ended) return {};
  if (pidfd && program.start_time != 0 &&
      read_process_stat(program.pid).start_time != program.start_time)
    return {};
  return {true, std::move(pidfd)};
}

RankPrograms::RankPrograms(boost::asio::io_context& io, OnWaiting on_waiting)
    : io_{io}, on_waiting_{std::move(on_waiting)}, patience_{io} {}

void RankPrograms::signal(pid_t worker, int signo, std::span<const pid_t> orphans, Way way) {
  const bool spares = spares_helpers(signo);
  const bool is_noted = way.asks_end && (spares || asks_whole_group(signo));
  SignalTargets targets;
  std::unordered_set<pid_t> groups;
  if (spares || is_noted) {
    // Before the signal: a shell that dies of it has no children any more.
    if (const auto processes = processes_of_rank(worker, signo, roots(worker, orphans))) {
      targets = signal_targets(*processes, way.is_delivered);
      // It is seen only of a worker that the signal ends; and a group was reached as a whole.
      if (targets.is_served_unclear && !(is_noted && spares)) {
        targets.programs.insert(targets.programs.end(), targets.served.begin(),
                                targets.served.end());
        targets.served.clear();
        targets.is_served_unclear = false;
      }
      for (const auto& process : *processes) {
        groups.insert(process.group);
        // Also `timeout`, which gets none: a later one would reach its program.
        const bool is_asked = std::ranges::count(targets.programs, process.pid) != 0 ||
                              std::ranges::count(targets.timeouts, process.pid) != 0;
        if (is_noted && process.group != worker && is_asked && !ignores_signal(process.pid, signo))
          note_signalled(process.pid);
      }
    } else if (is_noted) {
      targets.programs = programs_of_small(worker);
    }
  }
  if (is_noted) {
    note(worker, signo, targets.programs);
    // The script may end by its trap; what doesn't handle the signal is left over then.
    std::erase_if(targets.served, [signo](pid_t pid) {
      return (read_signal_sets(pid).caught & signal_bit(signo)) == 0;
    });
    note(worker, signo, targets.served);
    if (targets.is_served_unclear) unclear_[worker] = {signo, std::move(targets.served)};
  }
  if (!way.is_delivered) send(worker, signo, targets.programs, groups);
  const bool ends_helpers = signo == SIGTERM || signo == SIGHUP || way.asks_end;
  if (way.is_delivered && signo == SIGTERM) {
    for (const pid_t pid : targets.helpers) note_signalled(pid);
  } else if (spares && !groups.empty() && ends_helpers) {
    spared_[worker] = std::move(targets.helpers);
  }
}

/// @param groups  of the rank's processes; none: they aren't known
void RankPrograms::send(pid_t worker, int signo, std::span<const pid_t> programs,
                        const std::unordered_set<pid_t>& groups) {
  const bool reaches_group = !spares_helpers(signo) || groups.empty();
  // The leader is not reaped yet, so the number of its group can't have been given to others.
  if (reaches_group) ::killpg(worker, signo);
  for (const pid_t pid : programs) {
    const pid_t group = ::getpgid(pid);
    if (groups.contains(group) && !(reaches_group && group == worker)) ::kill(pid, signo);
  }
}

// Of a shell that has ended the program in a group of its own is known from the first signal.
std::vector<pid_t> RankPrograms::roots(pid_t worker, std::span<const pid_t> orphans) const {
  std::vector<pid_t> roots{orphans.begin(), orphans.end()};
  const auto asked = asked_.find(worker);
  if (asked == asked_.end()) return roots;
  for (const auto& program : asked->second) {
    if (program.group != worker && look_at(program).lives &&
        read_process_stat(program.pid).parent == ::getpid())
      roots.push_back(program.pid);
  }
  return roots;
}

void RankPrograms::note(pid_t worker, int signo, std::span<const pid_t> programs) {
  auto& asked = asked_[worker];
  for (const pid_t pid : programs) {
    const bool is_known =
        std::ranges::any_of(asked, [&](const auto& program) { return program.pid == pid; });
    if (pid == worker || is_known || ignores_signal(pid, signo)) continue;
    const pid_t group = ::getpgid(pid);
    asked.push_back({pid, group, group == worker ? 0 : read_process_stat(pid).start_time});
  }
}

void RankPrograms::note_signalled(pid_t pid) {
  signalled_[pid] = read_process_stat(pid).start_time;
}

bool RankPrograms::has_had_signal(pid_t pid) const {
  const auto found = signalled_.find(pid);
  return found != signalled_.end() && read_process_stat(pid).start_time == found->second;
}

// It had no trap for the signal, but one for EXIT.
void RankPrograms::signal_served(pid_t worker, int death_signal) {
  const auto unclear = unclear_.extract(worker);
  const auto asked = asked_.find(worker);
  if (unclear.empty() || asked == asked_.end() || unclear.mapped().signo != death_signal) return;
  for (const auto& program : asked->second) {
    if (std::ranges::count(unclear.mapped().programs, program.pid) == 0) continue;
    if (!look_at(program).lives) continue;
    note_signalled(program.pid);
    ::kill(program.pid, death_signal);
  }
}

bool RankPrograms::await_programs(pid_t worker, int death_signal, std::function<void()> then) {
  signal_served(worker, death_signal);
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
    auto program = look_at(programs.back());
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
    if (::getpgid(pid) != worker || read_process_stat(pid).parent != ::getpid()) continue;
    note_signalled(pid);
    ::kill(pid, SIGTERM);
  }
}

std::vector<pid_t> RankPrograms::living(pid_t worker) const {
  std::vector<pid_t> living;
  const auto asked = asked_.find(worker);
  if (asked == asked_.end()) return living;
  for (const auto& program : asked->second) {
    if (look_at(program).lives) living.push_back(program.pid);
  }
  return living;
}

void RankPrograms::clear() {
  patience_.cancel();
  is_told_ = false;
  asked_.clear();
  spared_.clear();
  awaited_.clear();
  unclear_.clear();
  signalled_.clear();
}

}  // namespace acc::agent
