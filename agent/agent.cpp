#include "agent/agent.hpp"

#include "agent/agent_loop.hpp"
#include "agent/descriptor_limit.hpp"
#include "agent/guardian.hpp"
#include "agent/report_file.hpp"
#include "common/exit_codes.hpp"

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <exception>

namespace acc::agent {

int run(const JobPlan& plan, const GuardianLink& guardian) {
  // It died while we read the command line.
  if (guardian.pid != 0 && ::getppid() != guardian.pid) return to_int(ExitCode::agent_lost);
  note_report(guardian, plan.report_file);
  write_running_report(plan.report_file, guardian);
  ::signal(SIGPIPE, SIG_IGN);  // a reader that goes away is an error code of write, not our end
  ::signal(SIGCHLD, SIG_DFL);  // ignored, the kernel would take the workers' exit codes
  try {
    // Without them its event loop can't even be made.
    const DescriptorLimit limit;
    const auto needed = count_open_descriptors() + kAgentDescriptors;
    if (const auto words = describe_shortage(plan.local_world_size, needed, limit.now());
        !words.empty()) {
      std::fprintf(stderr, "acc-launch: %s (exit code %d)\n", words.c_str(),
                   to_int(ExitCode::resources));
      note_refusal(guardian, words);
      return to_int(ExitCode::resources);
    }
    AgentLoop loop{plan, guardian, limit};
    return loop.run();
  } catch (const std::exception& e) {
    // Out of memory or a bug: the guardian ends what is left of the job.
    std::fprintf(stderr, "acc-launch: the agent gave up: %s\n", e.what());
    return to_int(ExitCode::agent_lost);
  }
}

}  // namespace acc::agent
