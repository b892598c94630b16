#include "agent/job_events.hpp"

#include "agent/event_keys.hpp"
#include "agent/last_lines.hpp"
#include "common/text.hpp"
#include "common/version.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <iterator>
#include <utility>

namespace acc::agent {

namespace {

using EventJson = nlohmann::ordered_json;

EventJson event_text(std::string_view text) {
  return text.empty() ? EventJson{} : EventJson(std::string{text});
}

double event_seconds(std::chrono::nanoseconds time) {
  return static_cast<double>(std::chrono::duration_cast<Millis>(time).count()) / 1e3;
}

void add_worker(EventJson& json, Round round, const WorkerRecord& worker) {
  json["round"] = round.value();
  json["rank"] = worker.rank.value();
  json["local_rank"] = worker.local_rank.value();
  json["pid"] = worker.pid;
}

}  // namespace

struct JobEvents::Line {
  EventJson json;
};

void JobEvents::open(std::function<void(std::string_view)> sink, std::string job,
                     std::function<std::string()> node) {
  sink_ = std::move(sink);
  job_ = std::move(job);
  node_ = std::move(node);
}

JobEvents::Line JobEvents::line(std::string_view event) {
  return {{{"v", kEventsVersion},
           {"seq", next_++},
           {"time", iso_utc(std::chrono::system_clock::now())},
           {"t", event_seconds(clock_now() - began_)},
           {"job", job_},
           {"node", node_()},
           {"event", event}}};
}

// Names and reasons may hold any bytes.
void JobEvents::put(const Line& line) {
  sink_(line.json.dump(-1, ' ', false, EventJson::error_handler_t::replace));
}

void JobEvents::job_started(const JobPlan& plan, pid_t guardian) {
  if (!sink_) return;
  auto event = line("job_started");
  event.json["version"] = version();
  event.json["pid"] = guardian;
  event.json["command"] = plan.command;
  event.json["workers"] = plan.local_world_size;
  event.json["world_size"] = plan.world_size.value();
  event.json["nodes_min"] = plan.cluster.nodes_min;
  event.json["nodes_max"] = plan.cluster.nodes_max;
  event.json["max_restarts"] = plan.restart.max_restarts;
  put(event);
}

void JobEvents::round_started(const RoundFacts& facts, const std::vector<WorkerRecord>& workers) {
  ++counts_.rounds;
  if (!sink_) return;
  auto event = line("round_started");
  event.json["round"] = facts.round.value();
  event.json["workers"] = workers.size();
  event.json["world_size"] = facts.world_size.value();
  event.json["nodes"] = facts.nodes;
  event.json["node_rank"] = facts.node_rank.value();
  event.json["restarts"] = facts.restarts;
  event.json["reason"] = event_text(facts.reason);
  put(event);
  for (const auto& worker : workers) {
    auto of_worker = line("worker_started");
    add_worker(of_worker.json, facts.round, worker);
    put(of_worker);
  }
}

void JobEvents::worker_ended(Round round, const WorkerRecord& worker) {
  if (!worker.status) return;
  if (worker.asked_to_end) {
    ++counts_.workers_stopped;
  } else {
    ++(is_success(*worker.status) ? counts_.workers_succeeded : counts_.workers_failed);
  }
  if (!sink_) return;
  auto event = line("worker_ended");
  add_worker(event.json, round, worker);
  const auto* exited = std::get_if<Exited>(&*worker.status);
  const auto* killed = std::get_if<Signaled>(&*worker.status);
  event.json["exit_code"] = exited != nullptr ? EventJson(exited->code) : EventJson{};
  event.json["signal"] = killed != nullptr ? EventJson(signal_name(killed->signo)) : EventJson{};
  event.json["seconds"] =
      event_seconds(worker.started == Instant{} ? Millis{0} : worker.ended - worker.started);
  event.json["stopped_by_us"] = worker.asked_to_end;
  event.json["peak_rss_bytes"] = worker.peak_rss_bytes;
  put(event);
}

void JobEvents::failed(const FailureReport& failure) {
  constexpr std::size_t kWidth = 200;
  ++counts_.failures;
  if (!sink_) return;
  auto event = line("failure");
  add_worker(event.json, Round{failure.round}, failure.worker);
  event.json["cause"] = failure.cause;
  event.json["out_of_memory"] = failure.out_of_memory;
  event.json["seconds_into_round"] = event_seconds(failure.into_round);
  event.json["log"] = event_text(failure.log_path);
  event.json["stacks"] = event_text(failure.stacks_path);
  event.json["error_lines"] = failure.error_lines;
  event.json["error_age"] = failure.error_age;
  event.json["last_lines"] = last_lines(failure.tail, kShownLines, kWidth);
  put(event);
}

void JobEvents::start_failed(Round round, const std::string& why) {
  ++counts_.start_failures;
  if (!sink_) return;
  auto event = line("start_failed");
  event.json["round"] = round.value();
  event.json["why"] = why;
  put(event);
}

void JobEvents::restarting(std::uint32_t restarts, std::uint32_t max_restarts, Millis delay,
                           const std::string& reason) {
  ++counts_.restarts;
  if (!sink_) return;
  auto event = line("restart");
  event.json["restarts"] = restarts;
  event.json["max_restarts"] = max_restarts;
  event.json["delay_s"] = event_seconds(delay);
  event.json["reason"] = reason;
  put(event);
}

void JobEvents::progress(Round round, const Progress& progress) {
  if (!sink_) return;
  auto event = line("progress");
  event.json["round"] = round.value();
  event.json["rank"] = progress.rank.value();
  event.json["step"] = progress.step;
  event.json["steps_per_second"] =
      progress.steps_per_second ? EventJson(*progress.steps_per_second) : EventJson{};
  put(event);
}

void JobEvents::straggler(Round round, const Straggler& found) {
  if (!sink_) return;
  auto event = line("straggler");
  event.json["round"] = round.value();
  event.json["rank"] = found.rank.value();
  event.json["steps_per_second"] = found.steps_per_second;
  event.json["times_slower"] = found.times_slower;
  event.json["since_s"] = event_seconds(found.since);
  put(event);
}

void JobEvents::stopping(int signo, Millis grace) {
  if (!sink_) return;
  auto event = line("stopping");
  event.json["signal"] = signal_name(signo);
  event.json["grace_s"] = event_seconds(grace);
  put(event);
}

void JobEvents::nodes(const std::vector<control::NodeView>& table) {
  if (table.empty()) return;  // the coordinator didn't answer
  std::vector<std::string> now;
  now.reserve(table.size());
  for (const auto& node : table) now.push_back(node.name);
  std::ranges::sort(now);
  const auto had = std::exchange(nodes_, now);
  for (const auto& node : table) {
    if (std::ranges::binary_search(had, node.name)) continue;
    ++counts_.nodes_joined;
    if (!sink_) continue;
    auto event = line("node_joined");
    event.json["name"] = node.name;
    event.json["host"] = node.host;
    event.json["first_rank"] = node.ranks.first.value();
    event.json["workers"] = node.ranks.count;
    put(event);
  }
  for (const auto& name : had) {
    if (std::ranges::binary_search(now, name)) continue;
    ++counts_.nodes_lost;
    if (!sink_) continue;
    auto event = line("node_lost");
    event.json["name"] = name;
    put(event);
  }
}

void JobEvents::stop_ordered(const std::string& by, const std::string& reason) {
  if (!sink_) return;
  auto event = line("stop_ordered");
  event.json["by"] = event_text(by);
  event.json["reason"] = reason;
  put(event);
}

void JobEvents::health(const health::Finding& finding) {
  if (!sink_) return;
  auto event = line("health");
  event.json["probe"] = finding.probe;
  event.json["subject"] = event_text(finding.subject);
  event.json["severity"] = health::to_string(finding.severity);
  event.json["text"] = finding.words;
  put(event);
}

void JobEvents::output_lost(const Losses& losses) {
  if (!sink_) return;
  auto event = line("output_lost");
  event.json["where"] = losses.where;
  event.json["why"] = losses.why;
  put(event);
}

void JobEvents::job_ended(const JobReport& report) {
  if (!sink_) return;
  auto event = line("job_ended");
  event.json["verdict"] = to_string(report.outcome);
  event.json["exit_code"] = report.exit_code;
  event.json["restarts"] = report.restarts;
  event.json["failed_rounds"] = report.failed_rounds;
  event.json["seconds"] = event_seconds(report.duration);
  event.json["reason"] = event_text(report.reason);
  put(event);
}

}  // namespace acc::agent
