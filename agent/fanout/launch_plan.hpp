#pragma once

#include "agent/job_plan.hpp"
#include "common/duration.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

/// One command runs a job on several hosts: what the launcher hands over.
namespace acc::agent {

struct RemoteHost {
  std::string name;                  ///< for people
  std::vector<std::string> command;  ///< of the transport, with the remote command in it
  std::string node{};                ///< for the API of our daemon; empty: its own
  bool is_direct = false;            ///< the transport becomes acc-launch, on this machine
};

struct ClusterLaunch {
  std::vector<RemoteHost> hosts;  ///< in the order of their node ranks
  bool is_ssh = true;
  std::string program = "acc-launch";  ///< for messages: who runs this
  bool uses_daemons = false;          ///< the transports lead to acc-agent daemons (acc-ctl bridge)
  std::size_t min_hosts = 0;          ///< fewer can't run the job; 0: not known
  std::uint32_t leaves_at = 0;        ///< acc-ctl follows: so many Ctrl-C leave the job; 0: never
  bool is_reader = false;             ///< acc-ctl logs: the job's exit code isn't ours
  bool detaches = false;              ///< the job goes on without us when it has started
  bool waits = false;                 ///< until all hosts have room
  bool is_recorded = true;            ///< for acc-ctl; false: it is already
  std::string id;                     ///< names the launch: of its record, and of the daemons' jobs
  std::string socket;                 ///< of our daemon
  std::string node;                   ///< name of this machine
  std::string transport = "ssh";      ///< for messages
  std::string folder;                 ///< working directory on all hosts
  std::vector<Variable> variables;    ///< of --env
  bool sends_secret = true;           ///< a fresh one; false: the hosts have their own, or none
  bool tags_lines = false;            ///< each line of output behind its host's name
  std::size_t at_once = 64;           ///< transports being started
  Millis patience{60'000};            ///< of our own reader, as OutputPlan::patience
  Millis end_patience{120'000};       ///< for the other hosts when the first has ended
  Millis lost_patience{90'000};       ///< without workers anywhere and contact to one host
  std::vector<std::string> warnings;  ///< to be told
  std::string report_file;            ///< of --report, where the first host is this machine
  std::string events_file;            ///< of --events: of all hosts; empty: none
  std::uint64_t events_size = 0;      ///< bytes, then the file is renamed; 0: any
  bool shows_status = true;           ///< where stderr is a terminal
};

}  // namespace acc::agent
