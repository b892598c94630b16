#include "agent/error_lines.hpp"
#include "agent/last_lines.hpp"
#include "agent/report.hpp"
#include "agent/report_keys.hpp"
#include "common/text.hpp"

#include <nlohmann/json.hpp>

#include <ctime>
#include <utility>

namespace acc::agent {

namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson text_or_null(const std::string& text) {
  if (text.empty()) return nullptr;
  return text;
}

OrderedJson seconds_json(std::chrono::nanoseconds time) {
  return static_cast<double>(std::chrono::duration_cast<Millis>(time).count()) / 1000;
}

OrderedJson loss_json(const Losses& loss) {
  return {{"where", loss.where}, {"why", loss.why}, {"bytes", loss.bytes}, {"lines", loss.lines}};
}

// Worker output may be no UTF-8; a report must never fail on it.
std::string text_of(const OrderedJson& json) {
  return json.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + '\n';
}

OrderedJson status_json(const ExitStatus& status) {
  if (const auto* exited = std::get_if<Exited>(&status)) return {{"code", exited->code}};
  const auto& killed = std::get<Signaled>(status);
  return {{"signal", signal_name(killed.signo)},
          {"signo", killed.signo},
          {"core_dumped", killed.core_dumped}};
}

OrderedJson worker_json(const WorkerRecord& w) {
  OrderedJson json{{"rank", w.rank.value()}, {"local_rank", w.local_rank.value()}, {"pid", w.pid}};
  json["exit"] = w.status ? status_json(*w.status) : OrderedJson{};
  json["seconds"] = nullptr;
  if (w.status && w.started != Instant{}) json["seconds"] = seconds_json(w.ended - w.started);
  json["stopped_by_us"] = w.asked_to_end;
  json["peak_rss_bytes"] = w.peak_rss_bytes != 0 ? OrderedJson(w.peak_rss_bytes) : OrderedJson{};
  return json;
}

OrderedJson error_json(const FailureReport& f) {
  if (f.error) return OrderedJson{{"message", f.error->message}, {"traceback", f.error->traceback}};
  if (f.unread_error.empty()) return {};
  return OrderedJson{{"message", "(not known: " + f.unread_error + ")"}, {"traceback", ""}};
}

OrderedJson failure_json(const FailureReport& f, const std::string& host) {
  OrderedJson json = worker_json(f.worker);
  json["host"] = host;
  json["cause"] = f.cause;
  json["attempt"] = f.round;
  json["seconds_into_attempt"] = static_cast<double>(f.into_round.count()) / 1000;
  json["time"] = iso_utc(f.when);
  json["error"] = error_json(f);
  json["hint"] = text_or_null(f.hint);
  json["error_lines"] = f.error ? std::vector<std::string>{} : f.error_lines;
  json["error_age"] = f.error ? 0 : f.error_age;
  json["last_lines"] = last_lines(f.tail, 100);
  json["other_errors"] = f.other_errors;
  json["log"] = text_or_null(f.log_path);
  json["stacks"] = text_or_null(f.stacks_path);
  json["no_restart"] = text_or_null(f.no_restart);
  json["node_lost"] = false;
  return json;
}

OrderedJson elsewhere_json(const FailureElsewhere& there) {
  OrderedJson json = failure_json(there.failure, there.host);
  json["peak_rss_bytes"] = nullptr;
  json["node_lost"] = there.is_node;
  if (there.failure.worker.pid == 0) json["pid"] = nullptr;
  if (there.is_node) json["local_rank"] = nullptr;
  return json;
}

}  // namespace

std::string iso_utc(std::chrono::system_clock::time_point when) {
  const auto millis = std::chrono::duration_cast<Millis>(when.time_since_epoch()).count();
  const std::time_t seconds = static_cast<std::time_t>(millis / 1000);
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  char text[40];
  const auto n = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
  std::snprintf(text + n, sizeof text - n, ".%03dZ", static_cast<int>(millis % 1000));
  return text;
}

std::string to_json(const JobReport& r) {
  OrderedJson json{{"format", kReportFormat},
                   {"job", r.job_id},
                   {"host", r.host},
                   {"pid", r.pid},
                   {"command", r.command},
                   {"world_size", r.world_size},
                   {"verdict", to_string(r.outcome)},
                   {"exit_code", r.exit_code},
                   {"restarts", r.restarts},
                   {"restarts_used", r.restarts_used},
                   {"max_restarts", r.max_restarts},
                   {"failed_attempts", r.failed_attempts},
                   {"restarted_after", text_or_null(r.restarted_after)},
                   {"seconds", static_cast<double>(r.duration.count()) / 1000}};
  json["stop_signal"] = text_or_null(r.stop_signal != 0 ? signal_name(r.stop_signal) : "");
  const auto* decisive = decisive_failure(r);
  json["first_failure"] = decisive != nullptr ? failure_json(*decisive, r.host) : OrderedJson{};
  if (r.elsewhere) json["first_failure"] = elsewhere_json(*r.elsewhere);
  json["finished_elsewhere"] = r.finished_elsewhere;
  json["reason"] = text_or_null(r.reason);
  json["failures"] = OrderedJson::array();
  for (const auto& f : r.failures) json["failures"].push_back(failure_json(f, r.host));
  json["start_failure"] = text_or_null(r.start_failure_words);
  json["workers"] = OrderedJson::array();
  for (const auto& w : r.workers) json["workers"].push_back(worker_json(w));
  json["left_over"] = r.left_over;
  json["left_over_count"] = r.left_over_count;
  json["unkillable"] = r.unkillable;
  json["losses"] = OrderedJson::array();
  for (const auto& loss : r.losses) json["losses"].push_back(loss_json(loss));
  json["log_folder"] = text_or_null(r.log_folder);
  const auto& g = r.goodput;
  json["goodput"] = {
      {"share", g.goodput()},
      {"seconds_waiting", seconds_json(g.waiting)},
      {"seconds_restarting", seconds_json(g.restarting)},
      {"seconds_lost_work", g.knows_checkpoints ? seconds_json(g.lost_work) : OrderedJson{}}};
  return text_of(json);
}

std::vector<Losses> losses_in(std::string_view text) {
  const auto json = OrderedJson::parse(text, nullptr, false);
  std::vector<Losses> all;
  if (!json.is_object() || !json.contains("losses")) return all;
  for (const auto& one : json["losses"]) {
    const bool is_loss = one.is_object() && one.contains("where") && one["where"].is_string() &&
                         one.contains("why") && one["why"].is_string();
    if (!is_loss) continue;
    Losses loss{one["where"].get<std::string>(), one["why"].get<std::string>()};
    for (const auto& [key, into] : {std::pair{"bytes", &loss.bytes}, {"lines", &loss.lines}}) {
      if (one.contains(key) && one[key].is_number_unsigned()) *into = one[key].get<std::uint64_t>();
    }
    all.push_back(std::move(loss));
  }
  return all;
}

std::optional<int> exit_code_in(std::string_view text) {
  const auto json = OrderedJson::parse(text, nullptr, false);
  const auto code = json.is_object() ? json.find("exit_code") : json.end();
  if (code == json.end() || !code->is_number_integer()) return std::nullopt;
  return code->get<int>();
}

std::optional<std::string> with_end(std::string_view text, const ReportEnd& end) {
  auto json = OrderedJson::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("exit_code")) return std::nullopt;
  json["verdict"] = end.verdict;
  json["exit_code"] = end.exit_code;
  json["stop_signal"] = text_or_null(end.stop_signal != 0 ? signal_name(end.stop_signal) : "");
  json["reason"] = text_or_null(end.reason);
  return text_of(json);
}

std::optional<std::string> with_losses(std::string_view text, const std::vector<Losses>& more) {
  auto json = OrderedJson::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("losses") || !json["losses"].is_array())
    return std::nullopt;
  for (const auto& loss : more) json["losses"].push_back(loss_json(loss));
  return text_of(json);
}

}  // namespace acc::agent
