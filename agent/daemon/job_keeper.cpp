#include "agent/daemon/job_keeper.hpp"

#include "agent/daemon/accounts.hpp"
#include "agent/daemon/admission_rules.hpp"
#include "agent/daemon/crash_point.hpp"
#include "agent/daemon/descriptor_waits.hpp"
#include "agent/daemon/job_group.hpp"
#include "agent/daemon/on_own_thread.hpp"
#include "agent/daemon/on_pool.hpp"
#include "agent/daemon/process_identity.hpp"
#include "agent/daemon/state_owner.hpp"
#include "agent/daemon/trial_processes.hpp"
#include "common/exit_codes.hpp"
#include "common/exit_status.hpp"
#include "common/log.hpp"
#include "common/poll_now.hpp"
#include "common/random.hpp"
#include "common/text.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <exception>
#include <memory>

namespace acc::agent::daemon {

namespace asio = boost::asio;
using asio::awaitable;
using namespace std::chrono_literals;
using Descriptor = asio::posix::stream_descriptor;

namespace {

/// A working directory on a server that doesn't answer.
constexpr auto kSetUpLimit = 30s;
constexpr auto kRecordAgain = 5s;

/// Its first start was postponed: on a drained node it waits as those in the queue do, but has its
/// slots.
bool waits_to_begin(const JobLife& life) {
  return life.phase == Phase::delayed && life.starts == 0;
}

Result<UniqueFd> guardian_of(const StoredJob& job) {
  if (job.guardian.pid == 0) return UniqueFd{};
  const auto process = std::make_shared<Result<UniqueFd>>(UniqueFd{});
  const bool is_known = run_on_own_thread(
      job.uid, [process, guardian = job.guardian] { *process = open_process(guardian); }, 2s);
  return is_known ? std::move(*process) : open_process_of(job.uid, job.guardian);
}
}  // namespace

JobKeeper::JobKeeper(asio::io_context& io, ServiceSettings settings)
    : io_{io},
      settings_{with_node_facts(std::move(settings))},
      slots_{settings_.slots, *settings_.gpus},
      record_timer_{io} {}

JobKeeper::~JobKeeper() { files_->join(); }

void JobKeeper::spawn(const char* what, awaitable<void> work) {
  asio::co_spawn(io_, std::move(work), [what](const std::exception_ptr& failed) {
    if (failed) log::error("daemon_task_failed", {{"task", what}, {"why", what_of(failed)}});
  });
}

// ---- start and adoption ----

// Where the system gave an error: a guess would start jobs beside those that live.
static Error without_state(Error error) {
  if (error.errnum != 0)
    error.what = "what runs on this node can't be known now, and no job was touched: " + error.what;
  return error;
}

awaitable<Result<void>> JobKeeper::start() {
  // By it all recorded processes are known.
  if (const auto boot = read_boot_id(); boot.has_error()) co_return without_state(boot.error());
  auto folder = StateFolder::open(settings_.state_folder);
  if (folder.has_error()) co_return folder.error();
  folder_ = std::move(*folder);
  std::function<Result<StateFolder::Contents>()> read = [this] { return folder_->read_jobs(); };
  auto found = co_await on_pool(*files_, std::move(read));
  if (found.has_error()) co_return without_state(found.error());
  auto& contents = *found;
  for (const auto& damaged : contents.damaged)
    log::error("job_record_damaged",
               {{"job", damaged.id}, {"why", damaged.why}, {"moved_to", damaged.moved_to}});
  std::function<Result<void>()> claim = [this, &contents]() -> Result<void> {
    const auto machine = own_machine();
    if (machine.has_error()) return machine.error();
    return claim_state_folder(*folder_, *machine, contents.jobs, settings_.job_files);
  };
  if (auto claimed = co_await on_pool(*files_, std::move(claim)); claimed.has_error())
    co_return without_state(claimed.error());
  const auto drained = folder_->read_note(kDrainedNote);
  if (drained.has_error()) co_return without_state(drained.error());
  if (auto opened = co_await events_.open(*folder_); opened.has_error())
    co_return without_state(opened.error());
  report_damaged(contents.damaged);
  drained_ = trim(*drained);
  processes_.emplace(*folder_, make_jobs_group(), files_);
  trials_.use_group(processes_->group());
  spawn("earlier trials", end_earlier_trials(processes_->group(), *files_));
  const auto spawn_task = [this](const char* what, awaitable<void> work) {
    spawn(what, std::move(work));
  };
  pruner_.emplace(JobPruner::Parts{io_, *files_, *folder_, events_, jobs_, spawn_task},
                  settings_.prune);
  adopt_all(std::move(contents.jobs));
  tell_of_unholdable();
  pruner_->empty_trash_later();
  pruner_->prune_later();
  co_return Result<void>{};
}

void JobKeeper::report_damaged(const std::vector<StateFolder::Damaged>& found) {
  for (const auto& damaged : found) {
    events_.report("damaged", nullptr,
                   "the record of " + printable(damaged.id) + " is damaged: " + damaged.why +
                       (damaged.moved_to.empty() ? "" : "; moved to " + damaged.moved_to));
  }
}

// In the order of their submission: those that wait keep their places, and none is given slots
// before all are in the queue.
void JobKeeper::adopt_all(std::vector<StoredJob> found) {
  std::ranges::stable_sort(found, {}, &StoredJob::submitted_ms);
  std::vector<JobPtr> jobs;
  for (auto& stored : found) {
    const auto& job = jobs.emplace_back(std::make_shared<Job>(io_, std::move(stored)));
    jobs_[job->id()] = job;
    if (has_slots(job->stored.life))
      slots_.restore(job->id(), job->stored.submission->slots, job->stored.gpus, job->stored.uid);
  }
  gives_slots_ = false;
  for (const auto& job : jobs) adopt(job);
  gives_slots_ = true;
  give_slots();
}

void JobKeeper::adopt(const JobPtr& job, bool is_again) {
  auto& life = job->stored.life;
  // The group of one that couldn't be removed when it ended.
  if (life.phase == Phase::ended) return remove_group(job);
  auto guardian = guardian_of(job->stored);
  if (guardian.has_error()) return adopt_later(job, is_again, guardian.error().what);
  UniqueFd process = std::move(*guardian);
  const auto seen = processes_->look(*job, process);
  if (seen.has_error()) return adopt_later(job, is_again, seen.error().what);
  const Found& found = *seen;
  const bool had_guardian = life.phase != Phase::queued && life.phase != Phase::delayed;
  if (had_guardian && !found.lives && !found.exit_code && found.has_started)
    return spawn("adopt", adopt_ended(job));
  if (had_guardian && found.lives) {
    boost::system::error_code unwatched;
    job->process.assign(process.get(), unwatched);
    if (unwatched) return adopt_later(job, is_again, unwatched.message());
    (void)process.release();
    job->begun = std::chrono::steady_clock::now();
    spawn("watch", watch(job));
  }
  if (found.ended_ms != 0) job->stored.ended_ms = found.ended_ms;
  if (had_guardian && !found.lives) remove_group(job);
  change(job, found);
}

// For want of memory, of descriptors or of a file server: its end must be seen.
void JobKeeper::adopt_later(const JobPtr& job, bool is_again, const std::string& why) {
  if (!is_again)
    log::error("job_not_watched",
               {{"job", job->id()}, {"why", why}, {"next", "looks again each second"}});
  job->delay.expires_after(1s);
  job->delay.async_wait([this, job](boost::system::error_code cancelled) {
    if (!cancelled && !is_closed_) adopt(job, true);
  });
}

awaitable<void> JobKeeper::adopt_ended(JobPtr job) {
  co_await processes_->sweep(job);
  remove_group(job);
  const Found found = co_await processes_->look_until_read(job);
  if (!is_closed_) change(job, found);
}

// What waits may ask for more than the node has, since its settings were changed.
void JobKeeper::tell_of_unholdable() const {
  for (const auto& [id, job] : jobs_) {
    const auto& wanted = *job->stored.submission;
    if (job->stored.life.phase == Phase::queued && !slots_.can_hold({wanted.slots, wanted.gpus}))
      log::warn("job_waits_in_vain", {{"job", id}, {"why", waiting_words(wanted, {}, slots_)}});
  }
}

void JobKeeper::close() {
  is_closed_ = true;
  record_timer_.cancel();
  if (pruner_) pruner_->close();
  for (const auto& [id, job] : jobs_) {
    job->delay.cancel();
    job->kill.cancel();
    boost::system::error_code ignored;
    job->process.cancel(ignored);
  }
}

// ---- jobs ----

JobId JobKeeper::new_id(const std::string& name) const {
  constexpr std::size_t kRandom = 6;
  for (;;) {
    JobId id = (name.empty() ? "job" : name) + '-' + random_name().substr(0, kRandom);
    if (!jobs_.contains(id)) return id;
  }
}

awaitable<Result<JobPtr>> JobKeeper::add(StoredJob stored, LoginUser user,
                                         const JobConfig* config) {
  stored.id = new_id(stored.submission->name);
  stored.submitted_ms = wall_ms();
  if (config != nullptr)
    stored.submission.edit().words = {"--config_file", folder_->config_path(stored.id, *config)};
  auto job = std::make_shared<Job>(io_, std::move(stored));
  job->user = std::move(user);
  jobs_[job->id()] = job;  // the id is taken, and the job counts
  job->is_leaving = true;  // but it isn't shown before its folder is there
  // Already now, so that a second submission doesn't find the same slots free.
  slots_.ask(job->id(),
             {job->stored.submission->slots, job->stored.submission->gpus, job->stored.uid});
  std::function<Result<void>()> make = [this, job, config] {
    return folder_->make_job(job->stored, config);
  };
  const auto made = co_await on_pool(*files_, std::move(make));
  if (made.has_error()) {
    jobs_.erase(job->id());
    slots_.free(job->id());
    give_slots();
    co_return made.error();
  }
  job->is_leaving = false;
  change(job, Submitted{});
  co_return job;
}

void JobKeeper::change(const JobPtr& job, const JobChange& event) {
  auto& life = job->stored.life;
  const Phase before = life.phase;
  auto actions = step(life, event);
  const bool was_running =
      before == Phase::starting || before == Phase::running || before == Phase::stopping;
  const bool is_running = life.phase == Phase::running || life.phase == Phase::stopping;
  // Its guardian is gone: what that one left says nothing about the next.
  const bool is_untouched = before == life.phase && actions.empty();
  if (was_running && !is_running && !is_untouched) job->stored.guardian = {};
  if (life.phase == Phase::ended && before != Phase::ended && job->stored.ended_ms == 0)
    job->stored.ended_ms = wall_ms();
  if (life.phase != Phase::ended) {
    job->stored.ended_ms = 0;
    job->stored.bytes = 0;  // it may write more
  }
  for (auto& action : actions) job->actions.push_back(std::move(action));
  if (job->is_busy || job->actions.empty()) return;
  job->is_busy = true;
  spawn("carry out", carry_out_all(job));
}

awaitable<void> JobKeeper::carry_out_all(JobPtr job) {
  while (!job->actions.empty()) {
    JobAction action = std::move(job->actions.front());
    job->actions.pop_front();
    const bool is_start = std::holds_alternative<StartGuardian>(action);
    std::string failed;
    try {
      co_await carry_out(job, std::move(action));
    } catch (const std::exception& e) {  // memory or descriptors ran out; the job must go on
      failed = e.what();
    }
    if (failed.empty()) continue;
    log::error("job_action_failed", {{"job", job->id()}, {"why", failed}});
    if (is_start) change(job, StartFailed{to_int(ExitCode::resources), failed, random_fraction()});
  }
  job->is_busy = false;
  job->idle.cancel();
}

awaitable<void> JobKeeper::carry_out(JobPtr job, JobAction action) {
  if (std::holds_alternative<AskForSlots>(action)) {
    const auto& wanted = *job->stored.submission;
    slots_.ask(job->id(), {wanted.slots, wanted.gpus, job->stored.uid});
    give_slots();
    const bool is_queued = job->stored.life.phase == Phase::queued;
    if (is_queued && slots_.holds(job->id())) {  // given while its folder was made
      job->stored.gpus = slots_.gpus_of(job->id());
      change(job, SlotsGiven{});
    } else if (is_queued) {
      job->stored.life.reason = waiting_words(wanted, drained_, slots_);
    }
  } else if (std::holds_alternative<FreeSlots>(action)) {
    slots_.free(job->id());
    job->stored.gpus.clear();
    give_slots();
    pruner_->prune_later();
  } else if (std::holds_alternative<StartGuardian>(action)) {
    co_await start_guardian(job);
  } else if (const auto* stop = std::get_if<StopGuardian>(&action)) {
    co_await processes_->stop(job, stop->grace_s);
  } else if (std::holds_alternative<KillGuardian>(action)) {
    co_await processes_->kill(job);
  } else if (const auto* delay = std::get_if<ArmDelay>(&action)) {
    arm_delay(job, delay->delay);
  } else if (const auto* kill = std::get_if<ArmKill>(&action)) {
    job->kill.expires_after(kill->delay);
    job->kill.async_wait([this, job](boost::system::error_code cancelled) {
      if (!cancelled && !is_closed_) change(job, KillDue{});
    });
  } else if (std::holds_alternative<DisarmTimers>(action)) {
    job->delay.cancel();
    job->kill.cancel();
  } else if (std::holds_alternative<Record>(action)) {
    if (const auto written = co_await record(job); written.has_error())
      log::error("job_not_recorded", {{"job", job->id()}, {"why", written.error().what}});
  } else if (const auto* told_of = std::get_if<Report>(&action)) {
    events_.report(told_of->kind, job.get(), told_of->text);
  }
}

void JobKeeper::arm_delay(const JobPtr& job, Delay delay) {
  if (is_drained() && waits_to_begin(job->stored.life)) return hold_back(job);
  job->delay.expires_after(delay);
  job->delay.async_wait([this, job](boost::system::error_code cancelled) {
    if (cancelled || is_closed_) return;
    if (is_drained() && waits_to_begin(job->stored.life)) return;  // just so
    change(job, DelayOver{});
  });
}

// Until set_drained({}).
void JobKeeper::hold_back(const JobPtr& job) {
  job->delay.expires_after(Delay{0});  // nothing waits for it
  job->stored.life.reason = "waits for its start; this node is drained: " + drained_;
}

awaitable<Result<void>> JobKeeper::record(JobPtr job) {
  std::function<Result<void>()> write = [this, id = job->id(), text = encode_job(job->stored)] {
    return folder_->write_record(id, text);
  };
  auto written = co_await on_pool(*files_, std::move(write));
  job->not_recorded = written ? std::string{} : written.error().what;
  // Without its folder, which was removed by hand, there is nothing to write to.
  if (written.has_error() && written.error().errnum != ENOENT) record_again_later();
  co_return written;
}

// One that the next daemon couldn't know again must not run.
awaitable<Result<void>> JobKeeper::record_guardian(JobPtr job, pid_t pid) {
  const auto identity = identity_of(pid);
  if (identity.has_error()) co_return identity.error();
  job->stored.guardian = *identity;
  co_return co_await record(job);
}

// A disk that was full has room again at some time, of which nothing tells.
void JobKeeper::record_again_later() {
  if (is_closed_ || records_again_) return;
  records_again_ = true;
  record_timer_.expires_after(kRecordAgain);
  record_timer_.async_wait([this](boost::system::error_code cancelled) {
    if (!cancelled && !is_closed_) spawn("record again", record_again());
  });
}

awaitable<void> JobKeeper::record_again() {
  records_again_ = false;
  for (const auto& [id, job] : std::map{jobs_}) {
    if (job->not_recorded.empty() || job->is_leaving) continue;
    if (const auto written = co_await record(job); written.has_value())
      log::info("job_recorded_at_last", {{"job", id}});
  }
}

void JobKeeper::set_drained(std::string reason) {
  drained_ = std::move(reason);
  for (const auto& [id, job] : jobs_) {
    auto& life = job->stored.life;
    if (life.phase == Phase::queued)
      life.reason = waiting_words(*job->stored.submission, drained_, slots_);
    if (waits_to_begin(life)) arm_delay(job, Delay{0});
  }
  give_slots();
}

void JobKeeper::give_slots() {
  if (is_drained() || !gives_slots_) return;
  while (const auto id = slots_.take_next()) {
    const auto found = jobs_.find(*id);
    if (found == jobs_.end()) {
      slots_.free(*id);
      continue;
    }
    const JobPtr job = found->second;
    if (job->is_leaving) continue;  // its folder is being made; then it learns of it
    job->stored.gpus = slots_.gpus_of(*id);
    change(job, SlotsGiven{});
  }
}

// ---- guardians ----

void JobKeeper::remove_group(const JobPtr& job) {
  if (!drop_job_group(processes_->group(), job->id()))
    spawn("remove group", processes_->remove_group(job));
}

// Those of other jobs are theirs alone: one that asked for none sees what is left.
std::optional<GpuNumbers> JobKeeper::visible_gpus(const Job& job) const {
  if (!job.stored.gpus.empty()) return job.stored.gpus;
  auto free = slots_.free_gpus();
  if (free.size() == slots_.gpus().size()) return std::nullopt;
  return free;
}

// It had an account when it was submitted: a directory server may not answer just now.
awaitable<std::string> JobKeeper::find_user(JobPtr job) {
  if (job->user) co_return std::string{};
  auto user = co_await ask_user(job->stored.uid, job->stored.gid);
  if (user.has_error()) co_return user.error().what;
  if (refusal_of_account(*user) && ::geteuid() == 0)
    co_return "the user data base doesn't know uid " + std::to_string(job->stored.uid) +
        " now (`getent passwd`)";
  job->user = std::move(*user);
  co_return std::string{};
}

void JobKeeper::not_started(const JobPtr& job, const std::string& why, const JobChange& event) {
  log::warn("job_not_started", {{"job", job->id()}, {"why", why}});
  remove_group(job);
  change(job, event);
}

awaitable<void> JobKeeper::start_guardian(JobPtr job) {
  const auto fail = [&](int exit_code, const std::string& why) {
    not_started(job, why, StartFailed{exit_code, why, random_fraction()});
  };
  const auto postpone = [&](const std::string& why) {
    not_started(job, why, StartPostponed{why, random_fraction()});
  };
  const auto unknown = co_await find_user(job);
  if (!unknown.empty()) co_return postpone(unknown);
  co_await processes_->group_removed(job);
  auto prepared = request_for(settings_, *folder_, *job, visible_gpus(*job));
  if (prepared.has_error()) co_return fail(to_int(ExitCode::failure), prepared.error().what);
  GuardianRequest request = std::move(*prepared);
  const UniqueFd group =
      make_job_group(processes_->group(), job->id(), job->stored.uid, job->user->gid);
  request.cgroup_fd = group.get();
  auto held = HeldGuardian::fork(request);
  if (held.has_error()) co_return fail(to_int(ExitCode::resources), held.error().what);
  crash_point("start.forked");
  job->stored.started_ms = wall_ms();
  job->begun = std::chrono::steady_clock::now();
  UniqueFd pidfd = held->take_pidfd();
  const pid_t pid = held->pid();
  // Watched from here on: a guardian whose end can't be seen must not run.
  UniqueFd watched{::fcntl(pidfd.get(), F_DUPFD_CLOEXEC, 0)};
  job->process.assign(watched.get());
  (void)watched.release();
  const auto recorded = co_await record_guardian(job, pid);
  if (recorded.has_value()) {
    crash_point("start.recorded");
    held->open_gate();
    crash_point("start.opened");
  }
  UniqueFd status = held->take_status();
  { const HeldGuardian closed = std::move(*held); }  // the gate, if it isn't open
  auto told_by_child = co_await read_to_end(std::move(status), 64, kSetUpLimit, "set-up");
  if (recorded.has_value() && told_by_child.has_value() && told_by_child->empty()) {
    change(job, GuardianStarted{});
    spawn("watch", watch(job));
    co_return;
  }
  boost::system::error_code ignored;
  job->process.close(ignored);
  send_to(pidfd, SIGKILL);  // it has ended, or is held up by a file system
  UniqueFd copy{::dup(pidfd.get())};
  co_await await_readable(std::move(copy), 1s);
  ::waitpid(pid, nullptr, WNOHANG);
  // One that waits has time, and those behind it would fail, too.
  const bool has_time = job->stored.submission->wait || job->stored.life.starts > 1;
  if (recorded.has_error() && has_time) co_return postpone(recorded.error().what);
  if (recorded.has_error()) co_return fail(to_int(ExitCode::resources), recorded.error().what);
  if (told_by_child.has_error())
    co_return fail(
        to_int(ExitCode::failure),
        "working directory " + in_quotes(request.working_directory) + ": no answer within 30 s");
  const auto error = HeldGuardian::explain(request, *told_by_child);
  fail(error.exit_code, error.reason);
}

// Until the guardian has ended.
awaitable<void> JobKeeper::watch(JobPtr job) {
  boost::system::error_code error;
  do {
    co_await job->process.async_wait(Descriptor::wait_read,
                                     asio::redirect_error(asio::use_awaitable, error));
    if (error || is_closed_) co_return;
  } while (!is_ready(job->process.native_handle(), POLLIN));
  crash_point("end.seen");
  siginfo_t info{};
  // A child of an earlier daemon is none of ours: then its files tell.
  const bool is_child =
      ::waitid(static_cast<idtype_t>(P_PIDFD), static_cast<id_t>(job->process.native_handle()),
               &info, WEXITED | WNOHANG) == 0 &&
      info.si_pid != 0;
  const auto lived =
      std::chrono::duration_cast<Delay>(std::chrono::steady_clock::now() - job->begun);
  boost::system::error_code ignored;
  job->process.close(ignored);
  const Found found = co_await processes_->look_until_read(job);
  if (is_closed_) co_return;
  if (is_child && info.si_code == CLD_EXITED) {
    remove_group(job);
    const bool has_begun = found.has_started || found.exit_code.has_value();
    change(job, GuardianEnded{info.si_status, lived, random_fraction(), has_begun,
                              found.was_stopped, found.not_started});
    co_return;
  }
  if (found.exit_code && !is_child) {
    remove_group(job);
    if (found.ended_ms != 0) job->stored.ended_ms = found.ended_ms;
    change(job, GuardianEnded{*found.exit_code, lived, random_fraction(), true, found.was_stopped,
                              found.not_started});
    co_return;
  }
  if (!is_child && !found.has_started) {  // its gate closed with the daemon that made it
    change(job, found);
    co_return;
  }
  co_await processes_->sweep(job);
  remove_group(job);
  const std::string how =
      is_child ? describe(Signaled{info.si_status, false}) : "it ended without an exit code";
  change(job, GuardianLost{how, lived, random_fraction()});
}

}  // namespace acc::agent::daemon
