#include "agent/daemon/api_json.hpp"

#include "agent/daemon/http_message.hpp"
#include "common/json_bytes.hpp"
#include "common/text.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <initializer_list>
#include <limits>
#include <map>
#include <span>
#include <utility>

namespace acc::agent::daemon {

namespace {

using nlohmann::json;
using Complaint = std::vector<std::string>;

constexpr int kDeepestBody = 8;
constexpr int kDeepestForeign = 64;  // of a report: printed again by recursion
constexpr std::size_t kLongestName = 64;

constexpr std::array<std::string_view, 12> kSubmissionKeys{
    "name", "words", "working_directory", "env",  "umask",  "slots",
    "gpus", "wait",  "restart",           "user", "launch", "check"};
constexpr std::array<std::string_view, 3> kLaunchKeys{"id", "nodes", "node_rank"};
constexpr std::array<std::string_view, 2> kRestartKeys{"policy", "max"};
constexpr std::array<std::string_view, 1> kStopKeys{"grace_s"};
constexpr std::array<std::string_view, 1> kSignalKeys{"signal"};
constexpr std::array<std::string_view, 1> kDrainKeys{"reason"};

struct SignalRow {
  std::string_view name;
  int number;
};
/// What acc-launch passes on to workers.
constexpr std::array kSignals{
    SignalRow{"HUP", SIGHUP},   SignalRow{"INT", SIGINT},   SignalRow{"QUIT", SIGQUIT},
    SignalRow{"USR1", SIGUSR1}, SignalRow{"USR2", SIGUSR2}, SignalRow{"TERM", SIGTERM},
};

/// Brackets within brackets, outside of strings; strings that never end don't matter here.
bool is_deeper_than(std::string_view text, int limit) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > limit) return true;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return false;
}

/// Discarded if it isn't JSON, or too deep.
json parse(std::string_view text, int deepest) {
  if (is_deeper_than(text, deepest)) return json(json::value_t::discarded);
  return json::parse(text, nullptr, false);
}

std::string dump(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}
std::string line(const json& value) { return dump(value) + '\n'; }

std::string_view kind_of(const json& value) {
  switch (value.type()) {
    case json::value_t::null:
      return "null";
    case json::value_t::object:
      return "an object";
    case json::value_t::array:
      return "a list";
    case json::value_t::string:
      return "text";
    case json::value_t::boolean:
      return "true or false";
    default:
      return "a number";
  }
}

bool has_zero_byte(const std::string& text) { return text.find('\0') != std::string::npos; }

/// Reads the keys of one object, and gathers what is wrong.
class Reader {
 public:
  Reader(const json& object, std::string prefix, std::span<const std::string_view> known,
         Complaint& complaints)
      : object_{object}, prefix_{std::move(prefix)}, complaints_{complaints} {
    for (const auto& [key, value] : object.items()) {
      if (std::ranges::find(known, key) != known.end()) continue;
      const auto meant = nearest(key, known);
      complain(key,
               "is no key of this object" +
                   (meant.empty() ? std::string{} : " (did you mean " + std::string{meant} + "?)"));
    }
  }
  void complain(std::string_view key, const std::string& what) {
    // A body of a thousand wrong keys shall not give an answer of a thousand lines.
    constexpr std::size_t kMost = 20;
    if (complaints_.size() < kMost) complaints_.push_back(prefix_ + printable(key) + ": " + what);
  }
  [[nodiscard]] const json* find(std::string_view key) const {
    const auto found = object_.find(std::string{key});
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  void text(std::string_view key, std::string& into) {
    const auto* value = find(key);
    if (value == nullptr) return;
    if (!value->is_string()) return wrong_kind(key, *value, "text");
    into = value->get<std::string>();
    if (has_zero_byte(into)) complain(key, "contains a zero byte");
  }
  void number(std::string_view key, std::uint32_t& into, std::uint32_t least) {
    const auto* value = find(key);
    if (value == nullptr) return;
    constexpr std::uint64_t kMost = std::numeric_limits<std::uint32_t>::max();
    const bool is_right = value->is_number_unsigned() && value->get<std::uint64_t>() >= least &&
                          value->get<std::uint64_t>() <= kMost;
    if (!is_right)
      return wrong_kind(key, *value, "a whole number from " + std::to_string(least) + " on");
    into = value->get<std::uint32_t>();
  }
  void flag(std::string_view key, bool& into) {
    const auto* value = find(key);
    if (value == nullptr) return;
    if (!value->is_boolean()) return wrong_kind(key, *value, "true or false");
    into = value->get<bool>();
  }
  void wrong_kind(std::string_view key, const json& value, const std::string& expected) {
    complain(key,
             "expected " + expected + ", got " + std::string{kind_of(value)} +
                 (value.is_primitive() && !value.is_null() ? ' ' + shown(value) : std::string{}));
  }

 private:
  static std::string shown(const json& value) { return printable(dump(value), 60); }

  const json& object_;
  std::string prefix_;
  Complaint& complaints_;
};

/// The object of a body; nothing, and a complaint, if it isn't one.
std::optional<json> object_of(std::string_view body, Complaint& complaints) {
  auto value = parse(body, kDeepestBody);
  if (value.is_object()) return value;
  complaints.push_back(value.is_discarded()
                           ? "the body is no JSON, or nested too deeply"
                           : "the body must be an object, got " + std::string{kind_of(value)});
  return std::nullopt;
}

bool is_name(std::string_view text) {
  const auto is_first = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  return !text.empty() && text.size() <= kLongestName && is_first(text[0]) &&
         std::ranges::all_of(
             text, [&](char c) { return is_first(c) || c == '.' || c == '_' || c == '-'; });
}

void read_words(Reader& reader, std::vector<std::string>& into) {
  const auto* value = reader.find("words");
  if (value == nullptr)
    return reader.complain("words", "missing: the command line of acc-launch, as a list of text");
  if (!value->is_array()) return reader.wrong_kind("words", *value, "a list of text");
  if (value->empty()) return reader.complain("words", "is empty: a script at least is needed");
  for (std::size_t i = 0; i < value->size(); ++i) {
    const auto& word = (*value)[i];
    const auto key = "words[" + std::to_string(i) + ']';
    if (!word.is_string()) {
      reader.wrong_kind(key, word, "text");
      continue;
    }
    into.push_back(bytes_of(word.get<std::string>()));
    if (has_zero_byte(into.back())) reader.complain(key, "contains a zero byte");
  }
}

void read_env(Reader& reader, std::map<std::string, std::string>& into) {
  const auto* value = reader.find("env");
  if (value == nullptr) return;
  if (!value->is_object()) return reader.wrong_kind("env", *value, "an object of text");
  for (const auto& [name, text] : value->items()) {
    const auto key = "env." + name;
    if (name.empty() || name.find('=') != std::string::npos || has_zero_byte(name)) {
      reader.complain(key, "is no name of a variable");
    } else if (!text.is_string()) {
      reader.wrong_kind(key, text, "text");
    } else if (auto value_bytes = bytes_of(text.get<std::string>()); has_zero_byte(value_bytes)) {
      reader.complain(key, "contains a zero byte");
    } else {
      into[name] = std::move(value_bytes);
    }
  }
}

/// "022" as a shell writes it, or the number itself (18).
void read_umask(Reader& reader, mode_t& into) {
  const auto* value = reader.find("umask");
  if (value == nullptr) return;
  constexpr mode_t kMost = 0777;
  mode_t mask = kMost + 1;
  if (value->is_string()) {
    const auto text = value->get<std::string>();
    unsigned parsed = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), parsed, 8);
    if (error == std::errc{} && end == text.data() + text.size() && !text.empty()) mask = parsed;
  } else if (value->is_number_unsigned() && value->get<std::uint64_t>() <= kMost) {
    mask = value->get<mode_t>();
  }
  if (mask > kMost)
    return reader.wrong_kind("umask", *value, "octal digits as text: \"022\", at most \"777\"");
  into = mask;
}

void read_restart(Reader& reader, Submission& into, Complaint& complaints) {
  const auto* value = reader.find("restart");
  if (value == nullptr) return;
  if (!value->is_object())
    return reader.wrong_kind("restart", *value, "an object: {\"policy\": …, \"max\": …}");
  Reader inner{*value, "restart.", kRestartKeys, complaints};
  std::string policy{to_text(RestartRule::no)};
  inner.text("policy", policy);
  inner.number("max", into.max_starts_again, 0);
  for (const auto rule : {RestartRule::no, RestartRule::on_failure, RestartRule::always}) {
    if (policy != to_text(rule)) continue;
    into.restart = rule;
    return;
  }
  inner.complain("policy", "expected no, on-failure or always, got " + in_quotes(policy, 60));
}

void read_launch(Reader& reader, std::optional<Launch>& into, Complaint& complaints) {
  const auto* value = reader.find("launch");
  if (value == nullptr) return;
  if (!value->is_object())
    return reader.wrong_kind("launch", *value,
                             "an object: {\"id\": …, \"nodes\": K, \"node_rank\": i}");
  Reader inner{*value, "launch.", kLaunchKeys, complaints};
  Launch launch;
  inner.text("id", launch.id);
  if (!is_name(launch.id))
    inner.complain("id", in_quotes(launch.id, 80) +
                             ": small letters, digits, '.', '_' and '-', a letter or digit first, "
                             "at most 64; the same on all nodes");
  inner.number("nodes", launch.nodes, 1);
  inner.number("node_rank", launch.node_rank, 0);
  if (launch.node_rank >= launch.nodes)
    inner.complain("node_rank", "must be below nodes (" + std::to_string(launch.nodes) + ")");
  into = std::move(launch);
}

json to_json(const JobRecord& job) {
  return {{"id", job.id},
          {"name", job.submission.name},
          {"user", job.user},
          {"state", to_text(job.state)},
          {"exit_code", job.exit_code ? json(*job.exit_code) : json(nullptr)},
          {"reason", job.reason},
          {"submitted_ms", job.submitted_ms},
          {"started_ms", job.started_ms},
          {"ended_ms", job.ended_ms},
          {"pid", job.pid},
          {"starts", job.starts},
          {"slots", job.submission.slots},
          {"gpus", job.gpus},
          {"words", json_texts_of(job.submission.words)},
          {"working_directory", json_text_of(job.submission.working_directory)}};
}

json to_json(const JobEvent& event) {
  return {{"id", event.number},
          {"time_ms", event.time_ms},
          {"job", event.job},
          {"kind", event.kind},
          {"text", event.text}};
}

}  // namespace

Decoded<Submission> decode_submission(std::string_view body) {
  Decoded<Submission> out;
  const auto object = object_of(body, out.complaints);
  if (!object) return out;
  auto& job = out.value;
  Reader reader{*object, "", kSubmissionKeys, out.complaints};
  reader.text("name", job.name);
  if (!job.name.empty() && !is_name(job.name))
    reader.complain("name", in_quotes(job.name, 80) +
                                ": small letters, digits, '.', '_' and '-', a letter or digit "
                                "first, at most 64");
  read_words(reader, job.words);
  reader.text("working_directory", job.working_directory);
  job.working_directory = bytes_of(job.working_directory);
  if (!job.working_directory.starts_with('/'))
    reader.complain("working_directory",
                    job.working_directory.empty()
                        ? "missing: the folder in which the job runs, absolute"
                        : in_quotes(job.working_directory, 80) + ": must be absolute");
  read_env(reader, job.env);
  read_umask(reader, job.umask);
  reader.number("slots", job.slots, 1);
  reader.number("gpus", job.gpus, 0);
  reader.flag("wait", job.wait);
  reader.text("user", job.user);
  read_restart(reader, job, out.complaints);
  read_launch(reader, job.launch, out.complaints);
  reader.flag("check", job.only_checks);
  return out;
}

Decoded<std::optional<std::uint32_t>> decode_stop(std::string_view body) {
  Decoded<std::optional<std::uint32_t>> out;
  if (trim(body).empty()) return out;
  const auto object = object_of(body, out.complaints);
  if (!object) return out;
  Reader reader{*object, "", kStopKeys, out.complaints};
  if (reader.find("grace_s") == nullptr) return out;
  std::uint32_t grace = 0;
  reader.number("grace_s", grace, 0);
  out.value = grace;
  return out;
}

Decoded<int> decode_signal(std::string_view body) {
  Decoded<int> out;
  const auto object = object_of(body, out.complaints);
  if (!object) return out;
  Reader reader{*object, "", kSignalKeys, out.complaints};
  if (reader.find("signal") == nullptr) reader.complain("signal", "missing: \"SIGUSR1\"");
  std::string name;
  reader.text("signal", name);
  if (!out.is_right()) return out;
  auto plain = to_upper(name);
  if (plain.starts_with("SIG")) plain.erase(0, 3);
  for (const auto& row : kSignals) {
    if (row.name == plain) out.value = row.number;
  }
  if (out.value == 0)
    reader.complain("signal", in_quotes(name, 40) +
                                  " isn't passed on to workers: SIGTERM, SIGINT, SIGHUP, "
                                  "SIGQUIT, SIGUSR1 or SIGUSR2");
  return out;
}

Decoded<std::string> decode_drain(std::string_view body) {
  Decoded<std::string> out;
  const auto object = object_of(body, out.complaints);
  if (!object) return out;
  Reader reader{*object, "", kDrainKeys, out.complaints};
  reader.text("reason", out.value);
  constexpr std::size_t kLongest = 500;
  if (out.is_right() && (out.value.empty() || out.value.size() > kLongest))
    reader.complain("reason", out.value.empty() ? "missing: why the node takes no jobs"
                                                : "is longer than 500 bytes");
  return out;
}

std::string encode_job(const JobRecord& job, const JobDetails& details) {
  auto value = to_json(job);
  for (const auto& [key, text] :
       {std::pair<const char*, const std::string&>{"report", details.report},
        {"live", details.live}}) {
    if (text.empty()) continue;
    auto foreign = parse(text, kDeepestForeign);
    if (!foreign.is_discarded()) value[key] = std::move(foreign);
  }
  return line(value);
}

std::string encode_jobs(const std::vector<JobRecord>& jobs) {
  auto list = json::array();
  for (const auto& job : jobs) list.push_back(to_json(job));
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

std::string encode_event(const JobEvent& event) { return dump(to_json(event)); }

std::string encode_events(const std::vector<JobEvent>& events) {
  auto list = json::array();
  for (const auto& event : events) list.push_back(to_json(event));
  return line({{"events", std::move(list)}});
}

std::string encode_end(const JobRecord& job) {
  return dump({{"state", to_text(job.state)},
               {"exit_code", job.exit_code ? json(*job.exit_code) : json(nullptr)},
               {"reason", job.reason}});
}

std::string encode_nodes(const std::vector<NodeAnswer>& answers) {
  auto list = json::array();
  for (const auto& one : answers) {
    auto facts = one.facts.empty() ? json(nullptr) : parse(one.facts, kDeepestForeign);
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
               {"gpus_free", checked.gpus_free}});
}

std::string encode_error(unsigned status, const std::string& what, const Complaint& complaints,
                         std::string_view code) {
  json value{{"error", what}, {"code", code.empty() ? error_code_of(status) : code}};
  if (!complaints.empty()) value["complaints"] = complaints;
  return line(value);
}

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

std::vector<BodyKeys> body_keys() {
  const auto all = [](auto& keys) {
    return std::vector<std::string_view>(keys.begin(), keys.end());
  };
  return {{"Submission", all(kSubmissionKeys)}, {"Restart", all(kRestartKeys)},
          {"Launch", all(kLaunchKeys)},         {"Stop", all(kStopKeys)},
          {"Signal", all(kSignalKeys)},         {"Drain", all(kDrainKeys)}};
}

}  // namespace acc::agent::daemon
