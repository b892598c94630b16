#pragma once

#include "common/error.hpp"
#include "launcher/cli.hpp"
#include "launcher/host_list.hpp"
#include "launcher/hosts_inputs.hpp"
#include "launcher/job_spec.hpp"

#include <string>
#include <vector>

/// The way from this machine to the hosts of a job; pure.
namespace acc::launcher {

struct HostTransport {
  enum class Kind {
    ssh,
    program,  ///< of --launch_agent
    daemons,  ///< acc-ctl bridge, through the acc-agent of this machine
    shell     ///< all hosts are this machine
  };
  Kind kind = Kind::ssh;
  std::vector<std::string> words;  ///< ssh: its options; program: its command line
  Complaints complaints;           ///< when not empty, the rest must not be used

  [[nodiscard]] std::string name() const;  ///< for messages
};

/// @param hosts  at least one
[[nodiscard]] HostTransport choose_transport(const CommandLine& line, const JobSpec& spec,
                                             const HostsInputs& inputs,
                                             const std::vector<Host>& hosts);

/// Whether the host is this machine, and its transport a shell that becomes acc-launch.
/// @param is_here  the host is this machine
[[nodiscard]] bool is_direct(const HostTransport& transport, bool is_here);

/// The command that gives `line` to a shell on `host`; not of daemons, which run no shell.
/// @param is_here  the host is this machine
[[nodiscard]] std::vector<std::string> command_through(const HostTransport& transport,
                                                       const Host& host, bool is_here,
                                                       const std::string& line);

}  // namespace acc::launcher
