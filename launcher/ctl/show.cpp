#include "launcher/ctl/show.hpp"

#include "common/plain_text.hpp"
#include "common/text.hpp"
#include "launcher/ctl/follow.hpp"
#include "launcher/ctl/output.hpp"
#include "launcher/ctl/text_table.hpp"

#include <nlohmann/json.hpp>

#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <utility>

namespace acc::ctl {

namespace {

using Json = nlohmann::json;

std::string time_words(std::int64_t time_ms) {
  const auto seconds = static_cast<std::time_t>(time_ms / 1000);
  std::tm local{};
  char text[32] = "?";
  if (::localtime_r(&seconds, &local) != nullptr)
    std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &local);
  return text;
}

std::vector<std::string> node_heading() {
  return {"NODE", "SLOTS", "FREE", "GPUS", "FREE", "JOBS", "WAITING", "VERSION", "DRAINED"};
}

std::vector<std::string> node_row(const std::string& name, const Json& node) {
  const auto count = [&](const char* key) {
    const bool is_list = node.is_object() && node.contains(key) && node[key].is_array();
    return std::to_string(is_list ? node[key].size() : 0);
  };
  return {name,
          std::to_string(number_of(node, "slots")),
          std::to_string(number_of(node, "slots_free")),
          count("gpus"),
          count("gpus_free"),
          std::to_string(number_of(node, "jobs_running")),
          std::to_string(number_of(node, "jobs_waiting")),
          text_of(node, "version"),
          text_of(node, "drained")};
}

// The table cuts a long one.
std::string long_reasons(const std::vector<std::vector<std::string>>& rows) {
  constexpr std::size_t kShort = 16;
  constexpr std::size_t kMost = 400;
  std::string text;
  for (std::size_t i = 1; i < rows.size(); ++i) {
    const auto& reason = rows[i].back();
    if (rows[i][1] != "-" && reason.size() > kShort)
      text += printable(rows[i][0], 80) + " is drained: " + printable(reason, kMost) + "\n";
  }
  return text;
}

void tell_of_dead(const AllJobs& all) {
  if (all.answered.empty()) return;  // the failure says more
  for (const auto& socket : all.dead) tell(left_by_dead(socket));
}

bool show_event(const Invocation& call, const Json& event) {
  if (call.wants_json()) return write_out(STDOUT_FILENO, safe_json(to_line(event)), nullptr);
  const std::string line =
      time_words(number_of(event, "time_ms")) + "  " + printable(text_of(event, "job"), 80) + "  " +
      printable(text_of(event, "kind"), 40) + "  " + printable(text_of(event, "text"), 400) + "\n";
  return write_out(STDOUT_FILENO, line, nullptr);
}

}  // namespace

int show_jobs(const Invocation& call) {
  const auto now = now_ms();
  auto all = find_jobs(call.services, now, call.at());
  const bool is_missed = is_service_missed(call.services, all, call.at());
  if (is_missed) tell(unanswered(call.services, *all.error));
  tell_of_dead(all);
  const int exit = is_missed ? code(failure_of(*all.error).exit) : code(CtlExit::done);
  if (is_missed && !call.at().empty()) return exit;
  if (call.at().empty()) {
    const auto launches = ask_launches(agent::read_records(), kListedNodePatience);
    all.jobs = without_parts(std::move(all.jobs), launches);
    for (const auto& launch : launches) all.jobs.push_back(row_of(launch));
  }
  const bool lacks_nodes = std::ranges::any_of(
      all.jobs, [](const JobRow& job) { return job.state == "unknown"; });
  if (all.answered.empty() && lacks_nodes && all.error && !is_missed)
    tell("what runs on other hosts isn't known: " + unanswered(call.services, *all.error));
  if (call.wants_json()) {
    print_json(jobs_json(all.jobs));
    return exit;
  }
  if (is_missed && all.jobs.empty()) return exit;
  if (all.answered.empty() && all.jobs.empty())
    tell("no acc-agent answers, and no acc-launch of yours runs here" +
         (all.unseen.empty() ? "" : " (" + all.unseen + ")"));
  print(jobs_table(all.jobs, now, terminal_width()));
  return exit;
}

int show_status(const Invocation& call, const JobRow& job) {
  std::string text;
  std::string why;
  Json live;
  if (job.is_of_service) {
    const auto answer = ask_service(job.socket, {.target = job.at + "/v1/jobs/" + job.id});
    if (!answer) return fail(answer.error());
    if (answer->status != kHttpOk) return fail(*answer);
    const auto shown = parse_json(answer->body);
    if (shown.is_object() && shown.contains("live")) live = shown["live"];
    if (shown.is_object() && shown.contains("report")) why = failure_text(shown["report"]);
    text = answer->body;
  } else {
    const auto answer = ask_agent(job.socket, R"({"do":"status"})");
    if (!answer && answer.error().code == Errc::timed_out)
      return fail(CtlExit::no_service,
                  job.id + " gives no answer: its acc-launch may be suspended");
    if (!answer) return fail(answer.error());
    live = parse_json(*answer);
    auto shown = parse_json(jobs_json({job}))["jobs"][0];
    shown["live"] = live;
    text = to_line(shown);
  }
  if (call.wants_json()) return print_json(text);
  return print(job_text(job, live, now_ms(), terminal_width()) + why);
}

int show_status(const Invocation& call, const LaunchState& launch) {
  if (call.wants_json()) return print_json(to_line(launch_json(launch, ask_parts(launch))));
  return print(launch_text(launch, now_ms(), terminal_width()));
}

int show_stacks(const JobRow& job) {
  constexpr Millis kPatience{20'000};
  Json reply;
  if (job.is_of_service) {
    const auto answer = ask_service(
        job.socket, {.method = "POST", .target = job.at + "/v1/jobs/" + job.id + "/stacks"});
    if (!answer) return fail(answer.error());
    if (answer->status >= kHttpRedirect) return fail(*answer);
    reply = parse_json(answer->body);
  } else {
    const auto answer = ask_agent(job.socket, R"({"do":"stacks"})", kPatience);
    if (!answer) return fail(answer.error());
    if (const auto why = error_of(*answer); !why.empty())
      return fail(CtlExit::refused, job.id + ": " + why);
    reply = parse_json(*answer);
  }
  const auto text = text_of(reply, "text");
  return print(::isatty(STDOUT_FILENO) == 1 ? safe_text(text) : text);
}

int show_stacks(const LaunchState& launch) {
  // The agent of each node knows the others, and gathers the stacks of all.
  std::optional<int> last;
  for (const auto& one : launch.parts) {
    if (!one.job || is_over(one.job->state)) continue;
    last = show_stacks(*one.job);
    if (last == code(CtlExit::done)) break;
  }
  if (last) return *last;
  if (!unknown_nodes(launch).empty())
    return fail(CtlExit::no_service, launch.record.id + ": none of its nodes can be asked now");
  return fail(CtlExit::refused, "nothing of " + launch.record.id + " runs");
}

int show_node(const Invocation& call) {
  std::vector<std::vector<std::string>> rows{node_heading()};
  auto list = Json::array();
  std::optional<Failure> failure;
  // What failed: a place where none runs fails no command if another answers.
  bool is_there = false;
  std::vector<std::string> dead;
  for (const auto& socket : call.services.sockets) {
    const auto answer = ask_service(socket, {.target = call.at() + "/v1/node"});
    if (answer && answer->status == kHttpOk) {
      const auto node = parse_json(answer->body);
      rows.push_back(node_row(text_of(node, "name"), node));
      list.push_back(node);
      continue;
    }
    const bool is_away_here = !answer && is_away(call.services, socket, answer.error());
    const bool is_dead = !answer && !is_away_here && is_nothing_listening(answer.error());
    if (is_dead) dead.push_back(socket);
    if (is_there) continue;
    is_there = !is_away_here && !is_dead;
    if (!failure || is_there || (is_dead && dead.size() == 1))
      failure = answer ? failure_of(*answer)
                       : Failure{failure_of(answer.error()).exit,
                                 unanswered(call.services, answer.error())};
  }
  const bool is_failed = failure && (is_there || list.empty());
  if (is_failed) tell(failure->text);
  for (const auto& socket : dead) {
    if (!list.empty()) tell(left_by_dead(socket));
  }
  if (!list.empty() && call.wants_json()) print_json(to_line(list[0]));
  if (!list.empty() && !call.wants_json())
    print(table_text(rows, terminal_width()) + long_reasons(rows));
  return code(is_failed ? failure->exit : CtlExit::done);
}

int show_nodes(const Invocation& call) {
  return call.at_service([&](const std::string& socket) {
    const auto answer = ask_service(socket, {.target = "/v1/nodes"});
    if (!answer) return fail(answer.error());
    if (answer->status != kHttpOk) return fail(*answer);
    if (call.wants_json()) return print_json(answer->body);
    const auto all = parse_json(answer->body);
    std::vector<std::vector<std::string>> rows{node_heading()};
    std::string troubles;
    if (all.is_object() && all.contains("nodes") && all["nodes"].is_array()) {
      for (const auto& one : all["nodes"]) {
        const auto name = text_of(one, "node");
        if (one.is_object() && one.contains("facts")) {
          rows.push_back(node_row(name, one["facts"]));
        } else {
          rows.push_back({name, "-", "-", "-", "-", "-", "-", "-", text_of(one, "code")});
          troubles += "acc-ctl: " + printable(text_of(one, "error"), 400) + "\n";
        }
      }
    }
    write_out(STDERR_FILENO, troubles, nullptr);
    return print(table_text(rows, terminal_width()) + long_reasons(rows));
  });
}

int show_events(const Invocation& call) {
  return call.at_service([&](const std::string& socket) {
    if (call.command.has("--follow")) {
      const OnEvent show = [&](const std::string& data) {
        return show_event(call, parse_json(data));
      };
      return code_of(follow_events(socket, show), {});
    }
    const auto answer = ask_service(socket, {.target = "/v1/events"});
    if (!answer) return fail(answer.error());
    if (answer->status != kHttpOk) return fail(*answer);
    const auto all = parse_json(answer->body);
    if (!all.is_object() || !all.contains("events") || !all["events"].is_array())
      return fail(CtlExit::failed, "this is no list of events");
    for (const auto& event : all["events"]) {
      if (!show_event(call, event)) break;
    }
    return code(CtlExit::done);
  });
}

}  // namespace acc::ctl
