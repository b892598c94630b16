#include "agent/daemon/api_metrics.hpp"

#include "agent/control_protocol.hpp"
#include "agent/daemon/api_json.hpp"
#include "agent/daemon/json_text.hpp"
#include "agent/metrics_text.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <utility>

namespace acc::agent::daemon {

namespace asio = boost::asio;

namespace {

// The newest running jobs: agents are asked side by side, and labels stay few.
constexpr std::size_t kAskedJobs = 100;
constexpr std::size_t kAskedAtOnce = 8;  ///< of a user
constexpr std::chrono::milliseconds kAskPatience{1'000};

using MetricsJson = nlohmann::json;

double number_at(const MetricsJson& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_number() ? found->get<double>() : 0;
}

std::optional<double> number_if_at(const MetricsJson& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

template <class Better>
void keep(std::optional<double>& best, std::optional<double> value, Better better) {
  if (value) best = best ? better(*best, *value) : *value;
}

void add_progress_of(const MetricsJson& worker, JobFigures& figures) {
  const auto least = [](double a, double b) { return std::min(a, b); };
  const auto most = [](double a, double b) { return std::max(a, b); };
  keep(figures.step, number_if_at(worker, "step"), least);
  keep(figures.steps_per_second, number_if_at(worker, "steps_per_second"), least);
  keep(figures.heartbeat_age_s, number_if_at(worker, "seconds_since_heartbeat"), most);
}

void add_goodput_of(const MetricsJson& status, JobFigures& figures) {
  const auto goodput = status.find("goodput");
  if (goodput == status.end() || !goodput->is_object()) return;
  figures.goodput = number_if_at(*goodput, "share");
  figures.waiting_s = number_at(*goodput, "seconds_waiting");
  figures.restarting_s = number_at(*goodput, "seconds_restarting");
  figures.lost_work_s = number_if_at(*goodput, "seconds_lost_work");
}

/// The answers of several agents; the last one ends the wait.
struct Questions {
  explicit Questions(const asio::any_io_executor& executor) : done{executor} {}
  asio::steady_timer done;
  std::size_t open = 0;
  std::vector<JobFigures> figures;
};

/// Jobs of one user that are still to be asked.
struct OfOwner {
  uid_t uid = 0;
  std::vector<JobId> jobs;
};

// Their agents may be any program of their user, which sends megabytes or nothing: few of a user
// are asked at once, by all requests together, until each of them has answered or is given up.
asio::awaitable<void> ask_agents(Jobs& jobs, std::shared_ptr<std::map<uid_t, std::size_t>> measured,
                                 Principal who, std::shared_ptr<OfOwner> owner,
                                 std::shared_ptr<Questions> questions) {
  const auto deadline = std::chrono::steady_clock::now() + kAskPatience;
  asio::steady_timer pause{co_await asio::this_coro::executor};
  while (!owner->jobs.empty() && std::chrono::steady_clock::now() < deadline) {
    const Asking asking{measured, owner->uid, kAskedAtOnce};
    if (!asking.is_granted()) {
      pause.expires_after(std::chrono::milliseconds{50});
      co_await pause.async_wait(asio::as_tuple(asio::use_awaitable));
      continue;
    }
    const JobId id = owner->jobs.back();
    owner->jobs.pop_back();
    std::string request{control::kStatusRequest};
    request += '}';
    const auto reply = co_await jobs.control(who, id, std::move(request));
    if (reply.has_error()) continue;
    if (auto figures = figures_of(id, *reply)) questions->figures.push_back(std::move(*figures));
  }
}

std::vector<JobRecord> running_jobs(std::vector<JobRecord> jobs) {
  std::erase_if(jobs, [](const auto& job) {
    return job.state != JobState::running && job.state != JobState::stopping;
  });
  std::ranges::sort(jobs, std::ranges::greater{}, &JobRecord::started_ms);
  return jobs;
}

}  // namespace

std::optional<JobFigures> figures_of(JobId id, std::string_view status) {
  const auto json = parse_bounded(status, kDeepestForeign, kMostForeign);
  if (!json.is_object() || !json.contains("workers") || !json["workers"].is_array())
    return std::nullopt;
  JobFigures figures;
  figures.id = std::move(id);
  figures.round = number_at(json, "round");
  figures.restarts = number_at(json, "restarts");
  for (const auto& worker : json["workers"]) {
    if (!worker.is_object()) continue;
    const auto state = worker.find("state");
    if (state != worker.end() && *state == "exited") ++figures.exited;
    if (state != worker.end() && *state == "running") {
      ++figures.running;
      add_progress_of(worker, figures);
    }
    figures.rss_bytes += number_at(worker, "rss_bytes");
    figures.cpu_s += number_at(worker, "cpu_s");
  }
  add_goodput_of(json, figures);
  return figures;
}

// A metric that no job has is absent.
static void add_watched(MetricsText& text, const std::vector<JobFigures>& figures) {
  const auto of_each = [&](MetricId id, std::optional<double> JobFigures::*value) {
    bool has_begun = false;
    for (const auto& job : figures) {
      if (!(job.*value)) continue;
      if (!std::exchange(has_begun, true)) text.begin(id);
      text.add({job.id}, *(job.*value));
    }
  };
  of_each("acc_daemon_job_goodput_ratio", &JobFigures::goodput);
  bool has_begun = false;
  for (const auto& job : figures) {
    if (!job.goodput) continue;
    if (!std::exchange(has_begun, true)) text.begin("acc_daemon_job_lost_seconds_total");
    text.add({job.id, "waiting"}, job.waiting_s).add({job.id, "restarts"}, job.restarting_s);
    if (job.lost_work_s) text.add({job.id, "lost_steps"}, *job.lost_work_s);
  }
  of_each("acc_daemon_job_step", &JobFigures::step);
  of_each("acc_daemon_job_steps_per_second", &JobFigures::steps_per_second);
  of_each("acc_daemon_job_heartbeat_age_seconds", &JobFigures::heartbeat_age_s);
}

std::string encode_metrics(const NodeFacts& node, const std::vector<JobRecord>& jobs,
                           const std::vector<JobFigures>& figures, std::size_t unanswered) {
  const auto number = [](auto count) { return static_cast<double>(count); };
  MetricsText text;
  text.begin("acc_build_info").add({node.version}, 1);
  text.begin("acc_daemon_jobs");
  for (const auto state : {JobState::waiting, JobState::running, JobState::stopping,
                           JobState::succeeded, JobState::failed, JobState::stopped}) {
    const auto count = std::ranges::count(jobs, state, &JobRecord::state);
    text.add({to_text(state)}, number(count));
  }
  text.begin("acc_daemon_slots")
      .add({"free"}, node.slots_free)
      .add({"taken"}, number(node.slots) - number(node.slots_free));
  text.begin("acc_daemon_gpus")
      .add({"free"}, number(node.gpus_free.size()))
      .add({"taken"}, number(node.gpus.size()) - number(node.gpus_free.size()));
  text.one("acc_daemon_drained", node.drained.empty() ? 0 : 1);
  const auto of_each = [&](MetricId id, double JobFigures::*value) {
    text.begin(id);
    for (const auto& job : figures) text.add({job.id}, job.*value);
  };
  text.begin("acc_daemon_job_starts_total");
  std::size_t shown = 0;
  for (const auto& job : jobs) {
    const bool has_ended = job.state == JobState::succeeded || job.state == JobState::failed ||
                           job.state == JobState::stopped;
    if (!has_ended && shown++ < kAskedJobs) text.add({job.id}, job.starts);
  }
  of_each("acc_daemon_job_round", &JobFigures::round);
  of_each("acc_daemon_job_restarts_total", &JobFigures::restarts);
  text.begin("acc_daemon_job_workers");
  for (const auto& job : figures)
    text.add({job.id, "running"}, job.running).add({job.id, "exited"}, job.exited);
  of_each("acc_daemon_job_resident_memory_bytes", &JobFigures::rss_bytes);
  of_each("acc_daemon_job_cpu_seconds_total", &JobFigures::cpu_s);
  add_watched(text, figures);
  text.one("acc_daemon_jobs_unanswered", number(unanswered));
  return text.take();
}

asio::awaitable<HttpReply> serve_metrics(ApiContext& api, ApiCall call) {
  const Asking asking{api, call.who.quota_owner()};
  if (!asking.is_granted()) co_return too_many_questions();
  const auto jobs = api.jobs.list(call.who);
  const auto running = running_jobs(jobs);
  const auto executor = co_await asio::this_coro::executor;
  const auto questions = std::make_shared<Questions>(executor);
  std::map<uid_t, std::shared_ptr<OfOwner>> owners;
  for (std::size_t i = std::min(running.size(), kAskedJobs); i-- > 0;) {  // the newest is last
    auto& owner = owners[running[i].uid];
    if (!owner) owner = std::make_shared<OfOwner>();
    owner->uid = running[i].uid;
    owner->jobs.push_back(running[i].id);
  }
  for (const auto& [uid, owner] : owners)
    questions->open += std::min(owner->jobs.size(), kAskedAtOnce);
  questions->done.expires_after(kAskPatience);
  for (const auto& [uid, owner] : owners) {
    const auto count = std::min(owner->jobs.size(), kAskedAtOnce);
    for (std::size_t i = 0; i < count; ++i)
      asio::co_spawn(executor, ask_agents(api.jobs, api.measured, call.who, owner, questions),
                     [questions](const std::exception_ptr&) {
                       if (--questions->open == 0) questions->done.cancel();
                     });
  }
  if (questions->open > 0) co_await questions->done.async_wait(asio::as_tuple(asio::use_awaitable));
  HttpReply reply;
  reply.content_type = kMetricsContentType;
  reply.body = encode_metrics(api.jobs.node(), jobs, questions->figures,
                              running.size() - questions->figures.size());
  co_return reply;
}

}  // namespace acc::agent::daemon
