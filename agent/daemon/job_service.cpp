#include "agent/daemon/job_service.hpp"

#include "agent/daemon/admission.hpp"
#include "agent/daemon/job_file_loader.hpp"
#include "agent/daemon/job_keeper.hpp"
#include "agent/daemon/json_text.hpp"
#include "agent/daemon/node_drain.hpp"
#include "agent/daemon/process_identity.hpp"
#include "agent/daemon/user_file.hpp"
#include "common/exit_status.hpp"
#include "common/host_name.hpp"
#include "common/passed_signals.hpp"
#include "common/random.hpp"
#include "common/text.hpp"
#include "common/version.hpp"

#include <nlohmann/json.hpp>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>

namespace acc::agent::daemon {

using boost::asio::awaitable;

namespace {

Error no_job(const JobId& id) { return {Errc::not_found, "no job " + in_quotes(id, 80) + " here"}; }

}  // namespace

class JobService::Impl {
 public:
  Impl(boost::asio::io_context& loop, ServiceSettings settings)
      : keeper{loop, std::move(settings)}, loader{loop, keeper}, drain{loop, keeper, loader} {}

  JobKeeper keeper;
  JobFileLoader loader;
  Admission admission{keeper};
  NodeDrain drain;
  NewestAttempts newest;
  std::string identity = random_name() + random_name();
  std::uint64_t next_listener = 1;
  /// Outlives the service in the handles that listeners keep.
  std::shared_ptr<bool> lives = std::make_shared<bool>(true);

  [[nodiscard]] Result<JobPtr> find(const Principal& who, const JobId& id) const {
    const auto job = keeper.find(id);
    if (!job || !may_see(who, job->stored.uid)) return no_job(id);
    return job;
  }
};

JobService::JobService(boost::asio::io_context& io, ServiceSettings settings)
    : impl_{std::make_unique<Impl>(io, std::move(settings))} {
  impl_->keeper.events().told[0] = [this](const JobEvent& event) {
    if (event.kind == "ended" || event.kind == "restarted")
      impl_->drain.job_ended(event.job, report({::geteuid(), ::getegid()}, event.job));
  };
}

JobService::~JobService() { *impl_->lives = false; }

awaitable<Result<void>> JobService::start() {
  auto started = co_await impl_->keeper.start();
  if (started.has_error()) co_return started;
  if (auto kept = daemon_identity(impl_->keeper.folder().path()); !kept.empty())
    impl_->identity = std::move(kept);
  co_return started;
}

awaitable<Result<void>> JobService::reload(PruneRules prune) {
  auto loaded = co_await impl_->loader.load();
  impl_->keeper.pruner().set_rules(prune);  // behind it: a job whose file is gone may be forgotten
  co_return loaded;
}

void JobService::close() {
  impl_->admission.close();
  impl_->keeper.close();
}

awaitable<Result<JobId>> JobService::submit(Principal who, Submission submission) {
  co_await impl_->loader.first_load();
  auto user = co_await impl_->admission.admit(who, submission);
  if (user.has_error()) co_return user.error();
  if (who.caller && who.caller->is_closed())  // it knows of no job, and may have asked again
    co_return Error{Errc::unavailable, "the caller closed its connection"};
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
  auto user = co_await impl_->admission.admit(who, submission);
  if (user.has_error()) co_return user.error();
  CheckedSubmission checked;
  checked.user = user->name;
  if (auto complaint = co_await impl_->admission.try_launcher(who, *user, std::move(submission)))
    co_return *complaint;
  const auto facts = node();
  checked.version = facts.version;
  checked.slots_free = facts.slots_free;
  checked.daemon = impl_->identity;
  checked.gpus_free = static_cast<std::uint32_t>(facts.gpus_free.size());
  co_return checked;
}

awaitable<Result<std::string>> JobService::stop(Principal who, JobId id,
                                                std::optional<std::uint32_t> grace_s) {
  const auto job = impl_->find(who, id);
  if (job.has_error()) co_return job.error();
  if ((*job)->stored.life.phase == Phase::ended)
    co_return Error{Errc::bad_usage, "job " + id + " has ended already"};
  impl_->keeper.change(*job, StopAsked{grace_s});
  co_await settled(*job);
  const auto& why = (*job)->not_recorded;
  if (why.empty()) co_return std::string{};
  co_return "if acc-agent is restarted before its record can be written, that one doesn't know of "
      "the stop: " + why;
}

awaitable<Result<void>> JobService::signal(Principal who, JobId id, int signo) {
  const auto job = impl_->find(who, id);
  if (job.has_error()) co_return job.error();
  if (!is_passed_on(signo))
    co_return Error{Errc::bad_usage, signal_name(signo) + " isn't passed on to workers: " +
                                         passed_signal_names() + "; `stop` ends a job"};
  const auto state = state_of((*job)->stored.life);
  if (state != JobState::running && state != JobState::stopping)
    co_return Error{Errc::bad_usage, "job " + id + " isn't running"};
  co_await settled(*job);  // one that starts
  // Recorded first: the job may have ended by it before the next line.
  if (ends_any_job(signo)) impl_->keeper.change(*job, EndSignaled{});
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
  const bool has_ended = phase == Phase::ended;
  if ((has_ended || phase == Phase::stopping) && (*job)->stored.submission->launch)
    co_return Error{Errc::bad_usage,
                    "job " + id + " is this node's part of a job on several nodes, which " +
                        (has_ended ? "has ended" : "is being stopped") +
                        ": acc-launch --hosts starts it anew on all of them"};
  if (phase == Phase::ended)
    if (auto why = impl_->admission.restart_refusal(who, **job)) co_return *why;
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

awaitable<Result<std::string>> JobService::drain(Principal who, std::string reason) {
  constexpr std::size_t kLongest = 1000;
  auto text = printable(reason.empty() ? "by hand" : reason, kLongest);
  co_return co_await impl_->drain.drain(who, std::move(text));
}

awaitable<Result<void>> JobService::undrain(Principal who) {
  co_return co_await impl_->drain.undrain(who);
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
  return {host_name(),  version(),         slots.slots(),           slots.free_slots(),
          slots.gpus(), slots.free_gpus(), impl_->keeper.drained(), impl_->identity};
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

Result<RankLog> JobService::find_rank_log(Principal who, const JobId& id,
                                          const RankLogChoice& choice) const {
  const auto job = impl_->find(who, id);
  if (job.has_error()) return job.error();
  const auto folder = impl_->keeper.folder().open_user_folder(id);
  if (folder.has_error()) return folder.error();
  return daemon::find_rank_log(folder->get(), impl_->newest, choice, (*job)->stored.uid);
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
