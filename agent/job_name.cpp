#include "agent/job_name.hpp"

#include "common/fnv.hpp"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>

namespace acc::agent {

bool is_made_up(const std::string& job) {
  constexpr std::string_view kUuid = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
  const auto fits = [](char shape, char c) { return (shape == '-') == (c == '-'); };
  return job == "none" ||
         (job.size() == kUuid.size() && std::equal(kUuid.begin(), kUuid.end(), job.begin(), fits));
}

static std::string base_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// Of "python -u train.py --lr 1" the script, else the program; empty: there is no command.
static std::string script_of(const std::vector<std::string>& words) {
  if (words.empty()) return {};
  const auto program = base_of(words.front());
  if (!program.starts_with("python") && !program.starts_with("pypy")) return words.front();
  const auto script = std::find_if(words.begin() + 1, words.end(),
                                   [](const auto& word) { return !word.starts_with('-'); });
  return script != words.end() ? *script : words.front();
}

std::string job_name(const JobPlan& plan) {
  if (!is_made_up(plan.cluster.job)) return plan.cluster.job;
  if (plan.command.empty()) return "job";
  const auto name = base_of(script_of(plan.command));
  return name.ends_with(".py") ? name.substr(0, name.size() - 3) : name;
}

std::string command_mark(const JobPlan& plan) {
  std::string text;
  if (!script_of(plan.command).starts_with('/')) {
    std::error_code failed;
    text = std::filesystem::current_path(failed).string();
  }
  for (const auto& word : plan.command) text += '\0' + word;
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string mark;
  for (auto hash = fnv1a(text); mark.size() < 3; hash >>= 4U) mark += kDigits[hash % 16];
  return mark;
}

}  // namespace acc::agent
