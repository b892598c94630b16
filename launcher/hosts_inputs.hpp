#pragma once

#include "common/error.hpp"
#include "launcher/cli.hpp"
#include "launcher/host_daemon.hpp"
#include "launcher/job_spec.hpp"

#include <string>

namespace acc::launcher {

/// What the plan of a job on several hosts takes from the machine on which it is made.
struct HostsInputs {
  const Environment& environment;  ///< the caller's
  std::string folder;              ///< working directory
  std::string program;             ///< path of this acc-launch
  std::string host_name;           ///< of this machine
  std::string hostfile_text;       ///< of --hostfile
  std::string random;              ///< names the job
  std::string default_config;      ///< the config file, if it was found and not named
  DaemonFound daemon{};            ///< what answers on this machine
  std::string ctl = "acc-ctl";     ///< path of it
  bool reads_all_output = false;   ///< Caller's
};

/// Looks at this machine: the host file, the acc-agent that answers, the programs beside this one.
/// The working directory, the config file and reads_all_output are the caller's to fill in.
/// @return an error if there is a host file and it can't be read
[[nodiscard]] Result<HostsInputs> look_at_inputs(const CommandLine& line, const JobSpec& spec,
                                                 const Environment& environment);

}  // namespace acc::launcher
