#include "launcher/ctl/ctl.hpp"

#include "agent/fanout/cluster_launch.hpp"
#include "common/exit_status.hpp"
#include "common/text.hpp"
#include "launcher/ctl/follow.hpp"
#include "launcher/ctl/job_list.hpp"
#include "launcher/ctl/launches.hpp"
#include "launcher/ctl/places.hpp"
#include "launcher/ctl/submit.hpp"
#include "launcher/ctl/text_table.hpp"
#include "launcher/ctl/wire.hpp"

#include <nlohmann/json.hpp>

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <utility>

namespace acc::ctl {

namespace {

using Json = nlohmann::json;

constexpr unsigned kHttpOk = 200;
constexpr unsigned kHttpRedirect = 300;
constexpr unsigned kHttpBadRequest = 400;
constexpr unsigned kHttpNotFound = 404;
constexpr int kInterrupted = 128 + SIGINT;

std::int64_t now_ms() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<Millis>(now).count();
}

void tell(const std::string& text) { write_out(STDERR_FILENO, "acc-ctl: " + text + "\n", nullptr); }

int code(CtlExit exit) { return static_cast<int>(exit); }

/// A reader that has seen enough (`| head`) is no failure.
int print(const std::string& text) {
  write_out(STDOUT_FILENO, text, nullptr);
  return code(CtlExit::done);
}

int fail(CtlExit exit, const std::string& text) {
  tell(text);
  return code(exit);
}

/// An error of a connection, or of looking a job up.
int fail(const Error& error) {
  if (error.code == Errc::bad_usage) return fail(CtlExit::usage, error.what);
  if (error.code == Errc::not_permitted) return fail(CtlExit::refused, error.what);
  return fail(error.code == Errc::malformed ? CtlExit::failed : CtlExit::no_service, error.what);
}

/// What the service said no to.
int fail(const Answer& answer) {
  auto why = error_of(answer.body);
  if (why.empty()) why = "acc-agent answers with status " + std::to_string(answer.status);
  if (answer.status == kHttpNotFound) return fail(CtlExit::no_such_job, why);
  if (answer.status == kHttpBadRequest) return fail(CtlExit::usage, why);
  return fail(answer.status >= 500 && answer.status != 503 ? CtlExit::failed : CtlExit::refused,
              why);
}

std::string time_words(std::int64_t time_ms) {
  const auto seconds = static_cast<std::time_t>(time_ms / 1000);
  std::tm local{};
  char text[32] = "?";
  if (::localtime_r(&seconds, &local) != nullptr)
    std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &local);
  return text;
}

class Ctl {
 public:
  explicit Ctl(const Command& command)
      : command_{command}, services_{find_services(command.value("--socket"))} {}

  int run() {
    const auto& verb = command_.verb;
    if (verb == "ps") return ps();
    if (verb == "submit") return submit();
    if (verb == "events") return events();
    if (verb == "node") return node();
    if (verb == "nodes") return nodes();
    if (verb == "drain" || verb == "undrain") return drain();
    const auto signo = verb == "signal" ? signal_number(command_.operands[0]) : 0;
    if (verb == "signal" && signo == 0)
      return fail(CtlExit::usage, in_quotes(command_.operands[0], 40) + " is no signal");
    const auto records = command_.has("--node") ? Records{} : agent::read_records();
    if (const auto* launch = find_record(records, command_.operands.back()))
      return of_launch(*launch, signo);
    const auto all = find_jobs(services_, now_ms(), at());
    const auto job = find_job(all.jobs, command_.operands.back());
    if (!job) return fail_to_find(all, job.error());
    if (verb == "status") return status(*job);
    if (verb == "logs" || verb == "attach") return output(*job);
    if (verb == "stacks") return stacks(*job);
    if (verb == "rm") return remove(*job);
    return steer(*job, signo);
  }

 private:
  using Records = std::vector<agent::LaunchRecord>;

  /// Of --node, for the paths of the API.
  [[nodiscard]] std::string at() const { return node_prefix(command_.value("--node")); }

  [[nodiscard]] bool wants_json() const { return command_.has("--json"); }

  // No job of this name: perhaps because the service that knows it doesn't answer.
  int fail_to_find(const AllJobs& all, const Error& error) const {
    if (error.code == Errc::bad_usage) return fail(error);
    const bool is_service_missed = all.answered.empty() && (services_.is_named || all.jobs.empty());
    if (is_service_missed && all.error) {
      tell(error.what);
      return fail(*all.error);
    }
    return fail(CtlExit::no_such_job, error.what);
  }

  /// The one service that is meant: the named one, else the first that answers.
  template <class Do>
  int at_service(Do&& act) {
    std::optional<Error> error;
    for (const auto& socket : services_.sockets) {
      const auto connected = connect_to(socket);
      if (connected) return act(socket);
      if (!error) error = connected.error();
    }
    return fail(CtlExit::no_service, "no acc-agent answers (" + error->what + ")");
  }

  static int post(const std::string& socket, const std::string& target, const Json& body,
                  const std::string& done) {
    const auto answer = ask_service(
        socket, {.method = "POST", .target = target, .body = body.empty() ? "" : to_line(body)});
    if (!answer) return fail(answer.error());
    if (answer->status >= kHttpRedirect) return fail(*answer);
    tell(done);
    return code(CtlExit::done);
  }

  // ---- looking ----

  int ps() {
    const auto now = now_ms();
    auto all = find_jobs(services_, now, at());
    if (!at().empty() && all.answered.empty() && all.error) return fail(*all.error);
    if (at().empty()) {
      const auto launches = ask_launches(agent::read_records());
      all.jobs = without_parts(std::move(all.jobs), launches);
      for (const auto& launch : launches) all.jobs.push_back(row_of(launch));
    }
    if (services_.is_named && all.answered.empty() && all.error) return fail(*all.error);
    if (wants_json()) return print(jobs_json(all.jobs));
    if (all.answered.empty() && all.jobs.empty())
      tell("no acc-agent answers, and no acc-launch of yours runs here");
    return print(jobs_table(all.jobs, now, terminal_width()));
  }

  int status(const JobRow& job) {
    std::string text;
    Json live;
    if (job.is_of_service) {
      const auto answer = ask_service(job.socket, {.target = job.at + "/v1/jobs/" + job.id});
      if (!answer) return fail(answer.error());
      if (answer->status != kHttpOk) return fail(*answer);
      const auto shown = parse_json(answer->body);
      if (shown.is_object() && shown.contains("live")) live = shown["live"];
      text = answer->body;
    } else {
      const auto answer = ask_agent(job.socket, R"({"do":"status"})");
      if (!answer) return fail(answer.error());
      live = parse_json(*answer);
      auto shown = parse_json(jobs_json({job}))["jobs"][0];
      shown["live"] = live;
      text = to_line(shown);
    }
    if (wants_json()) return print(text);
    return print(job_text(job, live, now_ms(), terminal_width()));
  }

  int node() {
    std::vector<std::vector<std::string>> rows{node_heading()};
    auto list = Json::array();
    std::optional<Error> error;
    for (const auto& socket : services_.sockets) {
      const auto answer = ask_service(socket, {.target = at() + "/v1/node"});
      if (!answer) {
        if (!error) error = answer.error();
        continue;
      }
      if (answer->status != kHttpOk) return fail(*answer);
      const auto node = parse_json(answer->body);
      rows.push_back(node_row(text_of(node, "name"), node));
      list.push_back(node);
    }
    if (list.empty())
      return fail(CtlExit::no_service, "no acc-agent answers (" + error->what + ")");
    if (!wants_json()) return print(table_text(rows, terminal_width()));
    return print(to_line(list[0]));
  }

  /// All of the cluster.
  int nodes() {
    return at_service([&](const std::string& socket) {
      const auto answer = ask_service(socket, {.target = "/v1/nodes"});
      if (!answer) return fail(answer.error());
      if (answer->status != kHttpOk) return fail(*answer);
      if (wants_json()) return print(answer->body);
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
      return print(table_text(rows, terminal_width()));
    });
  }

  static std::vector<std::string> node_heading() {
    return {"NODE", "SLOTS", "FREE", "GPUS", "FREE", "JOBS", "WAITING", "VERSION", "DRAINED"};
  }

  static std::vector<std::string> node_row(const std::string& name, const Json& node) {
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

  int drain() {
    const auto node = command_.operands.empty() ? std::string{} : command_.operands[0];
    const bool drains = command_.verb == "drain";
    return at_service([&](const std::string& socket) {
      const auto body = drains ? Json{{"reason", command_.value("--reason")}} : Json::object();
      return post(socket, node_prefix(node) + "/v1/node/" + command_.verb, body,
                  (node.empty() ? "this node" : printable(node, 200)) +
                      (drains ? " takes no more jobs" : " takes jobs again"));
    });
  }

  // ---- jobs on several nodes ----

  int of_launch(const agent::LaunchRecord& record, int signo) {
    const auto asked = ask_launches({record});
    if (asked.empty())
      return fail(CtlExit::no_such_job, record.id + " is gone from all of its nodes");
    const auto& launch = asked.front();
    const auto& verb = command_.verb;
    if (verb == "status") {
      if (wants_json()) return print(to_line(launch_json(launch)));
      return print(launch_text(launch, now_ms(), terminal_width()));
    }
    for (const auto& one : launch.parts) {
      if (!one.job) tell(one.part.host + ": " + (one.why.empty() ? "the job is gone" : one.why));
    }
    if (verb == "attach" || (verb == "logs" && command_.has("--follow")))
      return follow_launch(launch);
    if (verb == "logs") {
      const auto query = this->query();
      if (!query) return code(CtlExit::usage);
      int worst = code(CtlExit::done);
      for (const auto& one : launch.parts) {
        if (one.job) worst = std::max(worst, whole_output(*one.job, *query));
      }
      return worst;
    }
    if (verb == "stacks") {
      int worst = code(CtlExit::done);
      for (const auto& one : launch.parts) {
        if (one.job && !is_over(one.job->state)) worst = std::max(worst, stacks(*one.job));
      }
      return worst;
    }
    if (verb == "rm") return remove_launch(launch);
    return steer_launch(launch, signo);
  }

  /// Its agents pass on to all nodes what one of them hears. A launch that stops already is asked
  /// on all: the first may not hear.
  int steer_launch(const LaunchState& launch, int signo) {
    const bool to_all = command_.verb == "stop" && row_of(launch).state == "stopping";
    int worst = code(CtlExit::refused);
    for (const auto& one : launch.parts) {
      if (!one.job || is_over(one.job->state)) continue;
      worst = steer(*one.job, signo);
      if (worst == code(CtlExit::done) && !to_all) return worst;
    }
    if (worst == code(CtlExit::refused)) tell("nothing of " + launch.record.id + " runs");
    return worst;
  }

  int remove_launch(const LaunchState& launch) {
    for (const auto& one : launch.parts) {
      if (one.job && !is_over(one.job->state))
        return fail(CtlExit::refused, launch.record.id + " hasn't ended: stop it first");
    }
    int worst = code(CtlExit::done);
    bool is_known = true;
    for (const auto& one : launch.parts) {
      is_known = is_known && (one.job || one.why.empty());
      if (one.job) worst = std::max(worst, remove(*one.job));
    }
    if (worst == code(CtlExit::done) && is_known) agent::remove_record(launch.record.id);
    return worst;
  }

  /// As acc-launch --hosts follows it, through the same transports.
  int follow_launch(const LaunchState& launch) {
    const bool attaches = command_.verb == "attach";
    agent::ClusterLaunch wish;
    wish.id = launch.record.id;
    wish.socket = launch.record.socket;
    wish.is_ssh = wish.sends_secret = wish.is_recorded = false;
    wish.uses_daemons = true;
    wish.transport = "acc-ctl bridge";
    wish.leaves_at = attaches ? 2 : 1;
    for (const auto& one : launch.parts) {
      if (!one.job) continue;
      std::vector<std::string> words{own_path(), "bridge", "--socket=" + wish.socket,
                                     "--job=" + one.job->id};
      if (one.part.node.empty()) words.emplace_back("--here");
      if (attaches && !command_.has("--all")) words.emplace_back("--new");
      words.push_back(one.part.node.empty() ? one.part.host : one.part.node);
      wish.hosts.push_back({one.part.host, std::move(words), one.part.node});
    }
    if (wish.hosts.empty()) return fail(CtlExit::no_such_job, "no node has a job of it");
    return agent::run_on_hosts(wish, agent::GuardianLink{});
  }

  static std::string own_path() {
    std::error_code failed;
    const auto path = std::filesystem::read_symlink("/proc/self/exe", failed);
    return failed ? "acc-ctl" : path.string();
  }

  [[nodiscard]] bool show_event(const Json& event) const {
    if (wants_json()) return write_out(STDOUT_FILENO, to_line(event), nullptr);
    const std::string line = time_words(number_of(event, "time_ms")) + "  " +
                             printable(text_of(event, "job"), 80) + "  " +
                             printable(text_of(event, "kind"), 40) + "  " +
                             printable(text_of(event, "text"), 400) + "\n";
    return write_out(STDOUT_FILENO, line, nullptr);
  }

  int events() {
    return at_service([&](const std::string& socket) {
      if (command_.has("--follow")) {
        const OnEvent show = [&](const std::string& data) { return show_event(parse_json(data)); };
        return code_of(follow_events(socket, show), {});
      }
      const auto answer = ask_service(socket, {.target = "/v1/events"});
      if (!answer) return fail(answer.error());
      if (answer->status != kHttpOk) return fail(*answer);
      const auto all = parse_json(answer->body);
      if (!all.is_object() || !all.contains("events") || !all["events"].is_array())
        return fail(CtlExit::failed, "this is no list of events");
      for (const auto& event : all["events"]) {
        if (!show_event(event)) break;
      }
      return code(CtlExit::done);
    });
  }

  // ---- output ----

  /// Nothing: --since can't be read.
  [[nodiscard]] std::optional<std::string> query() const {
    std::string query;
    if (command_.has("--rank")) query += "&rank=" + command_.value("--rank");
    if (command_.has("--stdout")) query += "&stream=stdout";
    if (command_.has("--stderr")) query += "&stream=stderr";
    auto since = command_.has("--since") ? parse_since(command_.value("--since"), now_ms())
                                         : Result<std::int64_t>{0};
    if (!since) {
      tell(since.error().what);
      return std::nullopt;
    }
    const bool is_from_now = command_.verb == "attach" && !command_.has("--all");
    if (is_from_now) since = now_ms();
    if (*since > 0) query += "&since=" + std::to_string(*since);
    return query;
  }

  static bool is_ours(const JobRow& job) {
    const auto* user = ::getpwuid(::geteuid());
    return job.user == (user != nullptr ? user->pw_name : std::to_string(::geteuid()));
  }

  int output(const JobRow& job) {
    if (!job.is_of_service) return fail(CtlExit::refused, where_output_is(job));
    const auto query = this->query();
    if (!query) return code(CtlExit::usage);
    const bool attaches = command_.verb == "attach";
    if (!attaches && !command_.has("--follow")) return whole_output(job, *query);
    const auto on_interrupt = attaches ? OnInterrupt::stop_then_leave : OnInterrupt::leave;
    const auto end = follow_output(job, {*query, on_interrupt, !is_ours(job)});
    if (!attaches && end.how == Followed::How::job_ended) return code(CtlExit::done);
    return code_of(end, attaches ? job.id : std::string{});
  }

  static std::string where_output_is(const JobRow& job) {
    const auto answer = ask_agent(job.socket, R"({"do":"status"})");
    const auto folder = answer ? text_of(parse_json(*answer), "log_folder") : std::string{};
    return job.id + " is a plain acc-launch: its output goes to where it was started" +
           (folder.empty() ? "; --log_dir would keep it in files"
                           : ", and to the files in " + printable(folder, 400));
  }

  int whole_output(const JobRow& job, const std::string& query) {
    for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
      const bool is_error = fd == STDERR_FILENO;
      if (command_.has(is_error ? "--stdout" : "--stderr")) continue;
      const bool is_named = command_.has("--stdout") || command_.has("--stderr");
      const std::string stream = is_named ? "" : is_error ? "&stream=stderr" : "&stream=stdout";
      auto exchange = Exchange::open(
          job.socket, {.target = job.at + "/v1/jobs/" + job.id + "/logs?follow=0" + query + stream});
      if (!exchange) return fail(exchange.error());
      std::string piece;
      std::string body;
      for (;;) {
        const auto arrived = exchange->next(piece, clock_now() + kAnswerPatience, nullptr);
        if (arrived == Arrived::end) break;
        if (arrived != Arrived::data)
          return fail(CtlExit::failed, "acc-agent stopped in the middle of the output");
        if (exchange->status() != kHttpOk) {
          body += piece;
        } else if (!write_out(fd, shown(job, fd, piece), nullptr)) {
          return code(CtlExit::done);
        }
      }
      if (exchange->status() != kHttpOk) return fail(Answer{exchange->status(), body});
    }
    return code(CtlExit::done);
  }

  static std::string shown(const JobRow& job, int fd, const std::string& text) {
    return is_ours(job) || ::isatty(fd) != 1 ? text : terminal_safe(text);
  }

  /// `id`: of the job that goes on when we leave; empty: that isn't said.
  int code_of(const Followed& end, const std::string& id) {
    switch (end.how) {
      case Followed::How::job_ended:
        if (end.exit_code) return *end.exit_code;
        tell("the job is " + (end.state.empty() ? "gone" : printable(end.state, 40)) +
             (end.reason.empty() ? "" : ": " + printable(end.reason, 400)));
        return code(CtlExit::failed);
      case Followed::How::interrupted:
        if (!id.empty()) tell("left " + id + " alone: acc-ctl attach " + id);
        return kInterrupted;
      case Followed::How::output_closed:
        return code(CtlExit::done);
      case Followed::How::lost:
        break;
    }
    return fail(CtlExit::no_service, end.reason);
  }

  // ---- steering ----

  int submit() {
    const auto planned = plan_words(command_.words);
    if (planned.refused) return *planned.refused;
    const auto body = submission(command_, planned);
    if (!body) return fail(body.error());
    return at_service([&](const std::string& socket) {
      // From here on a Ctrl-C is for the job: it waits until we follow it.
      std::optional<Interrupts> held;
      if (!command_.has("--detach")) held.emplace();
      const auto answer =
          ask_service(socket, {.method = "POST", .target = "/v1/jobs", .body = *body});
      if (!answer) return fail(answer.error());
      if (answer->status >= kHttpRedirect) return fail(*answer);
      JobRow job;
      job.id = text_of(parse_json(answer->body), "id");
      job.socket = socket;
      if (job.id.empty()) return fail(CtlExit::failed, "acc-agent names no id of the job");
      if (wants_json()) print(answer->body);
      if (command_.has("--detach")) return wants_json() ? 0 : print(printable(job.id) + "\n");
      return code_of(follow_output(job, {"", OnInterrupt::stop_then_leave, false}), job.id);
    });
  }

  int remove(const JobRow& job) {
    if (!job.is_of_service)
      return fail(CtlExit::refused, job.id + " is a plain acc-launch, and nothing stays of it");
    const auto answer =
        ask_service(job.socket, {.method = "DELETE", .target = job.at + "/v1/jobs/" + job.id});
    if (!answer) return fail(answer.error());
    return answer->status < kHttpRedirect ? code(CtlExit::done) : fail(*answer);
  }

  int stacks(const JobRow& job) {
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
    return print(::isatty(STDOUT_FILENO) == 1 ? terminal_safe(text) : text);
  }

  int steer(const JobRow& job, int signo) {
    auto body = Json::object();
    const auto& verb = command_.verb;
    if (verb == "stop" && command_.has("--grace"))
      body["grace_s"] = parse_number<unsigned>(command_.value("--grace")).value_or(0);
    if (verb == "signal") body["signal"] = signal_name(signo);
    const std::string done = verb == "signal" ? "passed " + signal_name(signo) + " on to " + job.id
                                              : "asked " + job.id + " to " + verb;
    if (job.is_of_service) return post(job.socket, job.at + "/v1/jobs/" + job.id + "/" + verb, body, done);
    body["do"] = verb;
    auto line = to_line(body);
    line.pop_back();
    const auto answer = ask_agent(job.socket, line);
    if (!answer) return fail(answer.error());
    const auto why = error_of(*answer);
    if (why.empty()) {
      tell(done);
      return code(CtlExit::done);
    }
    const bool is_usage = text_of(parse_json(*answer), "code") == "bad_request";
    return fail(is_usage ? CtlExit::usage : CtlExit::refused, job.id + ": " + why);
  }

  const Command& command_;
  Services services_;
};

}  // namespace

int carry_out(const Command& command) { return Ctl{command}.run(); }

}  // namespace acc::ctl
