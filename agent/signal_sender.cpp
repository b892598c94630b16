#include "agent/signal_sender.hpp"

#include "agent/process_stat.hpp"

#include <algorithm>
#include <array>
#include <csignal>

namespace acc::agent {

bool signals_whole_jobs(std::string_view program) {
  constexpr std::array<std::string_view, 8> kManagers{"slurmstepd",   "systemd",       "pbs_mom",
                                                      "sge_shepherd", "sge_execd",     "sbatchd",
                                                      "res",          "condor_starter"};
  return std::ranges::count(kManagers, program) != 0;
}

bool is_of_job_manager(const signalfd_siginfo& signal) {
  if (signal.ssi_code != SI_USER || signal.ssi_pid == 0) return false;
  return signals_whole_jobs(read_process_stat(static_cast<pid_t>(signal.ssi_pid)).name);
}

}  // namespace acc::agent
