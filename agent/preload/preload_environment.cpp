#include "agent/preload/preload_environment.hpp"

#include "common/worker_env.hpp"

#include <algorithm>
#include <array>
#include <unordered_map>

namespace acc::agent::preload {

namespace env = worker_env;

namespace {

// The agent gives them a new value in each round, or the terminal does.
constexpr std::array kOfRounds{env::kRank,         env::kLocalRank,        env::kRoleRank,
                               env::kMasterPort,   env::kRestartCount,     env::kErrorFile,
                               env::kPmiRank,      env::kPmiSize,          env::kPmiFd,
                               env::kMpiLocalRank, env::kMpiLocalSize,     env::kAccRound,
                               env::kColumns,      env::kLines,            env::kAccRestartCount,
                               env::kAccAgentSocket, env::kAccHeartbeatPage,
                               env::kAccRestartReason};
constexpr std::array kOfPlaces{env::kWorldSize, env::kRoleWorldSize,   env::kGroupRank,
                               env::kMasterAddr, env::kGroupWorldSize, env::kMaxRestarts};
constexpr std::array<std::string_view, 10> kReadByLibraries{
    "OMP_", "KMP_", "GOMP_", "MKL_", "OPENBLAS_", "BLIS_", "GOTO_", "LD_", "MALLOC_", "GLIBC_"};

std::string_view name_of(std::string_view entry) { return entry.substr(0, entry.find('=')); }

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
    if (count < workers.size()) own_set_.emplace(name_of(entry));
  for (const char* const* entry = workers.front().pointers.data(); *entry != nullptr; ++entry)
    if (!own_set_.contains(std::string{name_of(*entry)})) shared_.emplace_back(*entry);
  shared_set_ = {shared_.begin(), shared_.end()};
  own_names_ = {own_set_.begin(), own_set_.end()};
  std::ranges::sort(own_names_);
}

std::string PreloadEnvironment::unobservable() const {
  const auto found = std::ranges::find_if(own_names_, [](const std::string& name) {
    return std::ranges::any_of(kReadByLibraries,
                               [&](std::string_view begin) { return name.starts_with(begin); });
  });
  return found != own_names_.end() ? *found : std::string{};
}

bool PreloadEnvironment::fits(const char* const* envp) const {
  std::size_t known = 0;
  for (; *envp != nullptr; ++envp) {
    if (shared_set_.contains(*envp)) {
      ++known;
    } else if (!own_set_.contains(std::string{name_of(*envp)})) {
      return false;
    }
  }
  return known == shared_set_.size();
}

}  // namespace acc::agent::preload
