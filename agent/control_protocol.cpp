#include "agent/control_protocol.hpp"

#include "common/json_bytes.hpp"
#include "common/passed_signals.hpp"
#include "common/text.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>

namespace acc::agent::control {

using Json = nlohmann::ordered_json;

namespace {

constexpr double kLongestGrace = 1e6;  // seconds; 11 days

Error bad(std::string what) { return {Errc::malformed, std::move(what)}; }

std::string line_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<Request> decode_stop(const Json& json) {
  const auto grace = json.find("grace_s");
  if (grace == json.end() || grace->is_null()) return Request{Stop{}};
  const double seconds = grace->is_number() ? grace->get<double>() : -1;
  if (!std::isfinite(seconds) || seconds < 0 || seconds > kLongestGrace)
    return bad("\"grace_s\" is a number of seconds from 0 to 1000000");
  return Request{Stop{Millis{std::llround(seconds * 1000)}}};
}

Result<Request> decode_signal(const Json& json) {
  const auto name = json.find("signal");
  if (name == json.end() || !name->is_string())
    return bad("\"signal\" is missing: " + passed_signal_names());
  const auto& text = name->get_ref<const std::string&>();
  const int signo = signal_number(text);
  if (!is_passed_on(signo))
    return bad(in_quotes(text, 32) + " isn't passed on to workers: give " + passed_signal_names());
  return Request{Signal{signo}};
}

// As in the report.
Json goodput_json(const GoodputFigures& g) {
  const auto seconds = [](Millis time) { return std::chrono::duration<double>(time).count(); };
  return {{"share", g.goodput()},
          {"seconds", seconds(g.total)},
          {"seconds_waiting", seconds(g.waiting)},
          {"seconds_restarting", seconds(g.restarting)},
          {"seconds_lost_work", g.knows_checkpoints ? Json(seconds(g.lost_work)) : Json{}}};
}

/// A flag that is missing is false; any other kind of value is, too.
bool has_flag(const Json& json, const char* name) {
  const auto flag = json.find(name);
  return flag != json.end() && flag->is_boolean() && flag->get<bool>();
}

Result<Request> decode_output(const Json& json) {
  Output wanted;
  const auto rank = json.find("local_rank");
  if (rank == json.end() || !rank->is_number_unsigned() || rank->get<std::uint64_t>() > UINT32_MAX)
    return bad("\"local_rank\" is missing: a worker's number on this node, from 0");
  wanted.local_rank = LocalRank{rank->get<std::uint32_t>()};
  const auto stream = json.find("stream");
  wanted.is_stderr = stream != json.end() && *stream == "stderr";
  if (stream != json.end() && *stream != "stdout" && *stream != "stderr")
    return bad("\"stream\" is stdout or stderr");
  const auto from = json.find("from");
  if (from != json.end() && !from->is_number_unsigned())
    return bad("\"from\" is an offset in bytes");
  if (from != json.end()) wanted.from = from->get<std::uint64_t>();
  return Request{wanted};
}

Json to_json(const WorkerView& worker) {
  const bool lives = !worker.status;
  const auto* killed = lives ? nullptr : std::get_if<Signaled>(&*worker.status);
  Json json{{"rank", worker.rank.value()},
            {"local_rank", worker.local_rank.value()},
            {"pid", worker.pid},
            {"state", worker.pid == 0 ? "starting"
                      : lives         ? "running"
                                      : "exited"},
            {"exit_code", nullptr},
            {"signal", nullptr},
            {"seconds", worker.seconds},
            {"rss_bytes", nullptr},
            {"cpu_s", nullptr},
            {"step", nullptr},
            {"steps_per_second", nullptr},
            {"seconds_since_heartbeat", nullptr},
            {"section", nullptr}};
  if (!lives) json["exit_code"] = shell_code(*worker.status);
  if (killed != nullptr) json["signal"] = signal_name(killed->signo);
  if (worker.usage) {
    json["rss_bytes"] = worker.usage->rss_bytes;
    json["cpu_s"] = worker.usage->cpu_s;
  }
  if (worker.progress) {
    json["step"] = worker.progress->step;
  }
  // One that has exited is neither slow nor silent.
  if (worker.progress && lives) {
    json["seconds_since_heartbeat"] = worker.progress->seconds_since_heartbeat;
    if (worker.progress->steps_per_second)
      json["steps_per_second"] = *worker.progress->steps_per_second;
    if (!worker.progress->section.empty()) json["section"] = worker.progress->section;
  }
  if (worker.last_line) json["last_line"] = *worker.last_line;
  if (!worker.gpus.empty()) json["gpus"] = worker.gpus;
  return json;
}

}  // namespace

Result<Request> decode(std::string_view line) {
  if (line.size() > kMaxRequest) return bad("a request has at most 4096 bytes");
  const auto json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object())
    return bad("a request is one line with a JSON object: {\"do\": \"status\"}");
  const auto wanted = json.find("do");
  const std::string word =
      wanted != json.end() && wanted->is_string() ? wanted->get<std::string>() : std::string{};
  if (word == "status")
    return Request{Status{has_flag(json, "last_lines"), has_flag(json, "gpus")}};
  if (word == "stop") return decode_stop(json);
  if (word == "signal") return decode_signal(json);
  if (word == "restart") return Request{Restart{}};
  if (word == "stacks") return Request{Stacks{}};
  if (word == "output") return decode_output(json);
  return bad((word.empty() ? "\"do\" is missing" : in_quotes(word, 32) + " is no request") +
             ": one of status, stop, signal, restart, stacks, output");
}

std::string done() { return "{\"ok\":true}\n"; }

std::string stacks_reply(std::string_view file, std::string_view text) {
  Json json{{"ok", true}, {"file", nullptr}, {"text", text}};
  if (!file.empty()) json["file"] = file;
  return line_of(json);
}

std::string output_reply(const OutputView& output) {
  return line_of(Json{{"ok", true},
                      {"round", output.round.value()},
                      {"from", output.from},
                      {"end", output.end},
                      {"captured", output.is_captured},
                      {"text", json_text_of(output.text)}});
}

std::string refusal(std::string_view code, std::string_view why) {
  return line_of(Json{{"error", why}, {"code", code}});
}

std::optional<ProcessUsage> usage_from_stat(std::string_view text, std::uint64_t page_bytes,
                                            std::uint64_t ticks_per_second) {
  // Fields after the name, which may hold anything but ends with the last ')': state is the third.
  const auto end_of_name = text.rfind(')');
  if (end_of_name == std::string_view::npos || ticks_per_second == 0) return std::nullopt;
  const auto fields = split(trim(text.substr(end_of_name + 1)), ' ');
  constexpr std::size_t kState = 3;
  const auto number = [&](std::size_t field) -> std::optional<std::uint64_t> {
    if (field - kState >= fields.size()) return std::nullopt;
    return parse_number<std::uint64_t>(fields[field - kState]);
  };
  const auto user = number(14);
  const auto system = number(15);
  const auto pages = number(24);
  if (!user || !system || !pages) return std::nullopt;
  const auto ticks = static_cast<double>(*user) + static_cast<double>(*system);
  return ProcessUsage{*pages * page_bytes, ticks / static_cast<double>(ticks_per_second)};
}

std::string_view state_of(const GroupState& group) {
  const bool ends_for_good = group.stop_signal != 0 || group.guardian_lost || group.orders.close ||
                             (group.orders.stop && group.orders.stop->for_good);
  switch (group.phase) {
    case Phase::running:
      return "running";
    case Phase::stopping:
    case Phase::killing:
      if (ends_for_good) return "stopping";
      if (group.restart_asked || group.orders.stop || group.lease_over) return "restarting";
      // Whether a restart follows a failure is decided when nothing is left running.
      return group.first_failure && group.restart.max_restarts > group.ledger.budget_used
                 ? "restarting"
                 : "stopping";
    case Phase::backing_off:
      return ends_for_good ? "stopping" : "restarting";
    case Phase::awaiting:
      return ends_for_good ? "stopping" : "waiting for nodes";
    case Phase::idle:
      if (ends_for_good) return "stopping";
      return group.coordinated && !group.starting ? "waiting for nodes" : "starting";
    case Phase::finished:
      break;
  }
  return "stopping";
}

std::string encode(const JobView& job) {
  Json json{{"job", job.name},
            {"id", job.id},
            {"state", job.state},
            {"round", job.round.value()},
            {"restarts", job.ledger.restarts},
            {"restarts_used", job.ledger.budget_used},
            {"max_restarts", job.max_restarts},
            {"restart_reason", job.restart_reason},
            {"world_size", job.world_size.value()},
            {"node", job.node},
            {"node_rank", job.node_rank.value()},
            {"nodes", job.nodes},
            {"guardian_pid", job.guardian},
            {"agent_pid", job.agent},
            {"log_folder", nullptr},
            {"seconds", job.seconds},
            {"command", job.command},
            {"goodput", goodput_json(job.goodput)},
            {"losses", Json::array()},
            {"workers", Json::array()}};
  for (const auto& lost : job.losses)
    json["losses"].push_back({{"where", lost.where},
                              {"why", lost.why},
                              {"bytes", lost.bytes},
                              {"lines", lost.lines},
                              {"goes_on", lost.goes_on}});
  if (!job.log_folder.empty()) json["log_folder"] = job.log_folder;
  for (const auto& worker : job.workers) json["workers"].push_back(to_json(worker));
  for (const auto& gpu : job.gpus) {
    json["gpus"].push_back({{"index", gpu.index},
                            {"percent", gpu.percent ? Json(*gpu.percent) : Json(nullptr)},
                            {"memory_used", gpu.memory_used},
                            {"memory_total", gpu.memory_total}});
  }
  if (!job.table.empty()) {
    auto& table = json["node_table"] = Json::array();
    for (const auto& node : job.table)
      table.push_back({{"node", node.name},
                       {"host", node.host},
                       {"first_rank", node.ranks.first.value()},
                       {"slots", node.ranks.count}});
  }
  return line_of(json);
}

std::string socket_name(std::string_view job, pid_t pid) {
  constexpr std::size_t kLongest = 48;
  std::string name;
  for (const char c : job.substr(0, kLongest)) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    name += plain || c == '-' || c == '_' || (c == '.' && !name.empty()) ? c : '_';
  }
  return (name.empty() ? "job" : name) + "." + std::to_string(pid) + ".sock";
}

}  // namespace acc::agent::control
