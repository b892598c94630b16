#include "agent/environment.hpp"

#include "agent/job_folder_notes.hpp"
#include "agent/pmi_session.hpp"
#include "common/heartbeat_slot.hpp"
#include "common/worker_env.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>

namespace acc::agent {

namespace env = worker_env;

namespace {

// Variables of the service manager are not meant for the workers: one that used them would act in
// our name. Nor is the password of etcd; and an acc-launch that a worker starts is no guardian of
// the daemon's job.
constexpr std::array<std::string_view, 8> kNotForWorkers{
    "NOTIFY_SOCKET", "WATCHDOG_USEC",  "WATCHDOG_PID",  "LISTEN_FDS",
    "LISTEN_PID",    "LISTEN_FDNAMES", "ACC_ETCD_USER", kJobFolderVariable};

std::string assignment(std::string_view name, std::string_view value) {
  std::string text;
  text.reserve(name.size() + value.size() + 1);
  text.append(name).append(1, '=').append(value);
  return text;
}

bool is_for_workers(std::string_view name) {
  for (const auto hidden : kNotForWorkers) {
    if (name == hidden) return false;
  }
  return true;
}

/// Of a relative --log_dir: a script may change its folder before it fails.
std::string absolute_path(const std::string& path) {
  std::error_code failed;
  auto whole = path.empty() ? path : std::filesystem::absolute(path, failed).string();
  return failed ? path : whole;
}

}  // namespace

std::string error_file_path(const std::string& error_folder, LocalRank local) {
  return error_folder + '/' + std::to_string(local.value()) + "/error.json";
}

void RoundEnvironment::add_shared(std::string_view name, std::string value) {
  shared_.insert_or_assign(std::string{name}, std::move(value));
}

RoundEnvironment::RoundEnvironment(const JobPlan& plan, std::span<const char* const> caller,
                                   const RoundFacts& facts)
    : elastic_{plan.kind == JobKind::elastic},
      pmi_{elastic_ && plan.pmi},
      ranks_{facts.assignment.ranks},
      error_folder_{absolute_path(facts.error_folder)},
      heartbeat_page_{facts.heartbeat_page},
      console_{facts.console} {
  for (const std::string_view entry : caller) {
    const auto equals = entry.find('=');
    if (equals == std::string_view::npos || !is_for_workers(entry.substr(0, equals))) continue;
    shared_.emplace(entry.substr(0, equals),
                    entry.substr(equals + 1));  // the first of two counts, as for getenv
  }
  for (const auto& [name, value] : plan.env) add_shared(name, value);
  const auto& place = facts.assignment;
  if (elastic_) {
    const std::string world = std::to_string(place.world_size.value());
    add_shared(env::kWorldSize, world);
    add_shared(env::kRoleWorldSize, world);
    add_shared(env::kLocalWorldSize, std::to_string(plan.local_world_size));
    add_shared(env::kGroupRank, std::to_string(place.node_rank.value()));
    add_shared(env::kGroupWorldSize, std::to_string(place.nodes));
    add_shared(env::kRoleName, plan.role);
    add_shared(env::kMasterAddr, place.master.addr);
    add_shared(env::kMasterPort, std::to_string(place.master.port));
    add_shared(env::kRestartCount, std::to_string(facts.restarts));
    add_shared(env::kMaxRestarts, std::to_string(facts.max_restarts));
    add_shared(env::kRunId, plan.cluster.job);
    add_shared(env::kUseAgentStore, "False");
    shared_.try_emplace(std::string{env::kNcclAsync}, "1");
    shared_.try_emplace(std::string{env::kTorchNcclAsync}, "1");
  }
  if (pmi_) {
    add_shared(env::kPmiSize, std::to_string(place.world_size.value()));
    add_shared(env::kPmiFd, std::to_string(pmi::kWorkerFd));
    add_shared(env::kMpiLocalSize, std::to_string(plan.local_world_size));
  }
  add_shared(env::kAccJobId, facts.job_id);
  add_shared(env::kAccRound, std::to_string(place.round.value()));
  add_shared(env::kAccRestartCount, std::to_string(facts.restarts));
  add_shared(env::kAccRestartReason, facts.restart_reason);
  // Without one of ours, that of an agent around us must not be taken for it.
  shared_.erase(std::string{env::kAccAgentSocket});
  if (!facts.agent_socket.empty()) add_shared(env::kAccAgentSocket, facts.agent_socket);
  shared_.erase(std::string{env::kAccHeartbeatPage});
  if (elastic_) {
    for (const auto name :
         {env::kRank, env::kLocalRank, env::kRoleRank, env::kPmiRank, env::kMpiLocalRank})
      shared_.erase(std::string{name});
    if (!error_folder_.empty()) shared_.erase(std::string{env::kErrorFile});
  }
  shared_text_.reserve(shared_.size());
  for (const auto& [name, value] : shared_) shared_text_.push_back(assignment(name, value));
}

bool RoundEnvironment::is_set_by_caller(std::string_view name) const {
  const auto is_set = [&](std::string_view other) { return shared_.contains(other); };
  if (is_set(name)) return true;
  return name == env::kNoColor && (is_set("FORCE_COLOR") || is_set("CLICOLOR_FORCE"));
}

void RoundEnvironment::add_console(LocalRank local, WorkerEnvironment& worker,
                                   std::vector<std::string>& overridden) const {
  if (!console_) return;
  for (const auto& variable : console_(local)) {
    const bool is_set = is_set_by_caller(variable.name);
    if (is_set && !variable.overrides) continue;
    worker.own.push_back(assignment(variable.name, variable.value));
    if (is_set) overridden.push_back(assignment(variable.name, ""));
  }
}

WorkerEnvironment RoundEnvironment::for_worker(LocalRank local) {
  WorkerEnvironment worker;
  std::vector<std::string> overridden;  // "NAME=" of shared ones that this worker has otherwise
  add_console(local, worker, overridden);
  if (!heartbeat_page_.empty()) {
    const auto offset = heartbeat::slot_offset(local.value());
    worker.own.push_back(
        assignment(env::kAccHeartbeatPage, heartbeat_page_ + ':' + std::to_string(offset)));
  }
  if (elastic_) {
    const std::string rank = std::to_string(ranks_.of(local).value());
    const auto own = [&](std::string_view name, const std::string& value) {
      worker.own.push_back(assignment(name, value));
    };
    own(env::kRank, rank);
    own(env::kRoleRank, rank);
    own(env::kLocalRank, std::to_string(local.value()));
    if (pmi_) {
      own(env::kPmiRank, rank);
      own(env::kMpiLocalRank, std::to_string(local.value()));
    }
    if (!error_folder_.empty()) own(env::kErrorFile, error_file_path(error_folder_, local));
  }
  const auto is_overridden = [&](const std::string& text) {
    return std::ranges::any_of(overridden,
                               [&](const auto& name) { return text.starts_with(name); });
  };
  worker.pointers.reserve(worker.own.size() + shared_text_.size() + 1);
  for (auto& text : worker.own) worker.pointers.push_back(text.data());
  for (auto& text : shared_text_)
    if (!is_overridden(text)) worker.pointers.push_back(text.data());
  worker.pointers.push_back(nullptr);
  return worker;
}

const char* RoundEnvironment::find(std::string_view name) const {
  const auto found = shared_.find(name);
  return found != shared_.end() ? found->second.c_str() : nullptr;
}

}  // namespace acc::agent
