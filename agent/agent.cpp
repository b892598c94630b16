#include "agent/agent.hpp"

#include "agent/agent_loop.hpp"
#include "agent/guardian.hpp"
#include "common/exit_codes.hpp"

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <exception>

namespace acc::agent {

int run(const JobPlan& plan, const GuardianLink& guardian) {
  // It died while we read the command line.
  if (guardian.pid != 0 && ::getppid() != guardian.pid) return to_int(ExitCode::agent_lost);
  ::signal(SIGPIPE, SIG_IGN);  // a reader that goes away is an error code of write, not our end
  ::signal(SIGCHLD, SIG_DFL);  // ignored, the kernel would take the workers' exit codes
  try {
    AgentLoop loop{plan, guardian};
    return loop.run();
  } catch (const std::exception& e) {
    // Out of memory or a bug: the guardian ends what is left of the job.
    std::fprintf(stderr, "acc-launch: the agent gave up: %s\n", e.what());
    return to_int(ExitCode::agent_lost);
  }
}

}  // namespace acc::agent
