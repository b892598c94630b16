#include "agent/daemon/admission.hpp"

#include "agent/daemon/accounts.hpp"
#include "agent/daemon/guardian_words.hpp"
#include "agent/daemon/plan_program.hpp"
#include "common/host_name.hpp"
#include "common/text.hpp"

#include <unistd.h>

#include <algorithm>
#include <utility>

namespace acc::agent::daemon {

using boost::asio::awaitable;

bool is_operator(const Principal& who) { return who.uid == 0 || who.uid == ::geteuid(); }

bool may_see(const Principal& who, uid_t owner) { return is_operator(who) || who.uid == owner; }

// ---- the user ----

awaitable<Result<LoginUser>> Admission::user_for(Principal who, std::string name) {
  if (::geteuid() != 0) {
    auto own = co_await ask_user(::geteuid(), ::getegid());
    if (own.has_value() && !is_operator(who))
      co_return Error{Errc::not_permitted,
                      "this acc-agent runs jobs of user " + own->name + " only"};
    if (own.has_value() && !name.empty() && name != own->name)
      co_return Error{Errc::not_permitted,
                      "user: this acc-agent isn't root's, and runs jobs of " + own->name + " only"};
    co_return own;
  }
  auto asking = co_await ask_user(who.uid, who.gid);
  if (asking.has_value())
    if (auto why = refusal_of_account(*asking)) co_return *why;
  if (asking.has_error() || name.empty() || name == asking->name) co_return asking;
  if (who.uid != 0)
    co_return Error{Errc::not_permitted, "user: only root runs jobs as another user"};
  co_return co_await ask_user(std::move(name));
}

// ---- the node ----

NodeLoad Admission::load(const Principal& who, uid_t uid) const {
  NodeLoad load{.is_closed = is_closed_,
                .drained = keeper_.drained(),
                .jobs = keeper_.jobs().size(),
                .jobs_of_user = 0,
                .bytes_of_user = 0,
                .bytes_of_all = 0,
                .seen = {}};
  for (const auto& [id, job] : keeper_.jobs()) {
    const auto& stored = job->stored;
    // It stays in memory: an ended job may be started again.
    const auto bytes = memory_of(*stored.submission);
    if (stored.uid != 0) load.bytes_of_all += bytes;
    if (stored.uid != uid) continue;
    if (stored.life.phase != Phase::ended) ++load.jobs_of_user;
    load.bytes_of_user += bytes;
  }
  for (const auto& id : keeper_.slots().holders())
    if (const auto job = keeper_.find(id); job && may_see(who, job->stored.uid))
      load.seen.push_back(id);
  return load;
}

std::optional<Error> Admission::refusal(const Principal& who, const Submission& submission,
                                        uid_t uid) const {
  const auto& settings = keeper_.settings();
  return refusal_of(submission, uid,
                    {settings.max_jobs, settings.max_jobs_of_user, settings.max_bytes_of_user,
                     settings.max_bytes_of_all},
                    load(who, uid), keeper_.slots());
}

std::optional<Error> Admission::restart_refusal(const Principal& who, const Job& job) const {
  const auto uid = job.stored.uid;
  return refusal_of_restart(*job.stored.submission, uid, load(who, uid), keeper_.slots());
}

// ---- the submission ----

namespace {

/// Where no job can be made of it, 1: its record or its log will say why.
Result<std::uint32_t> slots_of(const Result<LauncherTrials::Trial>& trial) {
  if (trial.has_error() && trial.error().code == Errc::timed_out)
    return Error{
        Errc::timed_out,
        trial.error().what + ": submit it again, or name its slots (acc-ctl submit --slots N)"};
  if (trial.has_error() && trial.error().code != Errc::bad_usage) return trial.error();
  if (trial.has_error() || trial->exit_code != 0) return 1U;
  const auto plan = read_plan(trial->output);
  if (plan.has_error()) return plan.error();
  return *plan ? (*plan)->share.slots : 1U;
}

}  // namespace

awaitable<Result<LoginUser>> Admission::admit(Principal who, Submission& submission) {
  if (auto wrong = submission_complaint(submission); !wrong.empty())
    co_return Error{Errc::bad_usage, wrong};
  if (submission.env.size() > kMostVariables)  // not of a job that is recorded already
    co_return Error{Errc::bad_usage, "env: " + plural(submission.env.size(), "variable") +
                                         "; at most " + std::to_string(kMostVariables)};
  auto user = co_await user_for(who, submission.user);
  if (user.has_error()) co_return user.error();
  if (auto why = refusal(who, submission, user->uid)) co_return *why;
  if (auto& launch = submission.launch) {
    const auto& derive = keeper_.settings().launch_secret;
    if (!derive)
      co_return Error{Errc::unavailable, "launch: " + host_name() + " has no cluster secret"};
    if (const auto secret = derive(user->name, *launch); secret.has_error())
      co_return Error{Errc::unavailable, "launch: " + secret.error().what};
  }
  if (!submission.names_slots) {
    const auto slots = slots_of(co_await plan_of(who, *user, submission));
    if (slots.has_error()) co_return slots.error();
    submission.slots = *slots;
    // Of the user's own making: it must be one that the record can hold.
    if (auto wrong = submission_complaint(submission); !wrong.empty())
      co_return Error{Errc::bad_usage, wrong};
    if (auto why = refusal(who, submission, user->uid)) co_return *why;
  }
  co_return user;
}

awaitable<Result<LauncherTrials::Trial>> Admission::plan_of(Principal who, LoginUser user,
                                                            Submission submission) {
  std::vector<std::string> words{"--print_plan"};
  words.insert(words.end(), submission.words.begin(), submission.words.end());
  co_return co_await keeper_.trials().try_launcher(std::move(user), std::move(submission),
                                                   std::move(words), std::move(who.caller));
}

awaitable<std::optional<Error>> Admission::try_launcher(Principal who, LoginUser user,
                                                        Submission submission) {
  const auto plan = co_await plan_of(std::move(who), user, submission);
  if (plan.has_error()) co_return plan.error();
  if (plan->exit_code != 0) {
    constexpr std::size_t kLongest = 4000;
    std::string why{trim(plan->output)};
    std::ranges::replace(why, '\n', ' ');
    co_return Error{Errc::bad_usage, printable(why, kLongest)};
  }
  const auto printed = read_plan(plan->output);
  if (printed.has_error()) co_return printed.error();
  const auto program = *printed ? (*printed)->program : std::nullopt;
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

}  // namespace acc::agent::daemon
