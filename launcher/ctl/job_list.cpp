#include "launcher/ctl/job_list.hpp"

#include "common/json_bounds.hpp"
#include "common/json_bytes.hpp"
#include "common/text.hpp"
#include "launcher/cli.hpp"
#include "launcher/ctl/http_response.hpp"
#include "launcher/ctl/text_table.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace acc::ctl {

using Json = nlohmann::json;

namespace {

/// Foreign text on a line of its own.
std::string safe(const std::string& text) { return printable(text, 400); }

std::optional<int> code_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_integer()) return std::nullopt;
  return static_cast<int>(found->get<std::int64_t>());
}

std::vector<std::string> words_of(const Json& object, const char* key) {
  std::vector<std::string> words;
  const auto found = object.find(key);
  if (found == object.end() || !found->is_array()) return words;
  for (const auto& word : *found) {
    if (word.is_string()) words.push_back(bytes_of(word.get<std::string>()));
  }
  return words;
}

JobRow row_of(const Json& job, const std::string& socket) {
  JobRow row;
  row.id = text_of(job, "id");
  row.name = text_of(job, "name");
  row.user = text_of(job, "user");
  row.state = text_of(job, "state");
  row.exit_code = code_of(job, "exit_code");
  row.slots = static_cast<std::uint64_t>(std::max<std::int64_t>(0, number_of(job, "slots")));
  row.started_ms = number_of(job, "started_ms");
  row.ended_ms = number_of(job, "ended_ms");
  row.reason = text_of(job, "reason");
  row.words = words_of(job, "words");
  row.program = text_of(job, "program");
  row.socket = socket;
  row.is_of_service = true;
  return row;
}

/// An agent's own words for what the six states of a job mean.
std::string state_of_agent(const std::string& state) {
  if (state == "starting" || state == "waiting for nodes") return "waiting";
  return state == "stopping" ? "stopping" : "running";
}

/// "/run/user/1000/acc/jobs/train.77.sock" is of "train.77".
std::string id_of_socket(const std::string& socket) {
  constexpr std::string_view kEnd = ".sock";
  auto id = socket.substr(socket.rfind('/') + 1);
  if (id.ends_with(kEnd)) id.resize(id.size() - kEnd.size());
  return id;
}

std::string since_words(std::int64_t then_ms, std::int64_t now_ms) {
  if (then_ms <= 0) return "-";
  return span_words(static_cast<double>(now_ms - then_ms) / 1000) + " ago";
}

std::string exit_words(const Json& worker) {
  const auto signal = text_of(worker, "signal");
  if (!signal.empty()) return signal;
  const auto code = code_of(worker, "exit_code");
  return code ? std::to_string(*code) : "-";
}

/// Its step, steps per second and last heartbeat, or the section that it is in.
std::vector<std::string> step_words(const Json& worker) {
  if (!worker.contains("step") || !worker["step"].is_number()) return {"-", "-", "-"};
  // Of one that has exited they would only grow old.
  if (text_of(worker, "state") == "exited")
    return {std::to_string(number_of(worker, "step")), "-", "-"};
  const bool has_rate =
      worker.contains("steps_per_second") && worker["steps_per_second"].is_number();
  std::array<char, 32> rate{"-"};
  if (has_rate)
    std::snprintf(rate.data(), rate.size(), "%.3g", real_of(worker, "steps_per_second"));
  const auto section = text_of(worker, "section");
  return {std::to_string(number_of(worker, "step")), rate.data(),
          section.empty() ? span_words(real_of(worker, "seconds_since_heartbeat")) + " ago"
                          : "in " + printable(section, 56)};
}

std::string ranks_table(const Json& live, std::size_t width) {
  const auto workers = live.find("workers");
  if (workers == live.end() || !workers->is_array() || workers->empty()) return {};
  std::vector<std::vector<std::string>> rows{
      {"RANK", "LOCAL", "PID", "STATE", "EXIT", "FOR", "MEMORY", "CPU"}};
  // Only of programs with heartbeats.
  const bool has_steps = std::ranges::any_of(*workers, [](const Json& worker) {
    return worker.is_object() && worker.contains("step") && worker["step"].is_number();
  });
  if (has_steps) rows[0].insert(rows[0].end(), {"STEP", "STEPS/S", "HEARTBEAT"});
  for (const auto& worker : *workers) {
    if (!worker.is_object()) continue;
    const bool is_measured = worker.contains("rss_bytes") && worker["rss_bytes"].is_number();
    const auto bytes = std::max<std::int64_t>(0, number_of(worker, "rss_bytes"));
    rows.push_back({std::to_string(number_of(worker, "rank")),
                    std::to_string(number_of(worker, "local_rank")),
                    std::to_string(number_of(worker, "pid")), text_of(worker, "state"),
                    exit_words(worker), span_words(real_of(worker, "seconds")),
                    is_measured ? size_words(static_cast<std::uint64_t>(bytes)) : "-",
                    is_measured ? span_words(real_of(worker, "cpu_s")) : "-"});
    if (has_steps) {
      for (auto& words : step_words(worker)) rows.back().push_back(std::move(words));
    }
  }
  return table_text(rows, width);
}

std::string restart_figures(const Json& live) {
  const auto used = number_of(live, "restarts_used");
  const auto all = number_of(live, "restarts");
  return "restarts " + std::to_string(used) + " of " +
         std::to_string(number_of(live, "max_restarts")) +
         (all > used ? " (" + std::to_string(all) + " in all)" : "");
}

std::string loss_lines(const Json& live) {
  std::string out;
  for (const auto& loss : list_of(live, "losses")) {
    const auto lines =
        static_cast<std::uint64_t>(std::max<std::int64_t>(0, number_of(loss, "lines")));
    out += "output lost: " + safe(text_of(loss, "where")) + ", " + plural(lines, "line") + " so far" +
           (has_flag(loss, "goes_on") ? ", and it takes none now: " : ": ") +
           safe(text_of(loss, "why")) + "\n";
  }
  return out;
}

std::string live_lines(const Json& live) {
  std::string out = "round " + std::to_string(number_of(live, "round")) + ", " +
                    restart_figures(live) + ", world size " +
                    std::to_string(number_of(live, "world_size"));
  const auto nodes = number_of(live, "nodes");
  if (nodes > 1)
    out += ", node " + std::to_string(number_of(live, "node_rank")) + " of " +
           std::to_string(nodes) + " (" + safe(text_of(live, "node")) + ")";
  out += "\n";
  const auto reason = text_of(live, "restart_reason");
  if (!reason.empty()) out += "last restart: " + safe(reason) + "\n";
  const auto logs = text_of(live, "log_folder");
  if (!logs.empty()) out += "log files: " + safe(logs) + "\n";
  out += loss_lines(live);
  const auto table = live.find("node_table");
  if (table != live.end() && table->is_array()) {
    for (const auto& node : *table) {
      if (!node.is_object()) continue;
      out += "  " + safe(text_of(node, "node")) + ": ranks from " +
             std::to_string(number_of(node, "first_rank")) + ", " +
             plural(static_cast<std::uint64_t>(std::max<std::int64_t>(0, number_of(node, "slots"))),
                    "worker") +
             "\n";
    }
  }
  return out;
}

}  // namespace

// ---- foreign JSON ----

Json parse_json(std::string_view text) {
  constexpr int kDeepest = kDeepestForeign + 8;  // a daemon's reply around a user's
  if (is_json_beyond(text, kDeepest)) return {};
  auto value = Json::parse(text, nullptr, false);
  if (value.is_discarded()) return {};
  return value;
}

std::string text_of(const Json& object, const char* key) {
  if (!object.is_object()) return {};
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string{};
}

std::int64_t number_of(const Json& object, const char* key) {
  if (!object.is_object()) return 0;
  const auto found = object.find(key);
  return found != object.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
}

bool has_flag(const Json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() && *found == true;
}

Json list_of(const Json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() && found->is_array() ? *found : Json::array();
}

double real_of(const Json& object, const char* key) {
  if (!object.is_object()) return 0;
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : 0;
}

std::string to_line(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string node_prefix(const std::string& node) {
  if (node.empty()) return {};
  std::string prefix = "/v1/nodes/";
  // The zone of an address: fe80::1%eth0.
  for (const char c : node) prefix += c == '%' ? "%25" : std::string(1, c);
  return prefix;
}

bool is_unanswered(unsigned status, const std::string& body) {
  const auto code = text_of(parse_json(body), "code");
  if (status == kHttpBadGateway) return code != "authentication_failed" && code != "wrong_node";
  return status == kHttpGatewayTimeout || code == "busy";
}

bool may_come_back(unsigned status) {
  return status >= kHttpBadGateway && status <= kHttpGatewayTimeout;
}

bool may_be_asked_again(unsigned status, const std::string& body) {
  const auto code = text_of(parse_json(body), "code");
  const bool is_said_no = code == "no_secret" || code == "unproven_node" || code == "wrong_node" ||
                          code == "authentication_failed";
  return !is_said_no && (may_come_back(status) || status == kHttpTooManyRequests);
}

std::string error_of(const std::string& body) {
  const auto answer = parse_json(body);
  std::string text = safe(text_of(answer, "error"));
  if (!answer.is_object()) return text;
  const auto complaints = words_of(answer, "complaints");
  // The error is the complaints in one line: each is told once, several in lines of their own.
  if (complaints.size() == 1 && safe(complaints[0]) == text) return text;
  if (!complaints.empty() && safe(join(complaints, "; ")) == text)
    text = plural(complaints.size(), "thing") + " in the request can't be taken:";
  for (const auto& complaint : complaints) text += "\n  " + safe(complaint);
  return text;
}

// ---- lists ----

bool is_over(std::string_view state) {
  return state == "succeeded" || state == "failed" || state == "stopped";
}

std::optional<std::vector<JobRow>> jobs_of_service(const std::string& body,
                                                   const std::string& socket) {
  const auto answer = parse_json(body);
  if (!answer.is_object() || !answer.contains("jobs") || !answer["jobs"].is_array())
    return std::nullopt;
  std::vector<JobRow> rows;
  for (const auto& job : answer["jobs"]) {
    if (job.is_object() && !text_of(job, "id").empty()) rows.push_back(row_of(job, socket));
  }
  return rows;
}

std::optional<JobRow> job_of_service(const Json& job, const std::string& socket) {
  if (!job.is_object() || text_of(job, "id").empty()) return std::nullopt;
  return row_of(job, socket);
}

std::optional<JobRow> job_of_agent(const std::string& status, const std::string& socket,
                                   const std::string& user, std::int64_t now_ms) {
  const auto live = parse_json(status);
  if (!live.is_object() || text_of(live, "state").empty()) return std::nullopt;
  JobRow row;
  row.id = id_of_socket(socket);
  row.name = text_of(live, "job");
  row.user = user;
  row.state = state_of_agent(text_of(live, "state"));
  if (live.contains("workers") && live["workers"].is_array()) row.slots = live["workers"].size();
  constexpr double kLongest = 1e9;
  const double seconds = std::clamp(real_of(live, "seconds"), 0.0, kLongest);
  row.started_ms = now_ms - static_cast<std::int64_t>(seconds * 1000);
  row.words = words_of(live, "command");
  row.socket = socket;
  return row;
}

JobRow silent_job(const std::string& socket, const std::string& user) {
  JobRow row;
  row.id = id_of_socket(socket);
  row.name = row.id.substr(0, row.id.rfind('.'));
  row.user = user;
  row.state = "running";
  row.reason = "no answer: suspended?";
  row.socket = socket;
  return row;
}

Result<JobRow> find_job(const std::vector<JobRow>& jobs, std::string_view wanted,
                        std::string_view user) {
  const auto pick = [&](auto is_meant) {
    std::vector<const JobRow*> found;
    for (const auto& job : jobs) {
      if (is_meant(job)) found.push_back(&job);
    }
    return found;
  };
  auto found = pick([&](const JobRow& job) { return job.id == wanted; });
  const auto pick_named = [&](auto is_meant) {
    if (found.empty())
      found = pick([&](const JobRow& job) { return job.name == wanted && is_meant(job); });
  };
  pick_named([&](const JobRow& job) { return job.user == user && !is_over(job.state); });
  pick_named([&](const JobRow& job) { return job.user == user || !is_over(job.state); });
  pick_named([](const JobRow&) { return true; });
  if (found.empty() && !wanted.empty())
    found = pick([&](const JobRow& job) { return job.id.starts_with(wanted); });
  if (found.empty())
    return Error{Errc::not_found, "there is no job " + in_quotes(wanted, 80) + " (acc-ctl ps)"};
  if (found.size() == 1) return *found.front();
  constexpr std::size_t kShown = 6;
  std::string ids;
  for (std::size_t i = 0; i < std::min(found.size(), kShown); ++i)
    ids += (ids.empty() ? "" : ", ") + safe(found[i]->id) +
           (user.empty() || found[i]->user == user ? "" : " of " + safe(found[i]->user));
  if (found.size() > kShown) ids += " …";
  return Error{Errc::bad_usage, in_quotes(wanted, 80) + " may mean several jobs: " + ids};
}

std::string jobs_json(const std::vector<JobRow>& jobs) {
  auto list = nlohmann::ordered_json::array();
  for (const auto& job : jobs) {
    nlohmann::ordered_json one{{"id", job.id},
                               {"name", job.name},
                               {"user", job.user},
                               {"state", job.state},
                               {"exit_code", nullptr},
                               {"reason", job.reason},
                               {"slots", job.slots},
                               {"started_ms", job.started_ms},
                               {"ended_ms", job.ended_ms},
                               {"words", job.words},
                               {"source", job.is_of_service ? "acc-agent" : "acc-launch"},
                               {"socket", job.socket}};
    if (job.exit_code) one["exit_code"] = *job.exit_code;
    list.push_back(std::move(one));
  }
  return nlohmann::ordered_json{{"jobs", std::move(list)}}.dump(
             -1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
         "\n";
}

std::string command_text(const JobRow& job) {
  if (!job.program.empty()) return job.program;
  if (job.words.empty()) return job.reason;
  if (job.is_of_service) {
    const auto line = launcher::parse_command_line(job.words);
    // A job of a config file alone names no script.
    if (!line.script || !line.script_is_certain) return join(job.words, " ");
    return *line.script + (line.script_args.empty() ? "" : " " + join(line.script_args, " "));
  }
  const auto program = job.words[0].substr(job.words[0].rfind('/') + 1);
  const bool is_interpreter = program.starts_with("python") || program.starts_with("pypy");
  const auto script = std::ranges::find_if(
      job.words, [&](const auto& word) { return &word != job.words.data() && word[0] != '-'; });
  if (!is_interpreter || script == job.words.end()) return join(job.words, " ");
  return join({script, job.words.end()}, " ");
}

std::string jobs_table(const std::vector<JobRow>& jobs, std::int64_t now_ms, std::size_t width) {
  std::vector<std::vector<std::string>> rows{
      {"ID", "STATE", "USER", "SLOTS", "STARTED", "EXIT", "COMMAND"}};
  for (const auto& job : jobs)
    rows.push_back({job.id, job.state, job.user, std::to_string(job.slots),
                    since_words(job.started_ms, now_ms),
                    job.exit_code ? std::to_string(*job.exit_code) : "-", command_text(job)});
  return table_text(rows, width);
}

std::string failure_text(const Json& report) {
  constexpr std::size_t kLongest = 1000;
  if (!report.is_object()) return {};
  const auto failure = report.find("first_failure");
  if (failure != report.end() && failure->is_object()) {
    const auto cause = text_of(*failure, "cause");
    const auto rank = code_of(*failure, "rank");
    if (cause.empty() || !rank) return {};
    const auto host = text_of(*failure, "host");
    const auto who = "rank " + std::to_string(*rank) + (host.empty() ? "" : " on " + host);
    return printable(who + " " + cause, kLongest) + "\n";
  }
  for (const auto* key : {"start_failure", "reason"})
    if (const auto words = text_of(report, key); !words.empty())
      return printable(words, kLongest) + "\n";
  return {};
}

std::string job_text(const JobRow& job, const Json& live, std::int64_t now_ms, std::size_t width) {
  std::string out = safe(job.id) + ": " + safe(job.state);
  const bool is_over_now = is_over(job.state);
  if (job.exit_code) out += ", exit code " + std::to_string(*job.exit_code);
  if (!job.reason.empty()) out += " (" + safe(job.reason) + ")";
  if (is_over_now && job.ended_ms > 0) out += ", " + since_words(job.ended_ms, now_ms);
  if (!is_over_now && job.started_ms > 0)
    out += ", since " + span_words(static_cast<double>(now_ms - job.started_ms) / 1000);
  out += ", " + plural(job.slots, "slot") + ", user " + safe(job.user) + "\n";
  out += (job.is_of_service ? "acc-launch " : "") + safe(join(job.words, " ")) + "\n";
  if (!live.is_object() || !live.contains("workers")) return out;
  return out + live_lines(live) + ranks_table(live, width);
}

}  // namespace acc::ctl
