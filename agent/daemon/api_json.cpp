#include "agent/daemon/api_json.hpp"

#include "agent/daemon/http_message.hpp"
#include "agent/daemon/json_text.hpp"
#include "common/json_bytes.hpp"

#include <nlohmann/json.hpp>

#include <limits>
#include <utility>

namespace acc::agent::daemon {

namespace {

using nlohmann::json;

std::string line(const json& value) { return json_text(value) + '\n'; }

json launch_of(const JobRecord& job) {
  const auto& launch = job.submission->launch;
  if (!launch) return nullptr;
  return {{"id", launch->id}, {"nodes", launch->nodes}, {"node_rank", launch->node_rank}};
}

/// The command line, or so much of it as a list shows, and how many words that leaves out.
struct ShownWords {
  std::vector<std::string> words;
  std::size_t left_out = 0;
};

ShownWords shown_words(const JobRecord& job, std::size_t most_bytes) {
  ShownWords shown;
  std::size_t bytes = 0;
  for (const auto& word : job.submission->words) {
    bytes += word.size();
    if (bytes > most_bytes) break;
    shown.words.push_back(word);
  }
  shown.left_out = job.submission->words.size() - shown.words.size();
  return shown;
}

json to_json(const JobRecord& job, std::size_t most_bytes_of_words) {
  const auto [words, left_out] = shown_words(job, most_bytes_of_words);
  json value{{"id", job.id},
          {"name", job.submission->name},
          {"user", job.user},
          {"state", to_text(job.state)},
          {"exit_code", job.exit_code ? json(*job.exit_code) : json(nullptr)},
          {"reason", job.reason},
          {"submitted_ms", job.submitted_ms},
          {"started_ms", job.started_ms},
          {"ended_ms", job.ended_ms},
          {"pid", job.pid},
          {"starts", job.starts},
          {"slots", job.submission->slots},
          {"gpus", job.gpus},
          {"launch", launch_of(job)},
          {"words", json_texts_of(words)},
          {"working_directory", json_text_of(job.submission->working_directory)}};
  if (!job.program.empty()) value["program"] = json_text_of(job.program);
  if (left_out > 0) value["words_left_out"] = left_out;
  return value;
}

json to_json(const JobEvent& event) {
  return {{"id", event.number},
          {"time_ms", event.time_ms},
          {"job", event.job},
          {"kind", event.kind},
          {"text", event.text}};
}

}  // namespace

std::string encode_job(const JobRecord& job, const JobDetails& details) {
  auto value = to_json(job, std::numeric_limits<std::size_t>::max());
  if (!details.report_left_out.empty()) value["report_left_out"] = details.report_left_out;
  std::string passed_through;
  for (const auto& [key, text] :
       {std::pair<std::string, const std::string&>{"report", details.report},
        {"live", details.live}}) {
    if (text.empty()) continue;
    auto foreign = pass_through(text, kDeepestForeign, kMostForeign);
    if (foreign.left_out.empty())
      passed_through += ",\"" + key + "\":" + foreign.text;
    else
      value[key + "_left_out"] = std::move(foreign.left_out);
  }
  auto whole = json_text(value);
  whole.pop_back();
  return whole + passed_through + "}\n";
}

std::string encode_jobs(const std::vector<JobRecord>& jobs) {
  auto list = json::array();
  for (const auto& job : jobs) list.push_back(to_json(job, kListedWordBytes));
  return line({{"jobs", std::move(list)}});
}

std::string encode_submitted(const JobId& id) { return line({{"id", id}}); }

std::string encode_node(const NodeFacts& node, const std::vector<JobRecord>& jobs) {
  std::size_t running = 0;
  std::size_t waiting = 0;
  for (const auto& job : jobs) {
    running += job.state == JobState::running || job.state == JobState::stopping ? 1 : 0;
    waiting += job.state == JobState::waiting ? 1 : 0;
  }
  return line({{"name", node.name},
               {"version", node.version},
               {"slots", node.slots},
               {"slots_free", node.slots_free},
               {"gpus", node.gpus},
               {"gpus_free", node.gpus_free},
               {"drained", node.drained},
               {"jobs_running", running},
               {"jobs_waiting", waiting}});
}

std::string encode_event(const JobEvent& event) { return json_text(to_json(event)); }

std::string encode_events(const std::vector<JobEvent>& events) {
  auto list = json::array();
  for (const auto& event : events) list.push_back(to_json(event));
  return line({{"events", std::move(list)}});
}

std::string encode_end(const JobRecord& job) {
  return json_text({{"state", to_text(job.state)},
                    {"exit_code", job.exit_code ? json(*job.exit_code) : json(nullptr)},
                    {"reason", job.reason}});
}

std::string encode_nodes(const std::vector<NodeAnswer>& answers) {
  auto list = json::array();
  for (const auto& one : answers) {
    auto facts =
        one.facts.empty() ? json(nullptr) : parse_bounded(one.facts, kDeepestForeign, kMostForeign);
    json value{{"node", one.node}, {"ok", facts.is_object()}};
    if (facts.is_object()) {
      value["facts"] = std::move(facts);
    } else {
      value["error"] = one.error.empty() ? one.node + " answered something else" : one.error;
      value["code"] = one.code.empty() ? "not_an_agent" : one.code;
    }
    list.push_back(std::move(value));
  }
  return line({{"nodes", std::move(list)}});
}

std::string encode_check(const CheckedSubmission& checked) {
  return line({{"ok", true},
               {"user", checked.user},
               {"version", checked.version},
               {"slots_free", checked.slots_free},
               {"gpus_free", checked.gpus_free},
               {"daemon", checked.daemon}});
}

std::string encode_token(const IssuedToken& issued) {
  return line({{"token", issued.token},
               {"url", issued.url},
               {"read_only", issued.only_reads},
               {"expires_ms", issued.expires_ms}});
}

std::string encode_error(unsigned status, const std::string& what,
                         const std::vector<std::string>& complaints, std::string_view code) {
  json value{{"error", what}, {"code", code.empty() ? error_code_of(status) : code}};
  if (!complaints.empty()) value["complaints"] = complaints;
  return line(value);
}

std::string encode_warning(const std::string& what) { return line({{"warning", what}}); }

std::string_view to_text(JobState state) {
  switch (state) {
    case JobState::waiting:
      return "waiting";
    case JobState::running:
      return "running";
    case JobState::stopping:
      return "stopping";
    case JobState::succeeded:
      return "succeeded";
    case JobState::failed:
      return "failed";
    case JobState::stopped:
      break;
  }
  return "stopped";
}

std::string_view to_text(RestartRule rule) {
  switch (rule) {
    case RestartRule::no:
      return "no";
    case RestartRule::on_failure:
      return "on-failure";
    case RestartRule::always:
      break;
  }
  return "always";
}

bool is_over(JobState state) {
  return state == JobState::succeeded || state == JobState::failed || state == JobState::stopped;
}

}  // namespace acc::agent::daemon
