#include "agent/daemon/guardian_words.hpp"

#include "agent/job_folder_notes.hpp"
#include "common/text.hpp"

#include <algorithm>
#include <climits>
#include <string_view>

namespace acc::agent::daemon {

namespace {

constexpr std::size_t kMostWords = 4096;
constexpr std::size_t kMostBytes = std::size_t{256} << 10U;  // of words, and of the environment

// "--log-dir=x" names "log_dir", as acc-launch reads it.
bool names(std::string_view word, std::string_view option) {
  if (!word.starts_with("--")) return false;
  std::string name{word.substr(2, word.find('=') == word.npos ? word.npos : word.find('=') - 2)};
  std::ranges::replace(name, '-', '_');
  return name == option;
}

bool is_short(std::string_view word, char letter) {
  return word.size() >= 2 && word[0] == '-' && word[1] == letter;
}

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_variable_name(std::string_view name) {
  return !name.empty() && is_letter(name[0]) &&
         std::ranges::all_of(name, [](char c) { return is_letter(c) || is_digit(c); });
}

bool has_nul(std::string_view text) { return text.find('\0') != text.npos; }

std::string complaint_of_words(const Submission& submission) {
  if (submission.words.empty()) return "words: empty: what is to be run?";
  std::size_t bytes = 0;
  for (const auto& word : submission.words) {
    if (has_nul(word)) return "words: a NUL byte in " + in_quotes(word, 80);
    bytes += word.size() + 1;
  }
  if (submission.words.size() > kMostWords || bytes > kMostBytes)
    return "words: " + std::to_string(submission.words.size()) + " with " + std::to_string(bytes) +
           " bytes; at most " + std::to_string(kMostWords) + " with " + std::to_string(kMostBytes);
  return {};
}

std::string complaint_of_env(const Submission& submission) {
  std::size_t bytes = 0;
  for (const auto& [name, value] : submission.env) {
    if (!is_variable_name(name)) return "env: " + in_quotes(name, 80) + " is no variable's name";
    if (has_nul(value)) return "env: a NUL byte in the value of " + name;
    bytes += name.size() + value.size() + 2;
  }
  if (bytes > kMostBytes)
    return "env: " + std::to_string(bytes) + " bytes; at most " + std::to_string(kMostBytes);
  return {};
}

}  // namespace

std::vector<std::string> guardian_words(const std::vector<std::string>& submitted,
                                        const std::string& user_folder) {
  const auto has = [&](auto matches) { return std::ranges::any_of(submitted, matches); };
  std::vector<std::string> words;
  if (!has([](const auto& word) { return names(word, "report"); })) {
    words.insert(words.end(), {"--report", user_folder + "/report.json"});
  }
  const bool has_logs = has([](const auto& word) {
    return names(word, "log_dir") || names(word, "tee") || names(word, "redirects") ||
           is_short(word, 'r') || is_short(word, 't');
  });
  if (!has_logs) words.insert(words.end(), {"--log_dir", user_folder + "/logs", "--tee", "3"});
  // On several hosts each would get the path, which only this one has.
  const bool has_events = has([](const auto& word) {
    return names(word, "events") || names(word, "hosts") || names(word, "hostfile");
  });
  if (!has_events)
    words.insert(words.end(), {"--events", user_folder + "/events.jsonl", "--events_size", "16M"});
  words.insert(words.end(), submitted.begin(), submitted.end());
  return words;
}

std::vector<std::string> guardian_environment(const LoginUser& user, const Submission& submission,
                                              const std::string& user_folder,
                                              const std::optional<GpuNumbers>& gpus,
                                              const std::string& lang) {
  std::map<std::string, std::string> env{
      {"HOME", user.home},
      {"USER", user.name},
      {"LOGNAME", user.name},
      {"SHELL", user.shell},
      {"PATH", user.uid == 0 ? "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
                             : "/usr/local/bin:/usr/bin:/bin"},
      {"LANG", lang},
  };
  if (gpus) {
    std::vector<std::string> numbers;
    for (const auto gpu : *gpus) numbers.push_back(std::to_string(gpu));
    env["CUDA_VISIBLE_DEVICES"] = join(numbers, ",");
  }
  for (const auto& [name, value] : submission.env) env[name] = value;
  env[kJobFolderVariable] = user_folder;
  std::vector<std::string> assignments;
  assignments.reserve(env.size());
  for (const auto& [name, value] : env) assignments.push_back(name + '=' + value);
  return assignments;
}

bool is_job_name(std::string_view text) {
  const auto is_lower = [](char c) { return (c >= 'a' && c <= 'z') || is_digit(c); };
  return !text.empty() && text.size() <= kLongestJobName && is_lower(text[0]) &&
         std::ranges::all_of(
             text, [&](char c) { return is_lower(c) || c == '.' || c == '_' || c == '-'; });
}

std::size_t memory_of(const Submission& submission) {
  constexpr std::size_t kOfWord = 32;
  constexpr std::size_t kOfVariable = 128;  // a node of the map with two strings
  std::size_t bytes = submission.working_directory.size();
  for (const auto& word : submission.words) bytes += word.size() + kOfWord;
  for (const auto& [name, value] : submission.env)
    bytes += name.size() + value.size() + kOfVariable;
  return bytes;
}

std::string submission_complaint(const Submission& submission) {
  if (!submission.name.empty() && !is_job_name(submission.name))
    return "name: " + in_quotes(submission.name, 80) +
           ": a-z, 0-9, '.', '_' and '-', a letter or digit first, at most 64";
  if (auto complaint = complaint_of_words(submission); !complaint.empty()) return complaint;
  if (auto complaint = complaint_of_env(submission); !complaint.empty()) return complaint;
  const auto& folder = submission.working_directory;
  if (folder.empty() || folder[0] != '/' || has_nul(folder) || folder.size() >= PATH_MAX)
    return "working_directory: " + in_quotes(folder, 80) + " is not an absolute path";
  if (has_nul(submission.user) || submission.user.size() > 256) return "user: no user's name";
  if ((submission.umask & ~static_cast<mode_t>(0777)) != 0) return "umask: above 0777";
  if (submission.launch && !is_job_name(submission.launch->id))
    return "launch.id: " + in_quotes(submission.launch->id, 80) + " is no launch's id";
  if (submission.launch && submission.launch->node_rank >= submission.launch->nodes)
    return "launch.node_rank: must be below launch.nodes";
  if (submission.slots == 0 && submission.gpus == 0) return "slots: at least 1, or a GPU";
  return {};
}

}  // namespace acc::agent::daemon
