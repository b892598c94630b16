#include "launcher/ctl/output.hpp"

#include "agent/fanout/cluster_launch.hpp"
#include "common/job_verdict.hpp"
#include "common/plain_text.hpp"
#include "common/text.hpp"
#include "common/user_name.hpp"
#include "launcher/ctl/text_table.hpp"
#include "launcher/program.hpp"

#include <nlohmann/json.hpp>

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <utility>

namespace acc::ctl {

namespace {

/// Nothing: --since can't be read.
std::optional<std::string> log_query(const Invocation& call) {
  std::string query;
  if (call.command.has("--rank")) query += "&rank=" + call.command.value("--rank");
  if (call.command.has("--stdout")) query += "&stream=stdout";
  if (call.command.has("--stderr")) query += "&stream=stderr";
  const auto since = call.command.has("--since")
                         ? parse_since(call.command.value("--since"), now_ms())
                         : Result<std::int64_t>{0};
  if (!since) {
    tell(since.error().what);
    return std::nullopt;
  }
  const bool is_from_now = call.command.verb == "attach" && !call.command.has("--all");
  if (is_from_now) query += "&from=end";
  if (*since > 0) query += "&since=" + std::to_string(*since);
  return query;
}

bool is_ours(const JobRow& job) { return job.user == user_name(::geteuid()); }

std::string where_output_is(const JobRow& job) {
  const auto answer = ask_agent(job.socket, R"({"do":"status"})");
  const auto folder = answer ? text_of(parse_json(*answer), "log_folder") : std::string{};
  return job.id + " is a plain acc-launch: its output goes to where it was started" +
         (folder.empty() ? "; --log_dir would keep it in files"
                         : ", and to the files in " + printable(folder, 400));
}

/// Another user's output must not steer this terminal.
bool is_made_safe(const JobRow& job, int fd) { return !is_ours(job) && ::isatty(fd) == 1; }

/// Which ranks a job of the service has, as far as that is known: of its node, if it runs or has
/// ended.
std::vector<std::int64_t> ranks_of(const JobRow& job) {
  std::vector<std::int64_t> ranks;
  const auto answer = ask_service(job.socket, {.target = job.at + "/v1/jobs/" + job.id});
  if (!answer || answer->status != kHttpOk) return ranks;
  const auto shown = parse_json(answer->body);
  for (const char* part : {"live", "report"}) {
    if (!ranks.empty() || !shown.is_object() || !shown.contains(part)) continue;
    const auto& facts = shown[part];
    if (!facts.is_object() || !facts.contains("workers") || !facts["workers"].is_array()) continue;
    for (const auto& worker : facts["workers"])  // a lost machine's have no local rank
      if (worker.is_object() && worker.contains("local_rank") &&
          worker["local_rank"].is_number_integer())
        ranks.push_back(number_of(worker, "local_rank"));
  }
  return ranks;
}

std::string without_rank(const std::string& id, const std::string& rank, std::int64_t last) {
  return id + " has no rank " + printable(rank, 40) + ": it has " +
         (last == 0 ? std::string{"rank 0 alone"} : "ranks 0 to " + std::to_string(last));
}

/// Why there is no such output; nothing: there is, or that isn't known.
std::optional<std::string> missing_rank(const Invocation& call, const JobRow& job) {
  if (!call.command.has("--rank")) return std::nullopt;
  const auto& word = call.command.value("--rank");
  const auto rank = parse_number<std::int64_t>(word);
  const auto ranks = ranks_of(job);
  if (!rank || ranks.empty() || std::ranges::find(ranks, *rank) != ranks.end()) return std::nullopt;
  return without_rank(job.id, word, std::ranges::max(ranks));
}

int whole_output(const Invocation& call, const JobRow& job, const std::string& query) {
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    const bool is_error = fd == STDERR_FILENO;
    if (call.command.has(is_error ? "--stdout" : "--stderr")) continue;
    const bool is_named = call.command.has("--stdout") || call.command.has("--stderr");
    const std::string stream = is_named ? "" : is_error ? "&stream=stderr" : "&stream=stdout";
    auto exchange = Exchange::open(
        job.socket, {.target = job.at + "/v1/jobs/" + job.id + "/logs?follow=0" + query + stream});
    if (!exchange) return fail(exchange.error());
    std::string piece;
    std::string body;
    const bool is_escaped = is_made_safe(job, fd);
    SafeText safe;  // a character may be cut between two pieces
    for (;;) {
      const auto arrived = exchange->next(piece, clock_now() + kAnswerPatience, nullptr);
      if (arrived == Arrived::end) break;
      if (arrived != Arrived::data)
        return fail(CtlExit::failed, "acc-agent stopped in the middle of the output");
      if (exchange->status() != kHttpOk) {
        body += piece;
      } else if (!write_out(fd, is_escaped ? safe.add(piece) : piece, nullptr)) {
        return code(CtlExit::done);
      }
    }
    static_cast<void>(write_out(fd, safe.end(), nullptr));
    const auto missing =
        exchange->status() == kHttpNotFound ? missing_rank(call, job) : std::nullopt;
    if (missing) return fail(CtlExit::no_such_job, *missing);
    if (exchange->status() != kHttpOk) return fail(Answer{exchange->status(), body});
  }
  return code(CtlExit::done);
}

/// Its transports: one for each node that has a job of it, or had one when it last answered.
std::vector<agent::RemoteHost> followers_of(const Invocation& call, const LaunchState& launch) {
  const bool is_from_now = call.command.verb == "attach" && !call.command.has("--all");
  std::vector<agent::RemoteHost> hosts;
  for (const auto& one : launch.parts) {
    const bool is_lost = is_away(launch, one);
    if (!one.job && !is_lost) continue;
    std::vector<std::string> words{launcher::own_program("acc-ctl"), "bridge",
                                   "--socket=" + launch.record.socket,
                                   "--job=" + (is_lost ? one.part.job : one.job->id)};
    if (one.part.node.empty()) words.emplace_back("--here");
    if (is_lost) words.emplace_back("--away");
    if (is_from_now) words.emplace_back("--new");
    words.push_back(one.part.node.empty() ? one.part.host : one.part.node);
    hosts.push_back({one.part.host, std::move(words), one.part.node});
  }
  return hosts;
}

/// Neither asked nor followed: what it does isn't known.
bool is_hidden(const LaunchState& launch, const LaunchPartState& one) {
  return !one.job && !one.why.empty() && !is_away(launch, one);
}

/// Of a launch that was followed without a node, or with one that could not be asked at first.
/// @param exit  of those that were followed
int code_of_rest(const LaunchState& launch, int exit, bool attaches) {
  std::vector<std::string> missing;
  for (const auto& one : launch.parts)
    if (is_hidden(launch, one)) missing.push_back(one.part.host);
  if (!missing.empty())
    tell("what was written on " + join(missing, ", ") +
         " is missing: could not be asked at the beginning; acc-ctl logs " + launch.record.id +
         " asks again");
  // The end of a part that was lost is none of the job, which may go on there if enough are left.
  const bool is_end = attaches ? !JobVerdict::is_of_one_node(exit) : exit != code(CtlExit::done);
  if (is_end) return exit;
  if (!attaches && !missing.empty()) return code(CtlExit::no_service);
  const auto now = ask_launches({launch.record});
  if (attaches && !now.empty()) {
    if (const auto of_job = row_of(now.front()).exit_code) return *of_job;
  }
  if (missing.empty() && (now.empty() || unknown_nodes(now.front()).empty())) return exit;
  return code(CtlExit::no_service);
}

/// As acc-launch --hosts follows it, through the same transports.
int follow_launch(const Invocation& call, const LaunchState& launch) {
  const bool attaches = call.command.verb == "attach";
  agent::ClusterLaunch wish;
  wish.id = launch.record.id;
  wish.socket = launch.record.socket;
  wish.is_ssh = wish.sends_secret = wish.is_recorded = false;
  wish.uses_daemons = true;
  wish.transport = "acc-ctl bridge";
  wish.program = "acc-ctl";
  wish.leaves_at = attaches ? 2 : 1;
  wish.is_reader = !attaches;
  wish.shows_status = attaches;
  if (std::ranges::any_of(launch.parts, [](const auto& one) { return one.job.has_value(); }))
    wish.hosts = followers_of(call, launch);
  // A hidden part may be what the job goes on with.
  if (std::ranges::none_of(launch.parts, [&](const auto& one) { return is_hidden(launch, one); }))
    wish.min_hosts = launch.record.min_hosts;
  if (wish.hosts.empty() && !unknown_nodes(launch).empty())
    return fail(CtlExit::no_service, launch.record.id + ": none of its nodes can be asked now");
  if (wish.hosts.empty()) return fail(CtlExit::no_such_job, "no node has a job of it");
  const int exit = agent::run_on_hosts(wish, agent::GuardianLink{});
  return unknown_nodes(launch).empty() ? exit : code_of_rest(launch, exit, attaches);
}

}  // namespace

int show_output(const Invocation& call, const JobRow& job) {
  if (!job.is_of_service) return fail(CtlExit::refused, where_output_is(job));
  const auto query = log_query(call);
  if (!query) return code(CtlExit::usage);
  const bool attaches = call.command.verb == "attach";
  if (!attaches && !call.command.has("--follow")) return whole_output(call, job, *query);
  // A job that waits for its start tells its ranks only when it has ended.
  if (const auto missing = missing_rank(call, job)) return fail(CtlExit::no_such_job, *missing);
  const auto on_interrupt = attaches ? OnInterrupt::stop_then_leave : OnInterrupt::leave;
  const auto end = follow_output(job, {*query, on_interrupt, OnTerm::leave, !is_ours(job)});
  if (!attaches && end.how == Followed::How::job_ended) {
    if (const auto missing = missing_rank(call, job)) return fail(CtlExit::no_such_job, *missing);
    return code(CtlExit::done);
  }
  return code_of(end, attaches ? job.id : std::string{});
}

// Ranks of a launch are counted over all of its nodes, those of a job on its own.
static int show_rank(const Invocation& call, const LaunchState& launch) {
  const auto rank = parse_number<std::uint32_t>(call.command.value("--rank"));
  const auto place = rank ? place_of(launch, *rank) : std::nullopt;
  if (!place && !unknown_nodes(launch).empty())
    return fail(
        CtlExit::no_service,
        launch.record.id + ": where that rank is isn't known: not all nodes can be asked now");
  if (!place)
    return fail(CtlExit::no_such_job,
                without_rank(launch.record.id, call.command.value("--rank"),
                             static_cast<std::int64_t>(row_of(launch).slots) - 1));
  Command there = call.command;
  there.flags["--rank"] = {std::to_string(place->local_rank)};
  return show_output(Invocation{there, call.services}, *place->part->job);
}

int show_output(const Invocation& call, const LaunchState& launch) {
  if (call.command.has("--rank")) return show_rank(call, launch);
  const bool follows = call.command.verb == "attach" || call.command.has("--follow");
  for (const char* flag : {"--since", "--stdout", "--stderr"}) {
    if (follows && call.command.has(flag))
      return fail(CtlExit::usage, std::string{flag} +
                                      " while following all nodes of a launch: add --rank R, or "
                                      "leave --follow out");
  }
  if (follows) return follow_launch(call, launch);
  const auto query = log_query(call);
  if (!query) return code(CtlExit::usage);
  int worst = code(CtlExit::done);
  for (const auto& one : launch.parts) {
    if (one.job) worst = std::max(worst, whole_output(call, *one.job, *query));
  }
  // Why was told before.
  if (!unknown_nodes(launch).empty()) worst = std::max(worst, code(CtlExit::no_service));
  return worst;
}

int code_of(const Followed& end, const std::string& id) {
  switch (end.how) {
    case Followed::How::job_ended:
      // What ran has told its end itself; a reason is there if it could not.
      if (end.exit_code && end.state == "failed" && !end.reason.empty() && !id.empty())
        tell(id + " failed: " + printable(end.reason, 1000) + "; what it wrote: acc-ctl logs " +
             id);
      if (end.exit_code) return *end.exit_code;
      tell("the job is " + (end.state.empty() ? "gone" : printable(end.state, 40)) +
           (end.reason.empty() ? "" : ": " + printable(end.reason, 400)));
      // One that was stopped in the queue has no code of its own.
      if (end.state == "stopped" && end.stopped_by != 0) return 128 + end.stopped_by;
      return code(CtlExit::failed);
    case Followed::How::interrupted:
      if (!id.empty()) tell("left " + id + " alone: acc-ctl attach " + id);
      return end.exit_code.value_or(128 + SIGINT);
    case Followed::How::output_closed:
      return code(CtlExit::done);
    case Followed::How::lost:
      break;
  }
  return fail(end.lost_by, end.reason);
}

}  // namespace acc::ctl
