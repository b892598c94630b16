#include "agent/daemon/job_service.hpp"

#include "agent/daemon/job_file_loader.hpp"
#include "agent/daemon/job_keeper.hpp"
#include "agent/daemon/json_text.hpp"
#include "agent/daemon/on_pool.hpp"
#include "agent/daemon/plan_program.hpp"
#include "agent/daemon/user_file.hpp"
#include "common/exit_codes.hpp"
#include "common/exit_status.hpp"
#include "common/host_name.hpp"
#include "common/log.hpp"
#include "common/random.hpp"
#include "common/text.hpp"
#include "common/version.hpp"

#include <boost/asio/co_spawn.hpp>
#include <nlohmann/json.hpp>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>

namespace acc::agent::daemon {

using boost::asio::awaitable;

namespace {

// Those that acc-launch passes on to all workers.
constexpr std::array kJobSignals{SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

bool is_operator(const Principal& who) { return who.uid == 0 || who.uid == ::geteuid(); }
bool may_see(const Principal& who, uid_t owner) { return is_operator(who) || who.uid == owner; }

JobRecord record_of(const Job& job) {
  const auto& stored = job.stored;
  JobRecord record;
  record.id = stored.id;
  record.uid = stored.uid;
  record.user = stored.user;
  record.submission = stored.submission;
  record.state = state_of(stored.life);
  record.exit_code = stored.life.exit_code;
  record.reason = stored.life.reason;
  if (stored.life.phase == Phase::delayed && !job.is_busy) {  // the timer runs
    const auto left = job.delay.expiry() - std::chrono::steady_clock::now();
    record.reason = with_delay(record.reason, std::chrono::duration_cast<Delay>(left));
  }
  // An end shows when it is recorded and its slots are free: who waits for it may submit the next.
  if (stored.life.phase == Phase::ended && job.is_busy) {
    record.state = stored.life.stop_asked ? JobState::stopping : JobState::running;
    record.exit_code.reset();
    record.reason.clear();
  }
  record.submitted_ms = stored.submitted_ms;
  record.started_ms = stored.started_ms;
  record.ended_ms = job.is_busy ? 0 : stored.ended_ms;
  record.pid = stored.guardian.pid;
  record.starts = stored.life.starts;
  record.gpus = stored.gpus;
  return record;
}

Error no_job(const JobId& id) { return {Errc::not_found, "no job " + in_quotes(id, 80) + " here"}; }

}  // namespace

class JobService::Impl {
 public:
  Impl(boost::asio::io_context& loop, ServiceSettings settings)
      : io{loop}, keeper{loop, std::move(settings)}, loader{keeper} {}

  boost::asio::io_context& io;
  JobKeeper keeper;
  JobFileLoader loader;
  NewestAttempts newest;
  const std::string identity = random_name() + random_name();
  bool is_closed = false;
  std::uint64_t next_listener = 1;
  /// Outlives the service in the handles that listeners keep.
  std::shared_ptr<bool> lives = std::make_shared<bool>(true);

  [[nodiscard]] Result<JobPtr> find(const Principal& who, const JobId& id) const {
    const auto job = keeper.find(id);
    if (!job || !may_see(who, job->stored.uid)) return no_job(id);
    return job;
  }

  // Whose job it becomes.
  awaitable<Result<LoginUser>> user_for(Principal who, std::string name) {
    if (::geteuid() != 0) {
      auto own = co_await keeper.look_up(::geteuid(), ::getegid());
      if (own.has_value() && !is_operator(who))
        co_return Error{Errc::not_permitted,
                        "this acc-agent runs jobs of user " + own->name + " only"};
      if (own.has_value() && !name.empty() && name != own->name)
        co_return Error{
            Errc::not_permitted,
            "user: this acc-agent isn't root's, and runs jobs of " + own->name + " only"};
      co_return own;
    }
    auto asking = co_await keeper.look_up(who.uid, who.gid);
    if (asking.has_error() || name.empty() || name == asking->name) co_return asking;
    if (who.uid != 0)
      co_return Error{Errc::not_permitted, "user: only root runs jobs as another user"};
    co_return co_await keeper.look_up(std::move(name));
  }

  [[nodiscard]] std::size_t jobs_of(uid_t uid) const {
    return static_cast<std::size_t>(std::ranges::count_if(keeper.jobs(), [&](const auto& one) {
      return one.second->stored.uid == uid && one.second->stored.life.phase != Phase::ended;
    }));
  }

  // They stay in memory: an ended job may be started again.
  [[nodiscard]] std::size_t bytes_of(uid_t uid) {
    std::size_t bytes = 0;
    for (const auto& [id, job] : keeper.jobs())
      if (job->stored.uid == uid) bytes += memory_of(*job->stored.submission);
    return bytes;
  }

  [[nodiscard]] std::string busy_text(const Principal& who) {
    const auto holders = keeper.slots().holders();
    std::vector<std::string> seen;
    for (const auto& id : holders)
      if (find(who, id).has_value()) seen.push_back(id);
    constexpr std::size_t kNamed = 8;
    const std::size_t others = holders.size() - std::min(seen.size(), kNamed);
    if (seen.size() > kNamed) seen.resize(kNamed);
    std::string text = seen.empty() ? "" : join(seen, ", ");
    if (others > 0) text += (text.empty() ? "" : " and ") + plural(others, "other job");
    return text.empty() ? "nothing" : text;
  }

  // Why it can't be taken now; nothing: it can.
  std::optional<Error> refusal(const Principal& who, const Submission& submission, uid_t uid) {
    const auto& settings = keeper.settings();
    auto& slots = keeper.slots();
    if (is_closed) return Error{Errc::unavailable, "acc-agent shuts down"};
    if (keeper.is_drained())
      return Error{Errc::unavailable, "this node is drained: " + keeper.drained()};
    if (keeper.jobs().size() >= settings.max_jobs)
      return Error{Errc::exhausted, "there are " + plural(keeper.jobs().size(), "job") +
                                        " on this node already: remove ended ones"};
    if (uid != 0 && jobs_of(uid) >= settings.max_jobs_of_user)
      return Error{Errc::exhausted, "this user has " + std::to_string(settings.max_jobs_of_user) +
                                        " jobs that haven't ended, which is the limit"};
    if (bytes_of(uid) + memory_of(submission) > settings.max_bytes_of_user)
      return Error{Errc::exhausted,
                   "the words and variables of this user's jobs would be more than " +
                       std::to_string(settings.max_bytes_of_user >> 20U) +
                       " MiB: remove ended ones, or carry less by --env"};
    const SlotRequest wanted{submission.slots, submission.gpus, uid};
    const auto with_gpus = [&](std::size_t slot_count, std::size_t gpu_count) {
      return plural(slot_count, "slot") +
             (wanted.gpus == 0 ? "" : " and " + plural(gpu_count, "GPU"));
    };
    const std::string asked = with_gpus(wanted.slots, wanted.gpus);
    if (!slots.can_hold(wanted))
      return Error{Errc::exhausted, "it needs " + asked + ", and this node has " +
                                        with_gpus(slots.slots(), slots.gpus().size()) +
                                        " in all: ask for fewer, or raise that in the settings of "
                                        "its acc-agent"};
    if (submission.wait || slots.has_free(wanted)) return std::nullopt;
    std::string text = "no room: it needs " + asked +
                       ", free: " + with_gpus(slots.free_slots(), slots.free_gpus().size()) +
                       "; running here: " + busy_text(who);
    if (slots.waiting() > 0)
      text +=
          ", and " + plural(slots.waiting(), "job") + (slots.waiting() == 1 ? " waits" : " wait");
    return Error{Errc::exhausted, text + ": submit with --wait, or later"};
  }

  // The user that it would run as; all that can be judged without it.
  awaitable<Result<LoginUser>> admit(Principal who, Submission& submission) {
    if (auto wrong = submission_complaint(submission); !wrong.empty())
      co_return Error{Errc::bad_usage, wrong};
    if (submission.env.size() > kMostVariables)  // not of a job that is recorded already
      co_return Error{Errc::bad_usage, "env: " + plural(submission.env.size(), "variable") +
                                           "; at most " + std::to_string(kMostVariables)};
    auto user = co_await user_for(who, submission.user);
    if (user.has_error()) co_return user.error();
    if (auto why = refusal(who, submission, user->uid)) co_return *why;
    if (!submission.names_slots) {
      submission.slots = co_await workers_of(*user, submission);
      if (auto why = refusal(who, submission, user->uid)) co_return *why;
    }
    if (auto& launch = submission.launch) {
      const auto& derive = keeper.settings().launch_secret;
      if (!derive)
        co_return Error{Errc::unavailable, "launch: " + host_name() + " has no cluster secret"};
      if (const auto secret = derive(user->name, *launch); secret.has_error())
        co_return Error{Errc::unavailable, "launch: " + secret.error().what};
    }
    co_return user;
  }

  // The slots that the job takes: 1 where its plan can't be made, which its log will explain.
  awaitable<std::uint32_t> workers_of(LoginUser user, Submission submission) {
    std::vector<std::string> words{"--print_plan"};
    words.insert(words.end(), submission.words.begin(), submission.words.end());
    const auto plan = co_await keeper.trials().try_launcher(std::move(user), std::move(submission),
                                                            std::move(words));
    co_return plan.has_value() && plan->exit_code == 0 ? share_of_plan(plan->output).slots : 1;
  }

  // What acc-launch itself finds wrong, as that user in that folder, and whether what the workers
  // execute is there.
  awaitable<std::optional<Error>> trial_complaint(LoginUser user, Submission submission) {
    std::vector<std::string> words{"--print_plan"};
    words.insert(words.end(), submission.words.begin(), submission.words.end());
    const auto plan = co_await keeper.trials().try_launcher(user, submission, std::move(words));
    if (plan.has_error()) co_return plan.error();
    if (plan->exit_code != 0) {
      constexpr std::size_t kLongest = 4000;
      std::string why{trim(plan->output)};
      std::ranges::replace(why, '\n', ' ');
      co_return Error{Errc::bad_usage, printable(why, kLongest)};
    }
    const auto program = program_of_plan(plan->output);
    if (!program || program->problem.empty()) co_return std::nullopt;
    // acc-launch's own reason and advice, behind the path as it quotes it.
    const auto reason = program->problem.rfind("': ");
    const auto why =
        reason == std::string::npos ? program->problem : program->problem.substr(reason + 3);
    co_return Error{Errc::bad_usage,
                    std::string{program->is_script ? "the script " : "the program "} +
                        in_quotes(program->path, 300) + " can't be " +
                        (program->is_script ? "read" : "executed") + " in " +
                        in_quotes(submission.working_directory, 300) + " on " + host_name() +
                        " by user " + user.name + ": " + printable(why, 500) +
                        "; files aren't copied: put it there, or into a shared folder"};
  }

  // A job's own health checks found this node unfit. Only those of an operator take it out of
  // service: any user could write such a report.
  void drain_if_unfit(const JobId& id, const Result<std::string>& report) {
    const auto job = keeper.find(id);
    if (!job || job->stored.life.exit_code != to_int(ExitCode::unfit) || keeper.is_drained())
      return;
    if (!is_operator({job->stored.uid, job->stored.gid}))
      return log::warn("node_unfit_for_job", {{"job", id}, {"user", job->stored.user}});
    const auto json =
        parse_bounded(report ? *report : std::string{}, kDeepestForeign, kMostForeign);
    std::string why = "unfit";
    for (const auto* key : {"start_failure", "reason"})
      if (json.is_object() && json.contains(key) && json[key].is_string()) why = json[key];
    auto text = printable("job " + id + ": " + why, 1000);
    boost::asio::co_spawn(
        io, set_drained({::geteuid(), ::getegid()}, std::move(text)),
        [](const std::exception_ptr& failed, const Result<void>& done) {
          if (failed || done.has_error())
            log::warn("drain_failed", {{"why", failed ? "a bug" : done.error().what}});
        });
  }

  awaitable<Result<void>> set_drained(Principal who, std::string reason) {
    if (!is_operator(who))
      co_return Error{Errc::not_permitted, "only root and the daemon's user may drain this node"};
    std::function<Result<void>()> write = [this, reason] {
      return keeper.folder().write_note(kDrainedNote, reason);
    };
    const auto written = co_await on_pool(keeper.files(), std::move(write));
    if (written.has_error()) co_return written;
    keeper.set_drained(reason);
    if (!reason.empty()) {
      keeper.events().report("drained", nullptr, reason);
      co_return Result<void>{};
    }
    keeper.events().report("undrained", nullptr, "takes jobs again");
    co_return co_await loader.load();  // files that were put there meanwhile
  }
};

JobService::JobService(boost::asio::io_context& io, ServiceSettings settings)
    : impl_{std::make_unique<Impl>(io, std::move(settings))} {
  impl_->keeper.events().told[0] = [this](const JobEvent& event) {
    if (event.kind == "ended")
      impl_->drain_if_unfit(event.job, report({::geteuid(), ::getegid()}, event.job));
  };
}

JobService::~JobService() { *impl_->lives = false; }

awaitable<Result<void>> JobService::start() {
  auto started = co_await impl_->keeper.start();
  if (started.has_error()) co_return started;
  co_return co_await impl_->loader.load();
}

awaitable<Result<void>> JobService::reload(PruneRules prune) {
  impl_->keeper.pruner().set_rules(prune);
  co_return co_await impl_->loader.load();
}

void JobService::close() {
  impl_->is_closed = true;
  impl_->keeper.close();
}

awaitable<Result<JobId>> JobService::submit(Principal who, Submission submission) {
  auto user = co_await impl_->admit(who, submission);
  if (user.has_error()) co_return user.error();
  StoredJob stored;
  stored.uid = user->uid;
  stored.gid = user->gid;
  stored.user = user->name;
  stored.life.rule = submission.restart;
  stored.life.max_starts_again = submission.max_starts_again;
  stored.submission = SharedSubmission{std::move(submission)};
  auto job = co_await impl_->keeper.add(std::move(stored), std::move(*user), nullptr);
  if (job.has_error()) co_return job.error();
  co_return (*job)->id();
}

awaitable<Result<CheckedSubmission>> JobService::check(Principal who, Submission submission) {
  auto user = co_await impl_->admit(who, submission);
  if (user.has_error()) co_return user.error();
  CheckedSubmission checked;
  checked.user = user->name;
  if (auto complaint = co_await impl_->trial_complaint(*user, std::move(submission)))
    co_return *complaint;
  const auto facts = node();
  checked.version = facts.version;
  checked.slots_free = facts.slots_free;
  checked.daemon = impl_->identity;
  checked.gpus_free = static_cast<std::uint32_t>(facts.gpus_free.size());
  co_return checked;
}

awaitable<Result<void>> JobService::stop(Principal who, JobId id,
                                         std::optional<std::uint32_t> grace_s) {
  const auto job = impl_->find(who, id);
  if (job.has_error()) co_return job.error();
  if ((*job)->stored.life.phase == Phase::ended)
    co_return Error{Errc::bad_usage, "job " + id + " has ended already"};
  impl_->keeper.change(*job, StopAsked{grace_s});
  co_await settled(*job);
  co_return Result<void>{};
}

awaitable<Result<void>> JobService::signal(Principal who, JobId id, int signo) {
  const auto job = impl_->find(who, id);
  if (job.has_error()) co_return job.error();
  if (std::ranges::find(kJobSignals, signo) == kJobSignals.end())
    co_return Error{Errc::bad_usage,
                    signal_name(signo) +
                        " isn't passed on to workers: SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1 or "
                        "SIGUSR2; `stop` ends a job"};
  const auto state = state_of((*job)->stored.life);
  if (state != JobState::running && state != JobState::stopping)
    co_return Error{Errc::bad_usage, "job " + id + " isn't running"};
  co_await settled(*job);  // one that starts
  // Recorded first: the job may have ended by it before the next line.
  if (signo != SIGUSR1 && signo != SIGUSR2) impl_->keeper.change(*job, EndSignaled{});
  co_return impl_->keeper.processes().send_signal(**job, signo);
}

// An agent's reply; empty: it agreed.
static std::string refusal_in(const std::string& reply) {
  const auto answer = parse_bounded(reply, kDeepestForeign, kMostForeign);
  if (!answer.is_object() || !answer.contains("error")) return {};
  const auto& why = answer["error"];
  return printable(why.is_string() ? why.get<std::string>() : reply, 500);
}

awaitable<Result<void>> JobService::restart(Principal who, JobId id) {
  const auto job = impl_->find(who, id);
  if (job.has_error()) co_return job.error();
  auto& keeper = impl_->keeper;
  const auto phase = (*job)->stored.life.phase;
  if (phase == Phase::running) {
    const auto reply = co_await keeper.processes().ask(*job, R"({"do": "restart"})");
    if (reply.has_error()) co_return reply.error();
    const auto why = refusal_in(*reply);
    if (!why.empty()) co_return Error{Errc::bad_usage, "the job's agent refused: " + why};
    co_return Result<void>{};
  }
  if (phase == Phase::queued || phase == Phase::starting)
    co_return Error{Errc::bad_usage, "job " + id + " hasn't started yet"};
  if (phase == Phase::ended && (*job)->stored.submission->launch)
    co_return Error{Errc::bad_usage,
                    "job " + id +
                        " is this node's part of a job on several nodes, which has ended: "
                        "acc-launch --hosts starts it anew on all of them"};
  if (phase == Phase::ended) {
    if (impl_->is_closed) co_return Error{Errc::unavailable, "acc-agent shuts down"};
    if (keeper.is_drained())
      co_return Error{Errc::unavailable, "this node is drained: " + keeper.drained()};
    const auto& wanted = *(*job)->stored.submission;
    const SlotRequest request{wanted.slots, wanted.gpus, (*job)->stored.uid};
    if (!keeper.slots().can_hold(request))
      co_return Error{Errc::exhausted, "this node no longer has that many slots or GPUs"};
    if (!wanted.wait && !keeper.slots().has_free(request))
      co_return Error{Errc::exhausted, "no room: running here: " + impl_->busy_text(who)};
  }
  keeper.change(*job, RestartAsked{});
  co_return Result<void>{};
}

awaitable<Result<void>> JobService::remove(Principal who, JobId id) {
  const auto job = impl_->find(who, id);
  if (job.has_error()) co_return job.error();
  if ((*job)->stored.life.phase != Phase::ended)
    co_return Error{Errc::bad_usage, "job " + id + " hasn't ended: stop it first"};
  co_await settled(*job);
  if (impl_->find(who, id).has_error()) co_return no_job(id);  // another call was first
  if ((*job)->stored.life.phase != Phase::ended)
    co_return Error{Errc::bad_usage, "job " + id + " was restarted meanwhile"};
  co_return co_await impl_->keeper.pruner().drop(*job);
}

awaitable<Result<void>> JobService::drain(Principal who, std::string reason) {
  constexpr std::size_t kLongest = 1000;
  auto text = printable(reason.empty() ? "by hand" : reason, kLongest);
  co_return co_await impl_->set_drained(who, std::move(text));
}

awaitable<Result<void>> JobService::undrain(Principal who) {
  co_return co_await impl_->set_drained(who, "");
}

awaitable<Result<std::string>> JobService::control(Principal who, JobId id, std::string request) {
  const auto job = impl_->find(who, id);
  if (job.has_error()) co_return job.error();
  if (request.find('\n') != std::string::npos)
    co_return Error{Errc::bad_usage, "a request to an agent is one line"};
  if (!(*job)->process.is_open())
    co_return Error{Errc::unavailable, "job " + id + " isn't running"};
  co_return co_await impl_->keeper.processes().ask(*job, std::move(request));
}

std::vector<JobRecord> JobService::list(Principal who) const {
  std::vector<JobRecord> records;
  for (const auto& [id, job] : impl_->keeper.jobs())
    if (may_see(who, job->stored.uid) && !job->is_leaving) records.push_back(record_of(*job));
  std::ranges::sort(records, [](const auto& a, const auto& b) {
    return std::tie(a.submitted_ms, a.id) < std::tie(b.submitted_ms, b.id);
  });
  return records;
}

Result<JobRecord> JobService::find(Principal who, const JobId& id) const {
  const auto job = impl_->find(who, id);
  if (job.has_error()) return job.error();
  return record_of(**job);
}

NodeFacts JobService::node() const {
  const auto& slots = impl_->keeper.slots();
  return {host_name(),  version(),         slots.slots(),          slots.free_slots(),
          slots.gpus(), slots.free_gpus(), impl_->keeper.drained()};
}

Result<UniqueFd> JobService::open_output(Principal who, const JobId& id,
                                         const OutputChoice& choice) const {
  const auto job = impl_->find(who, id);
  if (job.has_error()) return job.error();
  auto folder = impl_->keeper.folder().open_user_folder(id);
  if (folder.has_error()) return folder.error();
  const uid_t owner = (*job)->stored.uid;
  if (choice.is_events)
    return open_user_file(folder->get(), choice.is_previous ? "events.jsonl.1" : "events.jsonl",
                          owner);
  if (choice.local_rank)
    return open_rank_log(folder->get(), impl_->newest, *choice.local_rank, choice.is_stderr, owner);
  auto fd = open_user_file(folder->get(), choice.is_stderr ? "stderr.log" : "stdout.log", owner);
  if (fd.has_error() && fd.error().code == Errc::not_found)
    return Error{Errc::not_found, "job " + id + " has written nothing yet"};
  return fd;
}

std::vector<UniqueFd> JobService::open_log_folders(Principal who, const JobId& id) const {
  if (impl_->find(who, id).has_error()) return {};
  const auto folder = impl_->keeper.folder().open_user_folder(id);
  return folder.has_error() ? std::vector<UniqueFd>{} : daemon::open_log_folders(folder->get());
}

Result<std::string> JobService::report(Principal who, const JobId& id) const {
  constexpr std::size_t kLongest = std::size_t{1} << 20U;
  const auto job = impl_->find(who, id);
  if (job.has_error()) return job.error();
  auto folder = impl_->keeper.folder().open_user_folder(id);
  if (folder.has_error()) return folder.error();
  return read_user_file(folder->get(), "report.json", (*job)->stored.uid, kLongest);
}

std::vector<JobEvent> JobService::events_after(Principal who, std::uint64_t number) const {
  return impl_->keeper.events().ring().after(number, [&](const JobEvent& event) {
    const bool is_of_node = event.kind == "drained" || event.kind == "undrained";
    return is_of_node || may_see(who, event.uid);
  });
}

Jobs::Subscription JobService::on_event(std::function<void(const JobEvent&)> told) {
  const auto number = impl_->next_listener++;
  impl_->keeper.events().told[number] = std::move(told);
  return {impl_->lives.get(), [number, impl = impl_.get(), lives = impl_->lives](void*) {
            if (*lives) impl->keeper.events().told.erase(number);
          }};
}

}  // namespace acc::agent::daemon
