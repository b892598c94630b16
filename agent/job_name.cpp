#include "agent/job_name.hpp"

#include <algorithm>
#include <string_view>

namespace acc::agent {

bool is_made_up(const std::string& job) {
  constexpr std::string_view kUuid = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
  const auto fits = [](char shape, char c) { return (shape == '-') == (c == '-'); };
  return job == "none" ||
         (job.size() == kUuid.size() && std::equal(kUuid.begin(), kUuid.end(), job.begin(), fits));
}

std::string job_name(const JobPlan& plan) {
  if (!is_made_up(plan.cluster.job)) return plan.cluster.job;
  const auto& words = plan.command;
  const auto base = [](const std::string& path) { return path.substr(path.rfind('/') + 1); };
  std::string name = words.empty() ? "job" : base(words.front());
  if (name.starts_with("python") || name.starts_with("pypy")) {
    const auto script = std::find_if(words.begin() + 1, words.end(),
                                     [](const auto& word) { return !word.starts_with('-'); });
    if (script != words.end()) name = base(*script);
  }
  return name.ends_with(".py") ? name.substr(0, name.size() - 3) : name;
}

}  // namespace acc::agent
