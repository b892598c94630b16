#include "agent/worker_group.hpp"

#include "agent/containment.hpp"
#include "agent/cpu_limit.hpp"
#include "agent/pmi_server.hpp"
#include "agent/process_stat.hpp"
#include "agent/signal_targets.hpp"
#include "common/log.hpp"
#include "common/poll_now.hpp"

#include <boost/asio/post.hpp>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

namespace acc::agent {

namespace asio = boost::asio;

namespace {

using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kSlice{3};
// So long the loop waits to see whether the program can be executed at all; a slow file system must
// not hold it.
constexpr std::chrono::milliseconds kFirstExec{5};

// A kernel or a container may refuse CLONE_INTO_CGROUP although the folder could be made.
bool is_cgroup_refusal(const SpawnFailure& failure, int cgroup_fd) {
  return cgroup_fd >= 0 && std::string_view{failure.step} == "clone" &&
         !is_transient(failure.errnum);
}

}  // namespace

WorkerGroup::WorkerGroup(asio::io_context& io, Containment& containment, OutputHub& output,
                         Hooks hooks)
    : io_{io},
      containment_{containment},
      output_{output},
      hooks_{std::move(hooks)},
      left_{io},
      programs_{io, [this](const auto& workers) { tell_awaited(workers); }},
      reaper_{io,
              [this](pid_t pid) { return living_.contains(pid) || containment_.is_helper(pid); }},
      trace_timer_{io} {}

// ---- a start ----

void WorkerGroup::start(Launch launch) {
  ++epoch_;
  left_.close();
  signals_.clear();
  programs_.clear();
  exited_.clear();
  traced_.clear();
  records_.assign(launch.ranks.count, {});
  pidfds_.clear();
  pidfds_.resize(launch.ranks.count);
  living_.clear();
  if (!dev_null_) dev_null_ = UniqueFd{::open("/dev/null", O_RDONLY | O_CLOEXEC)};
  start_.reset();  // before the next one takes as much
  start_ = std::make_unique<WorkerStart>(spawner_, std::move(launch));
  is_starting_ = true;
  make_some();
}

void WorkerGroup::make_some() {
  const auto end = steady_clock::now() + kSlice;
  for (auto& made = start_->made; made < start_->launch.ranks.count; ++made) {
    if (steady_clock::now() >= end) {
      return asio::post(io_, [this, epoch = epoch_] {
        if (epoch == epoch_ && is_starting_) make_some();
      });
    }
    if (const auto failure = make_one(made)) return end_start(failure);
  }
  start_->launch.preloader != nullptr ? fork_all() : let_go();
}

std::optional<StartFailure> WorkerGroup::make_one(std::uint32_t index) {
  if (index >= start_->requests.size()) {
    if (auto failure = prepare_one(index)) return failure;
  }
  return start_->launch.preloader != nullptr ? std::nullopt : spawn_one(index);
}

// Everything that a worker is started with, cold or warm.
std::optional<StartFailure> WorkerGroup::prepare_one(std::uint32_t index) {
  const Launch& launch = start_->launch;
  const LocalRank local{index};
  auto& record = records_[index];
  record.local_rank = local;
  record.rank = launch.ranks.of(local);
  if (launch.before_each) launch.before_each(local);
  const auto streams = output_.open(local, record.rank);
  if (!streams) return StartFailure{local, streams.error().errnum, "pipe", {}};
  UniqueFd pmi;
  if (launch.pmi != nullptr) {
    auto connected = launch.pmi->connect(local);
    if (!connected) return StartFailure{local, EMFILE, "socketpair", {}};
    pmi = std::move(*connected);
  }
  const bool owns_stdin = launch.stdin_rank == local;
  const auto& environment =
      start_->environments.emplace_back(start_->launch.environment.for_worker(local));
  SpawnRequest& request = start_->requests.emplace_back();
  request.path = launch.path.c_str();
  request.argv = launch.argv.get();
  request.envp = environment.pointers.data();
  request.stdin_fd = owns_stdin ? -1 : dev_null_.get();
  request.stdout_fd = streams->out;
  request.stderr_fd = streams->err;
  request.pmi_fd = pmi.get();
  request.terminal_fd = owns_stdin && launch.stdin_terminal ? STDIN_FILENO : -1;
  request.cpus = index < start_->masks.size() ? &start_->masks[index] : nullptr;
  start_->pmi.push_back(std::move(pmi));
  return std::nullopt;
}

std::optional<StartFailure> WorkerGroup::spawn_one(std::uint32_t index) {
  const LocalRank local{index};
  SpawnRequest& request = start_->requests[index];
  request.cgroup_fd = containment_.cgroup_fd();
  auto result = start_->held.add(request);
  if (auto* refused = std::get_if<SpawnFailure>(&result);
      refused && is_cgroup_refusal(*refused, request.cgroup_fd)) {
    log::info("cgroup_refused", {{"errno", refused->errnum}});
    containment_.give_up_cgroup();
    request.cgroup_fd = -1;
    result = start_->held.add(request);
  }
  output_.close_child_ends(local);
  start_->pmi[index].reset();
  if (const auto* refused = std::get_if<SpawnFailure>(&result))
    return StartFailure{local, refused->errnum, refused->step, {}};
  auto& spawned = std::get<Spawned>(result);
  return add_worker(index, spawned.pid, std::move(spawned.pidfd));
}

std::optional<StartFailure> WorkerGroup::add_worker(std::size_t index, pid_t pid, UniqueFd pidfd) {
  auto& record = records_[index];
  record.pid = pid;
  living_.emplace(pid, index);
  pidfds_[index] = std::make_unique<Descriptor>(io_);
  boost::system::error_code refused;
  pidfds_[index]->assign(pidfd.get(), refused);
  if (refused) {
    living_.erase(pid);  // unwatched, it is reaped as an orphan
    pidfds_[index].reset();
    return StartFailure{record.local_rank, refused.value(), "epoll", {}};
  }
  static_cast<void>(pidfd.release());
  watch(index);
  hooks_.on_made(pid);
  return std::nullopt;
}

// ---- a warm start ----

void WorkerGroup::fork_all() {
  Preloader& preloader = *start_->launch.preloader;
  if (!preloader.can_fork(start_->environments)) return start_cold();
  preloader.fork_round(warm_workers(*start_),
                       {[this](LocalRank local, pid_t pid) { take_forked(local, pid); },
                        [this] { let_forked_go(); }, [this] { start_cold(); }});
}

void WorkerGroup::take_forked(LocalRank local, pid_t pid) {
  UniqueFd pidfd{static_cast<int>(::syscall(SYS_pidfd_open, pid, 0U))};
  const auto failure = pidfd ? add_worker(local.value(), pid, std::move(pidfd))
                             : StartFailure{local, errno, "pidfd_open", {}};
  if (!failure) return;
  cancel_start();
  end_start(failure);
}

void WorkerGroup::let_forked_go() {
  for (const auto& record : records_) output_.close_child_ends(record.local_rank);
  const auto now = steady_clock::now();
  for (auto& record : records_) record.started = now;
  start_->launch.preloader->open_gate(spawner_.lease_ends_ns());
  end_start(std::nullopt);
  start_.reset();
}

// From what was prepared for a warm start. Those that were forked wait at a gate that won't open.
void WorkerGroup::start_cold() {
  for (const auto& [pid, index] : std::exchange(living_, {})) {
    ::kill(pid, SIGKILL);  // reaped as an orphan
    pidfds_[index].reset();
  }
  exited_.clear();
  start_->launch.preloader = nullptr;
  start_->made = 0;
  make_some();
}

// ---- a cold start ----

// All are there. The first goes ahead, and shows whether the program can be executed.
void WorkerGroup::let_go() {
  const auto now = steady_clock::now();
  for (auto& record : records_) record.started = now;
  if (const auto failed = start_->held.settle()) {
    const LocalRank local{static_cast<std::uint32_t>(failed->index)};
    return end_start(StartFailure{local, failed->failure.errnum, failed->failure.step, {}});
  }
  if (const auto failure = start_->held.try_first(kFirstExec))
    return end_start(StartFailure{LocalRank{0}, failure->errnum, failure->step, {}});
  release_rest();
  end_start(std::nullopt);
}

void WorkerGroup::release_rest() {
  if (start_->held.release_some()) return watch_left();
  asio::post(io_, [this, epoch = epoch_] {
    if (epoch == epoch_ && start_) release_rest();
  });
}

// When the last one has called exec, what it read there can go.
void WorkerGroup::watch_left() {
  const int fd = ::fcntl(start_->held.left_fd(), F_DUPFD_CLOEXEC, 0);
  boost::system::error_code refused;
  if (fd < 0 || left_.assign(fd, refused)) return;  // it stays until the next start
  await_left();
}

void WorkerGroup::await_left() {
  left_.async_wait(Descriptor::wait_read, [this, epoch = epoch_](boost::system::error_code error) {
    if (error || epoch != epoch_) return;
    // Too early it would take the stacks of children away that are about to call exec.
    if (!is_ready(left_.native_handle(), POLLIN)) return await_left();
    left_.close();
    note_failures();
    start_.reset();
  });
}

void WorkerGroup::note_failures() {
  for (std::size_t i = 0; start_ && i < records_.size(); ++i) {
    if (!records_[i].exec_failure) records_[i].exec_failure = start_->held.failure_of(i);
  }
}

void WorkerGroup::cancel_start() {
  if (!is_starting_) return;
  is_starting_ = false;
  if (start_ && start_->launch.preloader != nullptr) start_->launch.preloader->cancel_round();
  for (const auto index : std::exchange(exited_, {})) watch(index);
}

void WorkerGroup::end_start(const std::optional<StartFailure>& failure) {
  cancel_start();
  hooks_.on_started(failure);
}

// ---- afterwards ----

void WorkerGroup::watch(std::size_t index) {
  if (!pidfds_[index]) return;
  // epoll reports in the order in which the workers exited: the first one reported is the first
  // that failed.
  pidfds_[index]->async_wait(asio::posix::stream_descriptor::wait_read,
                             [this, index](boost::system::error_code error) {
                               if (!error) take_exit(index);
                             });
}

// As the kernel sees a child of ours.
static siginfo_t look_at(pid_t pid, int what) {
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(pid), &info, what | WNOHANG | WNOWAIT) != 0) return {};
  return info;
}

void WorkerGroup::take_exit(std::size_t index) {
  if (is_starting_) return exited_.push_back(index);  // caused by something else
  hooks_.on_end();
  auto& record = records_[index];
  note_delivered(record.pid);
  int status = 0;
  rusage usage{};
  const auto seen = look_at(record.pid, WEXITED);
  const bool is_killed = seen.si_code == CLD_KILLED || seen.si_code == CLD_DUMPED;
  if (is_killed) record.cpu_limit = reached_cpu_limit(record.pid, seen.si_status);
  if (seen.si_pid == record.pid) {
    if (programs_.await_programs(record.pid, is_killed ? seen.si_status : 0,
                                 [this, index] { take_exit(index); }))
      return;
    programs_.end_helpers(record.pid);
  }
  const pid_t reaped = ::wait4(record.pid, &status, WNOHANG, &usage);
  if (reaped == 0) {
    const bool is_dead = pidfds_[index] && is_ready(pidfds_[index]->native_handle(), POLLIN);
    return is_dead ? await_tracer(index) : watch(index);
  }
  if (reaped < 0) status = 255 << 8;  // it was reaped elsewhere: all we know is that it is gone
  living_.erase(record.pid);
  pidfds_[index].reset();
  record.status = exit_status_from_wait(status);
  if (record.abort_code && !is_success(*record.status)) record.status = Exited{*record.abort_code};
  record.ended = steady_clock::now();
  record.peak_rss_bytes = static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
  output_.drain(record.local_rank);
  if (start_ && !record.exec_failure) record.exec_failure = start_->held.failure_of(index);
  if (record.exec_failure) {
    const auto& why = *record.exec_failure;
    hooks_.on_exec_failed(StartFailure{record.local_rank, why.errnum, why.step, {}});
  }
  hooks_.on_exit(record);
}

// Its pidfd stays readable meanwhile: to wait for that would not be to wait. strace and what reads
// stacks let go at once, so nothing is told at the first look.
void WorkerGroup::await_tracer(std::size_t index) {
  constexpr std::chrono::milliseconds kFirstLook{20};
  constexpr std::chrono::milliseconds kLookAgain{200};
  auto& record = records_[index];
  const bool is_first = !std::exchange(record.was_held_dead, true);
  if (!is_first && !record.is_traced_death && tracer_of(record.pid) != 0) {
    record.is_traced_death = true;
    hooks_.on_traced_death(record);
  }
  traced_.push_back(index);
  if (traced_.size() > 1) return;
  trace_timer_.expires_after(is_first ? kFirstLook : kLookAgain);
  trace_timer_.async_wait([this, epoch = epoch_](boost::system::error_code error) {
    if (error || epoch != epoch_) return;
    for (const auto one : std::exchange(traced_, {})) take_exit(one);
  });
}

void WorkerGroup::signal(int signo, Asks asks, std::optional<Instant> delivered) {
  PendingSignal pending{signo, asks, delivered, {}, {}, 0};
  if (spares_helpers(signo) || asks == Asks::an_end) pending.orphans = orphans_in_groups();
  pending.pids.reserve(living_.size());
  for (const auto& [pid, index] : living_) pending.pids.push_back(pid);
  signals_.push_back(std::move(pending));
  if (signals_.size() == 1) signal_some();  // else it follows the one before, in order
}

// A process whose parent has exited is our child, and may still be in the group of a worker.
std::unordered_map<pid_t, std::vector<pid_t>> WorkerGroup::orphans_in_groups() const {
  std::unordered_map<pid_t, std::vector<pid_t>> orphans;
  for (const pid_t pid : children_of_this_process()) {
    if (living_.contains(pid)) continue;
    if (const pid_t group = ::getpgid(pid); living_.contains(group)) orphans[group].push_back(pid);
  }
  return orphans;
}

void WorkerGroup::signal_some() {
  const auto end = steady_clock::now() + kSlice;
  while (!signals_.empty()) {
    auto& pending = signals_.front();
    if (pending.next == pending.pids.size()) {
      signals_.pop_front();
      continue;
    }
    signal_one(pending.pids[pending.next++], pending);
    if (steady_clock::now() >= end) {
      return asio::post(io_, [this, epoch = epoch_] {
        if (epoch == epoch_) signal_some();
      });
    }
  }
}

// A worker that dies of a signal that all processes got may be dead before its turn comes: the
// program in it had the signal, too, and what is noted of that must be known when the worker is
// reaped.
void WorkerGroup::note_delivered(pid_t pid) {
  for (auto& pending : signals_) {
    if (!pending.delivered) continue;
    const auto first = pending.pids.begin() + static_cast<std::ptrdiff_t>(pending.next);
    const auto turn = std::find(first, pending.pids.end(), pid);
    if (turn == pending.pids.end()) continue;
    pending.pids.erase(turn);
    signal_one(pid, pending);
  }
}

void WorkerGroup::signal_one(pid_t pid, const PendingSignal& signal) {
  const auto living = living_.find(pid);
  if (living == living_.end()) return;  // since the signal came
  auto& record = records_[living->second];
  const int signo = signal.signo;
  const bool asks_end = signal.asks == Asks::an_end;
  const bool is_delivered = signal.delivered && record.started < *signal.delivered;
  const bool ends = asks_end || signo == SIGTERM || signo == SIGINT || signo == SIGQUIT ||
                    signo == SIGHUP || signo == SIGKILL;
  // One that is dead and traced, so that it can't be reaped yet, died by itself, too.
  const auto& pidfd = pidfds_[living->second];
  const bool is_dead = pidfd && is_ready(pidfd->native_handle(), POLLIN);
  if (ends && !record.asked_to_end && (is_delivered || !is_dead)) {
    record.asked_to_end =  // else it died by itself
        is_delivered || look_at(pid, WEXITED).si_pid != pid;
    // waitid() tells each stop once, and what looks after the terminal may have asked before.
    record.was_stopped = record.asked_to_end && read_process_stat(pid).state == 'T';
  }
  // What a worker leaves that ended by itself makes nobody wait.
  const RankPrograms::Way way{asks_end && record.asked_to_end, is_delivered};
  const auto signal_with = [&](const auto& orphans) {
    const auto found = orphans.find(pid);
    programs_.signal(pid, signo, found != orphans.end() ? found->second : std::vector<pid_t>{},
                     way);
  };
  signal_with(signal.orphans);
  // A shell may have died of its own meanwhile, so that the program in it was no child of it.
  if (is_delivered && pidfd && is_ready(pidfd->native_handle(), POLLIN))
    signal_with(orphans_in_groups());
  if (ends) ::killpg(pid, SIGCONT);  // a stopped process reacts to nothing but SIGKILL
}

void WorkerGroup::abort(Rank rank, int code) {
  for (const auto& [pid, index] : living_) {
    auto& record = records_[index];
    if (record.rank != rank || record.asked_to_end) continue;
    record.abort_code = code;
    ::killpg(pid, SIGKILL);
  }
}

void WorkerGroup::tell_awaited(const std::vector<pid_t>& workers) {
  std::vector<Rank> ranks;
  std::vector<pid_t> programs;
  for (const pid_t pid : workers) {
    const auto living = living_.find(pid);
    if (living == living_.end()) continue;
    ranks.push_back(records_[living->second].rank);
    for (const pid_t program : programs_.living(pid)) programs.push_back(program);
  }
  std::ranges::sort(ranks);
  if (!programs.empty()) hooks_.on_programs_awaited(ranks, programs);
}

bool WorkerGroup::reap_orphans() {
  constexpr std::chrono::milliseconds kSlice{3};
  const auto end = std::chrono::steady_clock::now() + kSlice;
  do {
    siginfo_t info{};
    if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
      return true;
    // The kernel names the same dead child each time.
    if (programs_.are_awaited(info.si_pid)) {
      reaper_.reap_beside_dead();
      return true;
    }
    // Its own watch takes it, then we are called.
    if (living_.contains(info.si_pid) || containment_.is_helper(info.si_pid)) return true;
    ::waitpid(info.si_pid, nullptr, WNOHANG);
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

}  // namespace acc::agent
