#include "agent/agent_loop.hpp"
#include "agent/environment.hpp"
#include "agent/small_file.hpp"
#include "common/log.hpp"
#include "common/ports.hpp"
#include "common/program_path.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <span>

// How one round is started.
namespace acc::agent {

namespace {

std::span<const char* const> caller_environment() {
  std::size_t count = 0;
  while (environ[count] != nullptr) ++count;
  return {environ, count};
}

}  // namespace

void AgentLoop::raise_descriptor_limit() {
  constexpr rlim_t kOwn = 64;
  constexpr rlim_t kPerWorker = 6;  // pidfd, two pipes with both ends for a moment, two files
  const rlim_t needed = kOwn + kPerWorker * plan_.local_world_size;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) return;
  const rlimit before = limit;
  limit.rlim_cur = std::min(needed, limit.rlim_max);
  if (::setrlimit(RLIMIT_NOFILE, &limit) == 0) workers_.spawner().set_child_nofile(before);
}

// The store's address in this round. A port that the user named is kept; else a later round takes a
// fresh one, so that nothing of the last round can be met there (DESIGN §6).
Master AgentLoop::choose_master() {
  Master master = plan_.master;
  const bool keep = master.port_is_given || group_.restarts == 0 || plan_.rendezvous.nnodes_max > 1;
  if (keep) return master;
  if (const auto port = pick_free_port(); port != 0) master.port = port;
  return master;
}

std::optional<StartFailure> AgentLoop::start_workers() {
  const Round round = group_.round;
  containment_.prepare_round();
  std::string error_folder;
  if (plan_.kind == JobKind::elastic)
    error_folder = run_folder_.make_attempt(round, plan_.local_world_size);
  output_.begin_round(round, run_folder_.path());

  RoundFacts facts;
  facts.assignment = {round,
                      plan_.rendezvous.node_rank,
                      plan_.rendezvous.nnodes_max,
                      plan_.first_rank,
                      plan_.world_size,
                      choose_master()};
  facts.job_id = job_id_;
  facts.restarts = group_.restarts;
  facts.restart_reason = restart_reason_;
  facts.error_folder = error_folder;
  RoundEnvironment environment{plan_, caller_environment(), facts};

  const char* path = environment.find("PATH");
  program_path_ =
      find_on_path(plan_.command.front(), path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin");
  if (program_path_.empty()) return StartFailure{LocalRank{0}, ENOENT, "exec"};

  if (!plan_.restart.progress_file.empty())
    progress_seen_ = read_small_file(plan_.restart.progress_file);
  const CStringArray argv{plan_.command};
  WorkerGroup::Launch launch;
  launch.path = program_path_;
  launch.argv = argv.get();
  launch.count = plan_.local_world_size;
  launch.first_rank = plan_.first_rank;
  launch.stdin_rank = plan_.local_world_size == 1 ? std::optional{LocalRank{0}} : plan_.stdin_rank;
  launch.stdin_terminal = owns_terminal_ && ::tcgetpgrp(STDIN_FILENO) == ::getpgid(guardian_.pid);
  auto failure = workers_.start(launch, environment);
  memory_.mark();  // after the start, which it would only delay: a worker can't fill the memory so
                   // fast
  return failure;
}

bool AgentLoop::progress_changed() {
  const auto& file = plan_.restart.progress_file;
  return !file.empty() && read_small_file(file) != progress_seen_;
}

}  // namespace acc::agent
