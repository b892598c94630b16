#include "agent/preload/preload_environment.hpp"

#include "common/text.hpp"
#include "common/worker_env.hpp"

#include <algorithm>
#include <array>
#include <unordered_map>
#include <utility>

namespace acc::agent::preload {

namespace env = worker_env;

namespace {

// The agent gives them a new value in each round, or the terminal does.
constexpr std::array kOfRounds{env::kRank,
                               env::kLocalRank,
                               env::kRoleRank,
                               env::kMasterPort,
                               env::kRestartCount,
                               env::kErrorFile,
                               env::kPmiRank,
                               env::kPmiSize,
                               env::kPmiFd,
                               env::kMpiLocalRank,
                               env::kMpiLocalSize,
                               env::kAccRound,
                               env::kAccRestartCount,
                               env::kAccAgentSocket,
                               env::kAccHeartbeatPage,
                               env::kAccRestartReason};
constexpr std::array kOfPlaces{env::kWorldSize,  env::kRoleWorldSize,  env::kGroupRank,
                               env::kMasterAddr, env::kGroupWorldSize, env::kMaxRestarts};
// A window may be resized at any time, so that nobody may rely on what it was at import.
constexpr std::array kOfTheTerminal{env::kColumns, env::kLines};
constexpr std::array<std::string_view, 10> kReadByLibraries{
    "OMP_", "KMP_", "GOMP_", "MKL_", "OPENBLAS_", "BLIS_", "GOTO_", "LD_", "MALLOC_", "GLIBC_"};

constexpr std::array<std::string_view, 3> kPlacements{"OMP_PLACES", "OMP_PROC_BIND",
                                                      "GOMP_CPU_AFFINITY"};

std::string_view name_of(std::string_view entry) { return entry.substr(0, entry.find('=')); }

bool is_of_the_terminal(std::string_view name) {
  return std::ranges::find(kOfTheTerminal, name) != kOfTheTerminal.end();
}

/// "NAME=VALUE" of the rank for which the terminal leaves least: what is drawn by it fits all
/// others too. Empty: no rank has it.
std::string narrowest(const std::vector<WorkerEnvironment>& workers, std::string_view name) {
  std::string found;
  for (const auto& worker : workers) {
    for (const char* const* entry = worker.pointers.data(); *entry != nullptr; ++entry) {
      const std::string_view text{*entry};
      if (name_of(text) != name) continue;
      if (found.empty() ||
          std::pair{text.size(), text} < std::pair{found.size(), std::string_view{found}})
        found = text;
    }
  }
  return found;
}

}  // namespace

PreloadEnvironment::PreloadEnvironment(const std::vector<WorkerEnvironment>& workers,
                                       bool has_other_nodes) {
  for (const auto name : kOfRounds) own_set_.emplace(name);
  if (has_other_nodes)
    for (const auto name : kOfPlaces) own_set_.emplace(name);
  std::unordered_map<std::string_view, std::size_t> holders;  // of the same name and value
  for (const auto& worker : workers)
    for (const char* const* entry = worker.pointers.data(); *entry != nullptr; ++entry)
      ++holders[*entry];
  for (const auto& [entry, count] : holders)
    if (count < workers.size() && !is_of_the_terminal(name_of(entry)))
      own_set_.emplace(name_of(entry));
  for (const char* const* entry = workers.front().pointers.data(); *entry != nullptr; ++entry)
    if (!own_set_.contains(std::string{name_of(*entry)}) && !is_of_the_terminal(name_of(*entry)))
      shared_.emplace_back(*entry);
  shared_set_ = {shared_.begin(), shared_.end()};
  own_names_ = {own_set_.begin(), own_set_.end()};
  std::ranges::sort(own_names_);
  for (const auto name : kOfTheTerminal)
    if (auto entry = narrowest(workers, name); !entry.empty()) shared_.push_back(std::move(entry));
}

std::string PreloadEnvironment::unobservable() const {
  const auto found = std::ranges::find_if(own_names_, [](const std::string& name) {
    return std::ranges::any_of(kReadByLibraries,
                               [&](std::string_view begin) { return name.starts_with(begin); });
  });
  return found != own_names_.end() ? *found : std::string{};
}

std::string PreloadEnvironment::placement() const {
  const auto found = std::ranges::find_if(shared_, [](const std::string& entry) {
    const auto name = name_of(entry);
    if (std::ranges::find(kPlacements, name) == kPlacements.end()) return false;
    return !entry.ends_with("=") && to_lower(entry.substr(name.size())) != "=false";
  });
  return found != shared_.end() ? std::string{name_of(*found)} : std::string{};
}

bool PreloadEnvironment::fits(const char* const* envp) const {
  std::size_t known = 0;
  for (; *envp != nullptr; ++envp) {
    if (shared_set_.contains(*envp)) {
      ++known;
    } else if (const auto name = name_of(*envp);
               !own_set_.contains(std::string{name}) && !is_of_the_terminal(name)) {
      return false;
    }
  }
  return known == shared_set_.size();
}

}  // namespace acc::agent::preload
