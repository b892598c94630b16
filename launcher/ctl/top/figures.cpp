#include "launcher/ctl/top/figures.hpp"

#include "common/plain_text.hpp"
#include "common/text.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <utility>

namespace acc::ctl::top {

using Json = nlohmann::json;

namespace {

constexpr std::size_t kLongestText = 400;
/// Processor time is counted in ticks of 10 ms: over less time the share would jump.
constexpr double kLeastSpan = 0.5;

std::string plain(const Json& object, const char* key) {
  return plain_line(text_of(object, key), kLongestText);
}

std::optional<double> real_if(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) return std::nullopt;
  const auto value = found->get<double>();
  return std::isfinite(value) ? std::optional{value} : std::nullopt;
}

std::optional<std::int64_t> number_if(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_integer()) return std::nullopt;
  return found->get<std::int64_t>();
}

/// Of which a thousand can be added.
std::optional<std::int64_t> bytes_if(const Json& object, const char* key) {
  constexpr std::int64_t kMost = std::int64_t{1} << 50;
  const auto bytes = number_if(object, key);
  return bytes ? std::optional{std::clamp<std::int64_t>(*bytes, 0, kMost)} : std::nullopt;
}

/// A number of ranks, or the first one.
std::int64_t count_of(const Json& object, const char* key) {
  constexpr std::int64_t kMost = 1'000'000'000;
  return std::clamp<std::int64_t>(number_of(object, key), 0, kMost);
}

const Json* list_in(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found != object.end() && found->is_array() ? &*found : nullptr;
}

void set_end(RankFigures& rank, const Json& worker) {
  const auto state = text_of(worker, "state");
  const auto signal = plain(worker, "signal");
  const auto code = number_if(worker, "exit_code");
  if (state == "starting") rank.life = RankFigures::Life::starting;
  if (state != "exited") return;
  const bool is_good = signal.empty() && code.value_or(1) == 0;
  rank.life = is_good ? RankFigures::Life::succeeded : RankFigures::Life::failed;
  rank.end = signal.empty() ? "exit " + (code ? std::to_string(*code) : "?") : signal;
}

/// The same from a report.
void set_end_of(RankFigures& rank, const Json& worker, const Json& report) {
  const auto exit = worker.find("exit");
  const bool has_exit = exit != worker.end() && exit->is_object();
  const auto signal = has_exit ? plain(*exit, "signal") : std::string{};
  const auto code = has_exit ? number_if(*exit, "code") : std::nullopt;
  rank.life = code == 0 ? RankFigures::Life::succeeded : RankFigures::Life::failed;
  rank.end = !signal.empty() ? signal : code ? "exit " + std::to_string(*code) : "not started";
  const auto failure = report.find("first_failure");
  if (failure == report.end() || !failure->is_object() ||
      number_if(*failure, "rank") != std::optional{rank.rank})
    return;
  const auto* lines = list_in(*failure, "last_lines");
  if (lines != nullptr && !lines->empty() && lines->back().is_string())
    rank.last_line = plain_line(lines->back().get<std::string>(), kLongestText);
}

RankFigures rank_of(const Json& worker, std::size_t node) {
  RankFigures rank;
  rank.node = node;
  rank.rank = number_of(worker, "rank");
  rank.local_rank = number_of(worker, "local_rank");
  rank.pid = number_of(worker, "pid");
  rank.seconds = real_of(worker, "seconds");
  rank.step = number_if(worker, "step");
  rank.steps_per_second = real_if(worker, "steps_per_second");
  rank.heartbeat_age_s = real_of(worker, "seconds_since_heartbeat");
  rank.section = plain(worker, "section");
  rank.rss_bytes = bytes_if(worker, "rss_bytes");
  rank.cpu_s = real_if(worker, "cpu_s");
  rank.last_line = plain(worker, "last_line");
  if (const auto* gpus = list_in(worker, "gpus")) {
    for (const auto& one : *gpus)
      if (one.is_number_integer()) rank.gpu_indices.push_back(one.get<std::int64_t>());
  }
  set_end(rank, worker);
  return rank;
}

std::vector<GpuFigures> gpus_of(const Json& live) {
  std::vector<GpuFigures> gpus;
  const auto* list = list_in(live, "gpus");
  if (list == nullptr) return gpus;
  for (const auto& one : *list) {
    if (!one.is_object()) continue;
    gpus.push_back({number_of(one, "index"), real_if(one, "percent"), number_of(one, "memory_used"),
                    number_of(one, "memory_total")});
  }
  return gpus;
}

void set_gpu_percent(RankFigures& rank, const NodeFigures& node) {
  double sum = 0;
  std::size_t count = 0;
  for (const auto index : rank.gpu_indices) {
    const auto found = std::ranges::find(node.gpus, index, &GpuFigures::index);
    if (found == node.gpus.end() || !found->percent) continue;
    sum += *found->percent;
    ++count;
  }
  if (count > 0) rank.gpu_percent = sum / static_cast<double>(count);
}

/// The share of a processor since the answer before, measured by the clock of its own node.
void set_cpu_percent(RankFigures& rank, const RankFigures* before) {
  if (!rank.cpu_s) return;
  rank.cpu_base_s = *rank.cpu_s;
  rank.base_seconds = rank.seconds;
  if (before == nullptr || before->pid != rank.pid || !before->cpu_s) return;
  const double span = rank.seconds - before->base_seconds;
  if (span < kLeastSpan) {  // asked again at once: counted from the same point
    rank.cpu_base_s = before->cpu_base_s;
    rank.base_seconds = before->base_seconds;
    rank.cpu_percent = before->cpu_percent;
    return;
  }
  rank.cpu_percent = std::max(0.0, 100 * (*rank.cpu_s - before->cpu_base_s) / span);
}

/// Puts the answers together.
class Assembly {
 public:
  Assembly(const JobRow& known, const JobFigures* before, std::int64_t now_ms)
      : before_{before}, now_ms_{now_ms} {
    job_.row = known;
    if (before_ == nullptr) return;
    job_.row = before_->row;
    job_.round = before_->round;
    job_.restarts_used = before_->restarts_used;
    job_.max_restarts = before_->max_restarts;
    job_.world_size = before_->world_size;
    job_.restart_reason = before_->restart_reason;
    job_.log_folder = before_->log_folder;
    for (const auto& rank : before_->ranks) ranks_before_[{rank.node, rank.local_rank}] = &rank;
  }

  JobFigures put_together(std::span<const PartAnswer> answers) {
    LaunchState launch;
    launch.record.id = job_.row.id;
    launch.record.started_ms = job_.row.started_ms;
    launch.record.socket = job_.row.socket;
    has_several_parts_ = answers.size() > 1;
    for (std::size_t i = 0; i < answers.size(); ++i) add(answers[i], i, launch);
    const auto& first = launch.parts.front();
    const bool are_all_gone = std::ranges::all_of(
        answers, [](const PartAnswer& one) { return one.how == PartAnswer::How::gone; });
    if (has_several_parts_ && !are_all_gone) {
      auto row = row_of(launch);
      row.user = row.user.empty() ? job_.row.user : row.user;
      row.words = row.words.empty() ? job_.row.words : row.words;
      row.is_of_service = job_.row.is_of_service;
      job_.row = std::move(row);
    } else if (first.job) {
      job_.row = *first.job;
    }
    if (are_all_gone) {
      job_.gone = answers.front().is_of_service ? "it was removed (acc-ctl rm)"
                                                : "its acc-launch has ended";
      if (!is_over(job_.row.state)) job_.row.state = "ended";
    }
    job_.is_over = is_over(job_.row.state) || are_all_gone;
    std::ranges::stable_sort(job_.ranks, {}, &RankFigures::rank);
    return std::move(job_);
  }

 private:
  void add(const PartAnswer& answer, std::size_t index, LaunchState& launch) {
    LaunchPartState part;
    part.part.host = part.part.node = answer.node;
    const auto body = answer.how == PartAnswer::How::answered ? parse_json(answer.body) : Json{};
    const bool is_right = body.is_object();
    Json live;
    Json report;
    if (is_right && answer.is_of_service) {
      part.job = job_of_service(body, job_.row.socket);
      if (part.job) part.job->at = job_.row.at;
      if (body.contains("live")) live = body["live"];
      if (body.contains("report")) report = body["report"];
    } else if (is_right) {
      part.job = job_of_agent(answer.body, job_.row.socket, job_.row.user, now_ms_);
      live = body;
    }
    if (!part.job && answer.how != PartAnswer::How::gone)
      part.why = answer.why.empty() ? "its answer can't be read" : plain_line(answer.why, 400);
    const auto node = job_.nodes.size();
    NodeFigures figures{answer.node, part.job ? part.job->state : "", part.why};
    if (live.is_object() && list_in(live, "workers") != nullptr) {
      add_live(live, figures, node);
    } else if (part.job && is_over(part.job->state) && list_in(report, "workers") != nullptr) {
      add_report(report, figures, node);
    } else {
      const bool has_ended =
          answer.how == PartAnswer::How::gone || (part.job && is_over(part.job->state));
      keep_old(figures, index, node, has_ended);
    }
    figures.name = plain_line(figures.name.empty() ? "this node" : figures.name, 80);
    job_.nodes.push_back(std::move(figures));
    if (live.is_object()) add_other_nodes(live, job_.nodes.back().name);
    launch.parts.push_back(std::move(part));
  }

  void add_live(const Json& live, NodeFigures& figures, std::size_t node) {
    if (figures.name.empty()) figures.name = text_of(live, "node");
    job_.round = number_of(live, "round");
    job_.restarts_used = number_of(live, "restarts_used");
    job_.max_restarts = number_of(live, "max_restarts");
    job_.world_size = count_of(live, "world_size");
    job_.restart_reason = plain(live, "restart_reason");
    job_.log_folder = plain(live, "log_folder");
    // "restarting", "waiting for nodes": more than the states of a list say.
    const auto state = plain(live, "state");
    if (!state.empty() && !is_over(figures.state)) figures.state = state;
    figures.gpus = gpus_of(live);
    for (const auto& worker : live["workers"]) {
      if (!worker.is_object()) continue;
      auto rank = rank_of(worker, node);
      const auto before = ranks_before_.find({node, rank.local_rank});
      set_cpu_percent(rank, before == ranks_before_.end() ? nullptr : before->second);
      set_gpu_percent(rank, figures);
      job_.ranks.push_back(std::move(rank));
    }
    figures.slots = static_cast<std::int64_t>(live["workers"].size());
    if (figures.slots > 0) figures.first_rank = count_of(live["workers"][0], "rank");
  }

  /// Of a job that has ended: acc-launch's --report.
  void add_report(const Json& report, NodeFigures& figures, std::size_t node) {
    if (figures.name.empty()) figures.name = text_of(report, "host");
    const auto restarts = number_of(report, "restarts");
    job_.restarts_used = report.contains("restarts_used") ? number_of(report, "restarts_used")
                                                          : restarts;  // of an earlier version
    job_.round = std::max(job_.round, restarts);
    job_.max_restarts = number_of(report, "max_restarts");
    job_.world_size = count_of(report, "world_size");
    for (const auto& worker : report["workers"]) {
      // Those of a lost machine have no local rank here.
      if (!worker.is_object() || !number_if(worker, "local_rank")) continue;
      auto rank = rank_of(worker, node);
      const auto before = ranks_before_.find({node, rank.local_rank});
      if (before != ranks_before_.end()) rank.last_line = before->second->last_line;
      set_end_of(rank, worker, report);
      rank.rss_bytes = bytes_if(worker, "peak_rss_bytes");
      job_.ranks.push_back(std::move(rank));
    }
    figures.slots = static_cast<std::int64_t>(report["workers"].size());
  }

  /// Of a node that doesn't answer, or whose part has ended: what was known last.
  void keep_old(NodeFigures& figures, std::size_t index, std::size_t node, bool has_ended) {
    if (before_ == nullptr || index >= before_->nodes.size()) return;
    const auto& old = before_->nodes[index];
    if (figures.name.empty()) figures.name = old.name;
    if (figures.state.empty())
      figures.state = has_ended && !is_over(old.state) ? "ended" : old.state;
    figures.slots = old.slots;
    figures.first_rank = old.first_rank;
    for (auto rank : before_->ranks) {
      if (rank.node != index) continue;
      rank.node = node;
      const bool was_running = rank.end.empty();
      if (has_ended && was_running) rank.end = "ended";  // how isn't known
      if (has_ended) rank.cpu_percent.reset();
      job_.ranks.push_back(std::move(rank));
    }
  }

  /// Nodes of which only the coordinator's table tells: their ranks are seen on them alone.
  void add_other_nodes(const Json& live, const std::string& own) {
    const auto* table = list_in(live, "node_table");
    if (table == nullptr) return;
    for (const auto& one : *table) {
      if (!one.is_object()) continue;
      const auto name = plain_line(text_of(one, "node"), 80);
      const bool is_known =
          name == own || name == plain(live, "node") ||
          std::ranges::any_of(job_.nodes, [&](const auto& node) { return node.name == name; });
      if (is_known || has_several_parts_) continue;
      NodeFigures other{name, "", "run acc-top there to see its ranks"};
      other.first_rank = count_of(one, "first_rank");
      other.slots = count_of(one, "slots");
      other.is_watched = false;
      job_.nodes.push_back(std::move(other));
    }
  }

  JobFigures job_;
  const JobFigures* before_;
  std::int64_t now_ms_;
  bool has_several_parts_ = false;
  std::map<std::pair<std::size_t, std::int64_t>, const RankFigures*> ranks_before_;
};

}  // namespace

JobFigures figures_of(const JobRow& known, std::span<const PartAnswer> answers,
                      const JobFigures* before, std::int64_t now_ms) {
  return Assembly{known, before, now_ms}.put_together(answers);
}

Totals totals_of(const JobFigures& job, std::optional<std::size_t> node) {
  Totals totals;
  for (const auto& rank : job.ranks) {
    if (node && rank.node != *node) continue;
    ++totals.ranks;
    if (!rank.end.empty()) continue;
    ++totals.running;
    totals.rss_bytes += rank.rss_bytes.value_or(0);
    if (rank.cpu_percent) totals.cpu_percent = totals.cpu_percent.value_or(0) + *rank.cpu_percent;
    if (rank.step) {
      totals.least_step = std::min(totals.least_step.value_or(*rank.step), *rank.step);
      totals.most_step = std::max(totals.most_step.value_or(*rank.step), *rank.step);
    }
    if (rank.steps_per_second)
      totals.steps_per_second = std::min(totals.steps_per_second.value_or(*rank.steps_per_second),
                                         *rank.steps_per_second);
  }
  return totals;
}

}  // namespace acc::ctl::top
