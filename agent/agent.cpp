#include "agent/agent.hpp"

#include "agent/agent_loop.hpp"
#include "agent/descriptor_limit.hpp"
#include "agent/guardian.hpp"
#include "agent/life_line.hpp"
#include "agent/report_file.hpp"
#include "common/exit_codes.hpp"
#include "common/host_name.hpp"

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <string>

namespace acc::agent {

namespace {

// Of several hosts whose lines go to one terminal.
std::string program_of(const JobPlan& plan) {
  return plan.output.is_reported_elsewhere ? "acc-launch: " + host_name() : "acc-launch";
}

}  // namespace

int run(const JobPlan& plan, const GuardianLink& guardian) {
  // It died while we read the command line.
  if (!outlive(guardian)) return to_int(ExitCode::agent_lost);
  if (plan.output.is_reported_elsewhere) note_reported_elsewhere(guardian);
  note_report(guardian, plan.report_file);
  ::signal(SIGPIPE, SIG_IGN);  // a reader that goes away is an error code of write, not our end
  write_running_report(plan.report_file, guardian);
  ::signal(SIGXFSZ, SIG_IGN);  // ulimit -f: as a full disk
  ::signal(SIGCHLD, SIG_DFL);  // ignored, the kernel would take the workers' exit codes
  try {
    // Without them its event loop can't even be made.
    const DescriptorLimit limit;
    const auto needed = count_open_descriptors() + kAgentDescriptors;
    if (needed > limit.now()) {
      // The round needs more: one number, so that the user needs one try.
      const auto words = describe_shortage(
          plan.local_world_size,
          needed + descriptors_of_workers(plan.output, plan.local_world_size, detect_console()),
          limit.now());
      std::fprintf(stderr, "%s: %s (exit code %d)\n", program_of(plan).c_str(), words.c_str(),
                   to_int(ExitCode::resources));
      note_refusal(guardian, words);
      return to_int(ExitCode::resources);
    }
    if (plan.life_line) {
      // Transports ignore it, and a program of --launch_agent may have become us: that is no nohup.
      ::signal(SIGHUP, SIG_DFL);
      if (const auto code = await_go(*plan.life_line)) return *code;
    }
    AgentLoop loop{plan, guardian, limit};
    const int code = loop.run();
    if (plan.life_line) tell_end(*plan.life_line, code);
    return code;
  } catch (const std::exception& e) {
    // Out of memory or a bug: the guardian ends what is left of the job.
    std::fprintf(stderr, "%s: the agent gave up: %s\n", program_of(plan).c_str(), e.what());
    return to_int(ExitCode::agent_lost);
  }
}

}  // namespace acc::agent
