#include "launcher/ctl/steer.hpp"

#include "agent/fanout/launch_record.hpp"
#include "common/exit_status.hpp"
#include "common/text.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <optional>
#include <utility>

namespace acc::ctl {

namespace {

using Json = nlohmann::json;

int post(const std::string& socket, const std::string& target, const Json& body,
         const std::string& done) {
  const auto answer = ask_service(
      socket, {.method = "POST", .target = target, .body = body.empty() ? "" : to_line(body)});
  if (!answer) return fail(answer.error());
  if (answer->status >= kHttpRedirect) return fail(*answer);
  tell(done);
  if (const auto warning = warning_in(*answer); !warning.empty()) tell(warning.substr(2));
  return code(CtlExit::done);
}

}  // namespace

Failure order(const JobRow& job, const std::string& verb, Json body) {
  Failure done{CtlExit::done, verb == "signal"
                                  ? "passed " + text_of(body, "signal") + " on to " + job.id
                                  : "asked " + job.id + " to " + verb};
  if (job.is_of_service) {
    const auto answer =
        ask_service(job.socket, {.method = "POST",
                                 .target = job.at + "/v1/jobs/" + job.id + "/" + verb,
                                 .body = body.empty() ? "" : to_line(body)});
    if (!answer) return failure_of(answer.error());
    if (answer->status >= kHttpRedirect) return failure_of(*answer);
    done.text += warning_in(*answer);
    return done;
  }
  body["do"] = verb;
  auto line = to_line(body);
  line.pop_back();
  const auto answer = ask_agent(job.socket, line);
  if (!answer && answer.error().code == Errc::timed_out)
    return {CtlExit::no_service, job.id + " gives no answer: its acc-launch may be suspended, and may "
                                          "still carry this out when it goes on"};
  if (!answer) return failure_of(answer.error());
  const auto why = error_of(*answer);
  if (why.empty()) return done;
  const bool is_usage = text_of(parse_json(*answer), "code") == "bad_request";
  return {is_usage ? CtlExit::usage : CtlExit::refused, job.id + ": " + why};
}

int steer(const Invocation& call, const JobRow& job, int signo) {
  auto body = Json::object();
  const auto& verb = call.command.verb;
  if (verb == "stop" && call.command.has("--grace"))
    body["grace_s"] = parse_number<unsigned>(call.command.value("--grace")).value_or(0);
  if (verb == "signal") body["signal"] = signal_name(signo);
  const auto outcome = order(job, verb, std::move(body));
  return fail(outcome.exit, outcome.text);
}

std::string not_asked(const LaunchState& launch, const std::vector<std::string>& nodes) {
  return launch.record.id + ": what runs on " + join(nodes, ", ") +
         " isn't known, and wasn't asked from here: try again when the service answers";
}

int steer(const Invocation& call, const LaunchState& launch, int signo) {
  // A node that hasn't found the others yet receives a stop only from here.
  const bool to_all = call.command.verb == "stop";
  std::optional<int> failed;
  bool is_done = false;
  bool is_unheard = false;
  for (const auto& one : launch.parts) {
    if (!one.job || is_over(one.job->state) || (is_done && !to_all)) continue;
    const int exit = steer(call, *one.job, signo);
    if (exit == code(CtlExit::usage)) return exit;  // wrong on all nodes
    if (exit == code(CtlExit::done))
      is_done = true;
    else
      failed = exit;
    is_unheard = is_unheard || exit == code(CtlExit::no_service);
  }
  const auto unknown = unknown_nodes(launch);
  // Restarts and signals are of the whole job, whichever node passes them on.
  // One that has ended meanwhile refuses a stop; one that didn't hear it may run on.
  if (is_done && (!to_all || (unknown.empty() && !is_unheard))) return code(CtlExit::done);
  if (!unknown.empty()) return fail(CtlExit::no_service, not_asked(launch, unknown));
  if (is_unheard) return code(CtlExit::no_service);  // it was told
  if (!failed) tell("nothing of " + launch.record.id + " runs");
  return failed.value_or(code(CtlExit::refused));
}

int remove(const JobRow& job) {
  if (!job.is_of_service)
    return fail(CtlExit::refused, job.id + " is a plain acc-launch, and nothing stays of it");
  const auto answer =
      ask_service(job.socket, {.method = "DELETE", .target = job.at + "/v1/jobs/" + job.id});
  if (!answer) return fail(answer.error());
  return answer->status < kHttpRedirect ? code(CtlExit::done) : fail(*answer);
}

int remove(const Invocation& call, const LaunchState& launch) {
  const auto& id = launch.record.id;
  for (const auto& one : launch.parts) {
    if (one.job && !is_over(one.job->state))
      return fail(CtlExit::refused, id + " hasn't ended: stop it first");
  }
  const auto silent = unknown_nodes(launch);
  // All or nothing: what is left of it would appear in no list.
  if (!silent.empty() && !call.command.has("--force"))
    return fail(CtlExit::no_service, "nothing of " + id + " was removed: " + join(silent, ", ") +
                                         (silent.size() == 1 ? " doesn't" : " don't") +
                                         " answer: try again when the service there does, or, if "
                                         "that node is gone for good, with "
                                         "--force, which removes what is elsewhere");
  int worst = code(CtlExit::done);
  for (const auto& one : launch.parts) {
    if (one.job) worst = std::max(worst, remove(*one.job));
  }
  if (worst != code(CtlExit::done)) return worst;
  for (const auto& node : silent)
    tell(node + " doesn't answer: what it may have of " + id + " stays there");
  agent::remove_record(id);
  return worst;
}

int drain(const Invocation& call) {
  const auto node = call.command.operands.empty() ? std::string{} : call.command.operands[0];
  const bool drains = call.command.verb == "drain";
  return call.at_service([&](const std::string& socket) {
    const auto body = drains ? Json{{"reason", call.command.value("--reason")}} : Json::object();
    return post(socket, node_prefix(node) + "/v1/node/" + call.command.verb, body,
                (node.empty() ? "this node" : printable(node, 200)) +
                    (drains ? " takes no more jobs" : " takes jobs again"));
  });
}

int make_token(const Invocation& call) {
  Json wish = Json::object();
  if (call.command.has("--read-only")) wish["read_only"] = true;
  if (call.command.has("--browser")) wish["browser"] = true;
  if (call.command.has("--expires"))
    wish["expires_s"] = parse_expiry(call.command.value("--expires")).value();
  return call.at_service([&](const std::string& socket) {
    const auto answer =
        ask_service(socket, {.method = "POST", .target = "/v1/token", .body = to_line(wish)});
    if (!answer) return fail(answer.error());
    if (answer->status >= kHttpRedirect) return fail(*answer);
    if (call.wants_json()) return print_json(answer->body);
    const auto issued = parse_json(answer->body);
    return print(printable(text_of(issued, wish.contains("browser") ? "url" : "token")) + "\n");
  });
}

}  // namespace acc::ctl
