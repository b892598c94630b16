#include "agent/agent.hpp"

#include "agent/agent_loop.hpp"
#include "agent/guardian.hpp"

#include <unistd.h>

#include <csignal>

namespace acc::agent {

int run(const JobPlan& plan, const GuardianLink& guardian) {
  if (guardian.pid != 0 && ::getppid() != guardian.pid)
    return 1;                  // it died while we read the command line
  ::signal(SIGPIPE, SIG_IGN);  // a reader that goes away is an error code of write, not our end
  AgentLoop loop{plan, guardian};
  return loop.run();
}

}  // namespace acc::agent
