#include "agent/daemon/job_record.hpp"

#include "agent/daemon/guardian_words.hpp"
#include "common/enum_names.hpp"
#include "common/json_bounds.hpp"
#include "common/json_bytes.hpp"
#include "common/text.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>

namespace acc::agent::daemon {

namespace {

using Json = nlohmann::json;

constexpr EnumNames<Phase, Phase::ended> kPhases{
    {"queued", "delayed", "starting", "running", "stopping", "ended"}};
constexpr EnumNames<JobState, JobState::stopped> kStates{
    {"waiting", "running", "stopping", "succeeded", "failed", "stopped"}};
constexpr EnumNames<RestartRule, RestartRule::always> kRules{{"no", "on-failure", "always"}};

constexpr int kDeepestRecord = 16;

// Reads members of one object; the first complaint stays.
class RecordReader {
 public:
  RecordReader(const Json& object, std::string where) : object_{object}, where_{std::move(where)} {}

  template <class T>
  void number(const char* key, T& value) {
    const Json* found = member(key);
    if (found == nullptr) return;
    if constexpr (std::is_unsigned_v<T>) {
      if (found->is_number_unsigned() &&
          found->get<std::uint64_t>() <= std::numeric_limits<T>::max()) {
        value = static_cast<T>(found->get<std::uint64_t>());
        return;
      }
    } else if (found->is_number_unsigned()
                   ? found->get<std::uint64_t>() <=
                         static_cast<std::uint64_t>(std::numeric_limits<T>::max())
                   : found->is_number_integer() &&
                         found->get<std::int64_t>() >= std::numeric_limits<T>::min()) {
      value = static_cast<T>(found->get<std::int64_t>());
      return;
    }
    complain(key, "is no number that fits");
  }

  void text(const char* key, std::string& value) {
    const Json* found = member(key);
    if (found == nullptr) return;
    if (!found->is_string()) return complain(key, "is no text");
    value = bytes_of(found->get_ref<const std::string&>());
  }

  void boolean(const char* key, bool& value) {
    const Json* found = member(key);
    if (found == nullptr) return;
    if (!found->is_boolean()) return complain(key, "is neither true nor false");
    value = found->get<bool>();
  }

  template <class Names, class Enum>
  void name(const char* key, const Names& names, Enum& value) {
    std::string text_of_it;
    text(key, text_of_it);
    const auto found = names.find(text_of_it);
    if (!found) return complain(key, "is unknown: " + in_quotes(text_of_it, 40));
    value = *found;
  }

  /// null: none.
  template <class T>
  void optional(const char* key, std::optional<T>& value) {
    const Json* found = member(key);
    if (found == nullptr || found->is_null()) return;
    T number_of_it{};
    number(key, number_of_it);
    value = number_of_it;
  }

  const Json* member(const char* key) {
    const auto found = object_.find(key);
    if (found != object_.end()) return &*found;
    complain(key, "is missing");
    return nullptr;
  }

  void complain(const char* key, const std::string& what) {
    if (complaint_.empty()) complaint_ = where_ + key + " " + what;
  }
  [[nodiscard]] const std::string& complaint() const { return complaint_; }

 private:
  const Json& object_;
  std::string where_;
  std::string complaint_;
};

Json submission_json(const Submission& submission) {
  Json words = Json::array();
  for (const auto& word : submission.words) words.push_back(json_text_of(word));
  Json env = Json::object();
  for (const auto& [name, value] : submission.env) env[name] = json_text_of(value);
  Json launch;
  if (const auto& part = submission.launch)
    launch = {{"id", part->id},
              {"nodes", part->nodes},
              {"node_rank", part->node_rank},
              {"key_id", part->key_id}};
  return {{"launch", std::move(launch)},
          {"name", submission.name},
          {"words", std::move(words)},
          {"working_directory", json_text_of(submission.working_directory)},
          {"env", std::move(env)},
          {"umask", submission.umask},
          {"slots", submission.slots},
          {"gpus", submission.gpus},
          {"wait", submission.wait}};
}

std::string read_submission(const Json& object, Submission& submission) {
  RecordReader reader{object, "submission."};
  reader.text("name", submission.name);
  reader.text("working_directory", submission.working_directory);
  reader.number("umask", submission.umask);
  reader.number("slots", submission.slots);
  reader.number("gpus", submission.gpus);
  reader.boolean("wait", submission.wait);
  if (const Json* words = reader.member("words"); words != nullptr) {
    if (!words->is_array()) reader.complain("words", "is no list");
    for (const auto& word : *words) {
      if (!word.is_string()) {
        reader.complain("words", "has a word that is no text");
        break;
      }
      submission.words.push_back(bytes_of(word.get_ref<const std::string&>()));
    }
  }
  if (const Json* env = reader.member("env"); env != nullptr) {
    if (!env->is_object()) {
      reader.complain("env", "is no object");
    } else {
      for (const auto& [name, value] : env->items()) {
        if (!value.is_string()) {
          reader.complain("env", "has a value that is no text");
          break;
        }
        submission.env[name] = bytes_of(value.get_ref<const std::string&>());
      }
    }
  }
  if (const auto launch = object.find("launch"); launch != object.end() && !launch->is_null()) {
    if (!launch->is_object()) return "submission.launch is no object";
    RecordReader part{*launch, "submission.launch."};
    Launch& into = submission.launch.emplace();
    part.text("id", into.id);
    part.number("nodes", into.nodes);
    part.number("node_rank", into.node_rank);
    part.text("key_id", into.key_id);
    if (!part.complaint().empty()) return part.complaint();
  }
  if (!reader.complaint().empty()) return reader.complaint();
  const auto complaint = submission_complaint(submission);
  return complaint.empty() ? complaint : "submission." + complaint;
}

Json life_json(const JobLife& life) {
  const auto or_null = [](const auto& value) { return value ? Json(*value) : Json(nullptr); };
  return {{"phase", kPhases[life.phase]},        {"end", kStates[life.end]},
          {"stop_asked", life.stop_asked},       {"again", life.again},
          {"asks_anew", life.asks_anew},         {"max_starts_again", life.max_starts_again},
          {"grace_s", or_null(life.grace_s)},    {"exit_code", or_null(life.exit_code)},
          {"reason", json_text_of(life.reason)}, {"starts", life.starts},
          {"starts_again", life.starts_again},   {"quick_failures", life.quick_failures},
          {"restart", kRules[life.rule]},        {"postponed", life.postponed}};
}

std::string read_life(const Json& object, JobLife& life) {
  RecordReader reader{object, "life."};
  reader.name("phase", kPhases, life.phase);
  reader.name("end", kStates, life.end);
  reader.boolean("stop_asked", life.stop_asked);
  reader.boolean("again", life.again);
  reader.boolean("asks_anew", life.asks_anew);
  reader.optional("grace_s", life.grace_s);
  reader.optional("exit_code", life.exit_code);
  reader.text("reason", life.reason);
  reader.number("starts", life.starts);
  reader.number("starts_again", life.starts_again);
  reader.number("quick_failures", life.quick_failures);
  reader.number("postponed", life.postponed);
  reader.name("restart", kRules, life.rule);
  reader.number("max_starts_again", life.max_starts_again);
  return reader.complaint();
}

void read_gpus(RecordReader& reader, std::vector<std::uint32_t>& gpus) {
  const Json* list = reader.member("gpus");
  if (list == nullptr) return;
  constexpr std::size_t kMost = 1024;
  if (!list->is_array() || list->size() > kMost) return reader.complain("gpus", "is no list");
  for (const auto& gpu : *list) {
    if (!gpu.is_number_unsigned() || gpu.get<std::uint64_t>() > 65535)
      return reader.complain("gpus", "has what is no GPU's number");
    gpus.push_back(gpu.get<std::uint32_t>());
  }
}

Error damaged(const std::string& what) { return {Errc::malformed, "job.json: " + what}; }

}  // namespace

std::string encode_job(const StoredJob& job) {
  const Json json{{"format", kJobFormat},
                  {"id", job.id},
                  {"uid", job.uid},
                  {"gid", job.gid},
                  {"user", json_text_of(job.user)},
                  {"submission", submission_json(*job.submission)},
                  {"life", life_json(job.life)},
                  {"submitted_ms", job.submitted_ms},
                  {"started_ms", job.started_ms},
                  {"ended_ms", job.ended_ms},
                  {"pid", job.guardian.pid},
                  {"pid_start_time", job.guardian.start_time},
                  {"boot_id", job.guardian.boot_id},
                  {"gpus", job.gpus},
                  {"bytes", job.bytes},
                  {"job_file", job.job_file},
                  {"program", json_text_of(job.program)},
                  {"file_digest", job.file_digest},
                  {"file_boot_id", job.boot_id}};
  return json.dump(1) + "\n";
}

Result<StoredJob> decode_job(std::string_view text) {
  if (text.size() > kMaxJobFile) return damaged("larger than 4 MiB");
  if (is_json_beyond(text, kDeepestRecord)) return damaged("nested too deeply");
  const Json root = Json::parse(text, nullptr, false);
  if (!root.is_object()) return damaged(text.empty() ? "empty" : "not a JSON object");
  StoredJob job;
  RecordReader reader{root, ""};
  int format = 0;
  reader.number("format", format);
  if (reader.complaint().empty() && format != kJobFormat)
    return damaged("format " + std::to_string(format) + ", this version reads " +
                   std::to_string(kJobFormat));
  reader.text("id", job.id);
  reader.number("uid", job.uid);
  reader.number("gid", job.gid);
  reader.text("user", job.user);
  reader.number("submitted_ms", job.submitted_ms);
  reader.number("started_ms", job.started_ms);
  reader.number("ended_ms", job.ended_ms);
  reader.number("pid", job.guardian.pid);
  reader.number("pid_start_time", job.guardian.start_time);
  reader.text("boot_id", job.guardian.boot_id);
  read_gpus(reader, job.gpus);
  reader.number("bytes", job.bytes);
  reader.text("job_file", job.job_file);
  if (root.contains("program")) reader.text("program", job.program);  // not of older daemons
  reader.text("file_digest", job.file_digest);
  reader.text("file_boot_id", job.boot_id);
  const Json* submission = reader.member("submission");
  const Json* life = reader.member("life");
  if (!reader.complaint().empty()) return damaged(reader.complaint());
  if (!is_job_id(job.id)) return damaged("id " + in_quotes(job.id, 80) + " is no job's id");
  if (job.guardian.pid < 0 || job.guardian.pid == 1) return damaged("pid is none of a guardian");
  if (!submission->is_object()) return damaged("submission is no object");
  if (!life->is_object()) return damaged("life is no object");
  if (auto wrong = read_submission(*submission, job.submission.edit()); !wrong.empty())
    return damaged(wrong);
  if (auto wrong = read_life(*life, job.life); !wrong.empty()) return damaged(wrong);
  return job;
}

Result<ExitNote> decode_exit(std::string_view text) {
  constexpr std::size_t kLongest = 4096;
  const auto wrong = [](const std::string& what) {
    return Error{Errc::malformed, "exit.json: " + what};
  };
  if (text.size() > kLongest) return wrong("larger than 4 KiB");
  if (is_json_beyond(text, kDeepestRecord)) return wrong("nested too deeply");
  const Json root = Json::parse(text, nullptr, false);
  if (!root.is_object()) return wrong("not a JSON object");
  ExitNote note;
  RecordReader reader{root, ""};
  reader.number("exit_code", note.exit_code);
  reader.number("time_ms", note.time_ms);
  if (root.contains("stopped")) reader.boolean("stopped", note.was_stopped);
  if (root.contains("not_started")) reader.text("not_started", note.not_started);
  if (!reader.complaint().empty()) return wrong(reader.complaint());
  if (note.exit_code < 0 || note.exit_code > 255) return wrong("exit_code is none");
  return note;
}

std::string_view name_of(JobState state) { return kStates[state]; }
std::string_view name_of(RestartRule rule) { return kRules[rule]; }

bool is_job_id(std::string_view text) {
  const auto dash = text.rfind('-');
  if (dash == std::string_view::npos || !is_job_name(text.substr(0, dash))) return false;
  const auto random = text.substr(dash + 1);
  return random.size() == 6 && std::ranges::all_of(random, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
         });
}

}  // namespace acc::agent::daemon
