#include "launcher/ctl/launches.hpp"

#include "common/host_name.hpp"
#include "common/job_verdict.hpp"
#include "common/text.hpp"
#include "launcher/ctl/text_table.hpp"
#include "launcher/ctl/wire.hpp"
#include "launcher/setting_parsers.hpp"

#include <nlohmann/json.hpp>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <map>
#include <thread>
#include <utility>

namespace acc::ctl {

using Json = nlohmann::json;

namespace {

constexpr std::size_t kAskedAtOnce = 32;

/// Does it for each index below `count`, each time on one of some threads.
template <class Do>
void at_once(std::size_t count, const Do& act) {
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (auto i = next++; i < count; i = next++) act(i);
  };
  std::vector<std::jthread> threads;
  for (std::size_t i = 1; i < std::min(count, kAskedAtOnce); ++i) threads.emplace_back(work);
  work();
}

std::string refusal(const Answer& answer) {
  auto why = error_of(answer.body);
  return why.empty() ? "it answers with status " + std::to_string(answer.status) : why;
}

NodeJobs ask_node(const std::string& socket, const std::string& node,
                  std::optional<Millis> patience = {}) {
  NodeJobs found;
  const auto answer =
      ask_service(socket, {.target = node_prefix(node) + "/v1/jobs", .patience = patience});
  if (!answer) {
    const bool is_late = patience && answer.error().code == Errc::timed_out;
    found.why =
        is_late ? node + " gave no answer within " + describe(*patience) : answer.error().what;
    return found;
  }
  auto jobs = jobs_of_service(answer->body, socket);
  if (answer->status != kHttpOk || !jobs) {
    found.why = refusal(*answer);
    return found;
  }
  found.jobs = std::move(*jobs);
  for (auto& job : found.jobs) job.at = node_prefix(node);
  return found;
}

OwnNode ask_own_node(const std::string& socket) {
  OwnNode own{ask_node(socket, {}), {host_name()}};
  if (!own.known.why.empty()) return own;
  const auto answer = ask_service(socket, {.target = "/v1/node"});
  if (!answer) {
    own.known.why = answer.error().what;
  } else if (answer->status != kHttpOk) {
    own.known.why = refusal(*answer);
  } else {
    own.names.push_back(text_of(parse_json(answer->body), "name"));
  }
  return own;
}

std::string name_of_part(const agent::LaunchRecord& record, std::size_t index) {
  return record.id + "." + std::to_string(index);
}

/// Without the id of its job, a part is known by its name: one that anybody can choose.
bool has_name_of_part(const agent::LaunchRecord& record, std::size_t index, const JobRow& job) {
  return job.user == record.user && job.name == name_of_part(record, index);
}

bool is_part_of(const LaunchState& launch, const JobRow& job) {
  for (std::size_t i = 0; i < launch.parts.size(); ++i) {
    const auto& [part, found, why] = launch.parts[i];
    if (job.id == part.job || (found && found->id == job.id)) return true;
    // Also of a former try, while it waited for room.
    if (has_name_of_part(launch.record, i, job)) return true;
  }
  return false;
}

std::optional<JobRow> find_part(const agent::LaunchRecord& record, std::size_t index,
                                const std::vector<JobRow>& jobs) {
  const auto& id = record.parts[index].job;
  const auto found = std::ranges::find_if(jobs, [&](const JobRow& job) {
    if (id.empty()) return has_name_of_part(record, index, job);
    // Another node may have another name for a user, or none; only root sees the jobs of others.
    return job.id == id && (::geteuid() != 0 || job.user == record.user);
  });
  return found != jobs.end() ? std::optional{*found} : std::nullopt;
}

using NodePlace = std::pair<std::string, std::string>;  // a daemon's socket, a node's name

void ask_places(std::map<NodePlace, NodeJobs>& places, std::optional<Millis> patience) {
  std::vector<std::pair<const NodePlace*, NodeJobs*>> work;
  for (auto& [at, jobs] : places) work.emplace_back(&at, &jobs);
  at_once(work.size(), [&](std::size_t i) {
    *work[i].second = ask_node(work[i].first->first, work[i].first->second, patience);
  });
}

/// Our daemons that have parts of these launches, if they are those that they were started through.
std::map<std::string, OwnNode> ask_own_nodes(const std::vector<agent::LaunchRecord>& records) {
  std::map<std::string, OwnNode> own;
  for (const auto& record : records) {
    const bool has_own =
        std::ranges::any_of(record.parts, [](const auto& part) { return part.node.empty(); });
    if (has_own) own[record.socket];
  }
  std::vector<std::pair<const std::string*, OwnNode*>> work;
  for (auto& [socket, node] : own) work.emplace_back(&socket, &node);
  at_once(work.size(), [&](std::size_t i) { *work[i].second = ask_own_node(*work[i].first); });
  return own;
}

}  // namespace

LaunchPartState part_of_first_daemon(const agent::LaunchRecord& record, std::size_t index,
                                     const OwnNode& own) {
  LaunchPartState one{record.parts[index], {}, own.known.why};
  // Its id is unique, so where it is found is where it runs.
  one.job = find_part(record, index, own.known.jobs);
  if (one.job || !one.why.empty()) return one;
  const bool is_local_name = launcher::is_loopback(one.part.host);
  const auto& node = !record.node.empty() || is_local_name ? record.node : one.part.host;
  if (node.empty()) {
    one.why = "its record, of an older acc-launch, doesn't say on which node it was started";
  } else if (std::ranges::find(own.names, node) == own.names.end()) {
    one.part.node = node;
    if (is_local_name) one.part.host = node;
  }
  return one;
}

const agent::LaunchRecord* find_record(const std::vector<agent::LaunchRecord>& records,
                                       std::string_view wanted) {
  const auto found = std::ranges::find(records, wanted, &agent::LaunchRecord::id);
  return found == records.end() ? nullptr : &*found;
}

std::vector<agent::LaunchRecord> records_from(const std::vector<agent::LaunchRecord>& records,
                                              std::string_view beginning) {
  std::vector<agent::LaunchRecord> found;
  if (beginning.empty()) return found;
  std::ranges::copy_if(records, std::back_inserter(found),
                       [&](const auto& record) { return record.id.starts_with(beginning); });
  return found;
}

Result<Meant> find_meant(std::vector<JobRow> jobs, const std::vector<LaunchState>& launches,
                         std::string_view wanted, std::string_view user) {
  if (std::ranges::find(jobs, wanted, &JobRow::id) == jobs.end()) {
    jobs = without_parts(std::move(jobs), launches);
    for (const auto& launch : launches) {
      jobs.push_back(row_of(launch));
      if (jobs.back().user.empty()) jobs.back().user = user;  // its record is the user's own
    }
  }
  auto job = find_job(jobs, wanted, user);
  if (!job) return job.error();
  const auto launch = std::ranges::find_if(
      launches, [&](const LaunchState& one) { return one.record.id == job->id; });
  if (launch != launches.end()) return Meant{*launch, {}};
  return Meant{{}, std::move(*job)};
}

std::optional<RankPlace> place_of(const LaunchState& launch, std::uint32_t rank) {
  for (const auto& one : launch.parts) {
    if (!one.job) return std::nullopt;
    const auto workers = static_cast<std::uint32_t>(one.job->slots);
    if (rank < workers) return RankPlace{&one, rank};
    rank -= workers;
  }
  return std::nullopt;
}

std::vector<std::string> unknown_nodes(const LaunchState& launch) {
  std::vector<std::string> nodes;
  for (const auto& one : launch.parts)
    if (!one.job && !one.why.empty()) nodes.push_back(one.part.host);
  return nodes;
}

bool is_away(const LaunchState& launch, const LaunchPartState& one) {
  // Of a home that nodes share, the node of the first daemon may be another one than ours.
  const bool has_place = !one.part.node.empty() || launch.record.node == host_name();
  return !one.job && !one.why.empty() && !one.part.job.empty() && has_place;
}

/// As far as is known.
static bool may_run(const LaunchPartState& one) {
  return one.job ? !is_over(one.job->state) : !one.why.empty();
}

JobRow row_of(const LaunchState& launch) {
  JobRow row;
  row.id = row.name = launch.record.id;
  row.started_ms = launch.record.started_ms;
  row.socket = launch.record.socket;
  row.is_of_service = true;
  bool any_stopping = false;
  bool any_lives = false;
  const auto missing = unknown_nodes(launch);
  bool any_stopped = false;
  JobVerdict verdict;
  JobVerdict of_others;  // but for those that were stopped
  for (const auto& [part, job, why] : launch.parts) {
    if (!job) continue;
    if (row.words.empty()) {
      row.words = job->words;
      row.user = job->user;
    }
    row.slots += job->slots;
    any_stopping = any_stopping || job->state == "stopping";
    any_lives = any_lives || !is_over(job->state);
    row.ended_ms = std::max(row.ended_ms, job->ended_ms);
    const bool was_stopped = job->state == "stopped";
    any_stopped = any_stopped || was_stopped;
    if (job->exit_code) verdict.add(*job->exit_code);
    if (job->exit_code && !was_stopped) of_others.add(*job->exit_code);
  }
  // A part that was stopped after the job's success had been cut off from the others.
  const bool is_stopped = any_stopped && of_others.code().value_or(1) != 0;
  row.exit_code = any_stopped && !is_stopped ? of_others.code() : verdict.code();
  if (!missing.empty()) row.reason = "not known: " + join(missing, ", ");
  const bool any_known =
      std::ranges::any_of(launch.parts, [](const auto& one) { return one.job.has_value(); });
  // What a lost part tells is no end of the job, which may go on where nothing can be asked, if
  // that is enough for it.
  const auto left = static_cast<std::size_t>(std::ranges::count_if(launch.parts, may_run));
  const bool may_be_lost = row.exit_code && JobVerdict::is_of_one_node(*row.exit_code);
  const bool is_open = !missing.empty() && (may_be_lost ? launch.record.can_go_on_with(left)
                                                        : !row.exit_code.has_value());
  if (!any_known) {
    row.state = missing.empty() ? "gone" : "unknown";
  } else if (any_lives || is_open) {
    row.state = !any_lives ? "unknown" : any_stopping ? "stopping" : "running";
    row.exit_code.reset();
    row.ended_ms = 0;
  } else {
    row.state = is_stopped ? "stopped" : row.exit_code.value_or(1) == 0 ? "succeeded" : "failed";
  }
  return row;
}

std::vector<JobRow> without_parts(std::vector<JobRow> jobs,
                                  const std::vector<LaunchState>& launches) {
  std::erase_if(jobs, [&](const JobRow& job) {
    return std::ranges::any_of(launches,
                               [&](const LaunchState& launch) { return is_part_of(launch, job); });
  });
  return jobs;
}

std::string launch_text(const LaunchState& launch, std::int64_t now_ms, std::size_t width) {
  auto text = job_text(row_of(launch), {}, now_ms, width);
  std::vector<std::vector<std::string>> rows{{"NODE", "STATE", "EXIT", "SLOTS", "JOB"}};
  for (const auto& [part, job, why] : launch.parts) {
    if (job) {
      rows.push_back({part.host, job->state, job->exit_code ? std::to_string(*job->exit_code) : "-",
                      std::to_string(job->slots), job->id});
    } else {
      rows.push_back({part.host, why.empty() ? "gone" : "unknown", "-", "-", why});
    }
  }
  return text + table_text(rows, width);
}

Json launch_json(const LaunchState& launch, const std::vector<Json>& answers) {
  const auto row = row_of(launch);
  auto shown = parse_json(jobs_json({row}))["jobs"][0];
  shown["source"] = "launch";
  shown["parts"] = Json::array();
  for (std::size_t i = 0; i < launch.parts.size(); ++i) {
    const auto& [part, job, why] = launch.parts[i];
    Json one{{"node", part.host},    {"job", nullptr},  {"state", nullptr},
             {"exit_code", nullptr}, {"live", nullptr}, {"report", nullptr}};
    for (const char* key : {"live", "report"})
      if (i < answers.size() && answers[i].is_object() && answers[i].contains(key))
        one[key] = answers[i][key];
    if (job) {
      one["job"] = job->id;
      one["state"] = job->state;
      if (job->exit_code) one["exit_code"] = *job->exit_code;
    } else {
      one["error"] = why.empty() ? "it has no such job" : why;
    }
    shown["parts"].push_back(std::move(one));
  }
  return shown;
}

std::vector<LaunchState> ask_launches(const std::vector<agent::LaunchRecord>& records,
                                      std::optional<Millis> patience) {
  const auto own = ask_own_nodes(records);
  std::vector<LaunchState> asked;
  std::map<NodePlace, NodeJobs> others;
  for (const auto& record : records) {
    LaunchState launch{record, {}};
    for (std::size_t i = 0; i < record.parts.size(); ++i) {
      const auto& part = record.parts[i];
      launch.parts.push_back(part.node.empty()
                                 ? part_of_first_daemon(record, i, own.at(record.socket))
                                 : LaunchPartState{part, std::nullopt, {}});
      const auto& node = launch.parts.back().part.node;
      if (!node.empty()) others[{record.socket, node}];
    }
    asked.push_back(std::move(launch));
  }
  ask_places(others, patience);
  std::vector<LaunchState> launches;
  for (auto& launch : asked) {
    for (std::size_t i = 0; i < launch.parts.size(); ++i) {
      auto& one = launch.parts[i];
      if (one.part.node.empty()) continue;
      const auto& node = others[{launch.record.socket, one.part.node}];
      one.job = find_part(launch.record, i, node.jobs);
      one.why = node.why;
    }
    const bool is_gone = std::ranges::all_of(
        launch.parts, [](const LaunchPartState& one) { return !one.job && one.why.empty(); });
    if (is_gone) {
      agent::remove_record(launch.record.id);
    } else {
      launches.push_back(std::move(launch));
    }
  }
  return launches;
}

std::vector<Json> ask_parts(const LaunchState& launch) {
  std::vector<Json> answers(launch.parts.size());
  at_once(answers.size(), [&](std::size_t i) {
    const auto& job = launch.parts[i].job;
    if (!job) return;
    const auto answer = ask_service(job->socket, {.target = job->at + "/v1/jobs/" + job->id});
    if (answer && answer->status == 200) answers[i] = parse_json(answer->body);
  });
  return answers;
}

}  // namespace acc::ctl
