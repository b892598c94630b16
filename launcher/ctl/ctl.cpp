#include "launcher/ctl/ctl.hpp"

#include "common/exit_status.hpp"
#include "common/plain_text.hpp"
#include "common/text.hpp"
#include "common/user_name.hpp"
#include "launcher/ctl/follow.hpp"
#include "launcher/ctl/invocation.hpp"
#include "launcher/ctl/job_list.hpp"
#include "launcher/ctl/output.hpp"
#include "launcher/ctl/show.hpp"
#include "launcher/ctl/steer.hpp"
#include "launcher/ctl/submit.hpp"

#include <nlohmann/json.hpp>

#include <unistd.h>

#include <algorithm>
#include <span>
#include <utility>

namespace acc::ctl {

namespace {

int submit(const Invocation& call) {
  const auto planned = plan_words(call.command.words);
  if (planned.refused) return *planned.refused;
  const auto body = submission(call.command, planned);
  if (!body) return fail(body.error());
  return call.at_service([&](const std::string& socket) {
    // From here on a Ctrl-C is for the job: it waits until we follow it.
    std::optional<Interrupts> held;
    if (!call.command.has("--detach")) held.emplace();
    const auto answer =
        ask_service(socket, {.method = "POST", .target = "/v1/jobs", .body = *body});
    if (!answer) return fail(answer.error());
    if (answer->status >= kHttpRedirect) return fail(*answer);
    JobRow job;
    job.id = text_of(parse_json(answer->body), "id");
    job.socket = socket;
    if (job.id.empty()) return fail(CtlExit::failed, "acc-agent names no id of the job");
    if (call.wants_json()) print_json(answer->body);
    if (call.command.has("--detach"))
      return call.wants_json() ? 0 : print(printable(job.id) + "\n");
    return code_of(follow_output(job, {.query = "", .on_interrupt = OnInterrupt::stop_then_leave}),
                   job.id);
  });
}

/// The jobs that a command may mean: looked up once for all of its operands.
class Named {
 public:
  explicit Named(const Invocation& call)
      : call_{call}, records_{call.command.has("--node") ? Records{} : agent::read_records()} {}

  int act(const std::string& name, int signo) {
    if (const auto* record = find_record(records_, name)) {
      const auto asked = ask_launches({*record});
      if (!asked.empty()) return act_on(asked.front(), signo);
      return fail(CtlExit::no_such_job, record->id + " is gone from all of its nodes");
    }
    if (!all_) all_ = find_jobs(call_.services, now_ms(), call_.at());
    const auto own = user_name(::geteuid());
    const auto launches = ask_launches(records_from(records_, name));
    const auto meant = find_meant(all_->jobs, launches, name, own);
    if (!meant) return fail_to_find(meant.error());
    return meant->launch ? act_on(*meant->launch, signo) : act_on(meant->job, name, own, signo);
  }

 private:
  using Records = std::vector<agent::LaunchRecord>;

  int act_on(const JobRow& job, const std::string& name, const std::string& own, int signo) const {
    const auto& verb = call_.command.verb;
    const bool only_looks =
        verb == "status" || verb == "logs" || verb == "attach" || verb == "stacks";
    if (!only_looks && job.user != own && name != job.id)
      tell(in_quotes(name, 80) + " is " + printable(job.id, 80) + ", a job of the user " +
           printable(job.user, 80));
    if (verb == "status") return show_status(call_, job);
    if (verb == "logs" || verb == "attach") return show_output(call_, job);
    if (verb == "stacks") return show_stacks(job);
    if (verb == "rm") return remove(job);
    return steer(call_, job, signo);
  }

  int act_on(const LaunchState& launch, int signo) const {
    const auto& verb = call_.command.verb;
    if (verb == "status") return show_status(call_, launch);
    for (const auto& one : launch.parts) {
      if (!one.job) tell(one.part.host + ": " + (one.why.empty() ? "the job is gone" : one.why));
    }
    if (verb == "logs" || verb == "attach") return show_output(call_, launch);
    if (verb == "stacks") return show_stacks(launch);
    if (verb == "rm") return remove(call_, launch);
    return steer(call_, launch, signo);
  }

  // No job of this name: perhaps because the service that knows it doesn't answer.
  int fail_to_find(const Error& error) const {
    if (error.code == Errc::bad_usage) return fail(error);
    if (!all_->unseen.empty()) tell(all_->unseen);
    if (is_service_missed(call_.services, *all_, call_.at()))
      return fail(failure_of(*all_->error).exit, unanswered(call_.services, *all_->error));
    for (const auto& socket : all_->dead) tell(left_by_dead(socket));
    if (all_->answered.empty())
      tell("no acc-agent answers here, so that only jobs of acc-launch are known: " +
           std::string{kStartsIt});
    return fail(CtlExit::no_such_job, error.what);
  }

  const Invocation& call_;
  Records records_;
  std::optional<AllJobs> all_;
};

int act_on_jobs(const Invocation& call) {
  std::span<const std::string> names{call.command.operands};
  int signo = 0;
  if (call.command.verb == "signal") {
    signo = signal_number(names[0]);
    if (signo == 0) return fail(CtlExit::usage, in_quotes(names[0], 40) + " is no signal");
    names = names.subspan(1);
  }
  Named jobs{call};
  int worst = code(CtlExit::done);
  for (const auto& name : names) worst = std::max(worst, jobs.act(name, signo));
  return worst;
}

}  // namespace

int carry_out(const Command& command) {
  const Invocation call{command, find_services(command.value("--socket"))};
  const auto& verb = command.verb;
  if (verb == "ps") return show_jobs(call);
  if (verb == "submit") return submit(call);
  if (verb == "events") return show_events(call);
  if (verb == "node") return show_node(call);
  if (verb == "nodes") return show_nodes(call);
  if (verb == "drain" || verb == "undrain") return drain(call);
  if (verb == "token") return make_token(call);
  return act_on_jobs(call);
}

}  // namespace acc::ctl
