#pragma once

#include "common/error.hpp"

#include <span>
#include <string>
#include <vector>

namespace acc::check {

/// acc-test's words, sorted by who is to read them.
struct Command {
  std::vector<std::string> launch;  ///< flags of acc-launch: how many processes, where, by what
  std::vector<std::string> worker;  ///< options of the program that runs on every rank
  std::string json_file;            ///< --json FILE; "-": standard output; empty: none
  bool bandwidth = false;
  bool network = false;   ///< --network: only the network between the nodes is measured
  bool on_hosts = false;  ///< --hosts or --hostfile: the ranks, and their machines, are elsewhere
  bool help = false;
  bool version = false;
  bool only_machine = false;  ///< --local_only: no job is started
  Complaints complaints;
};

/// Total. Options of nccl-tests (-b 8 -e 64M …) are the worker's and need --bandwidth; whatever is
/// not ours is acc-launch's, which knows how to complain about it.
[[nodiscard]] Command parse_command(std::span<const std::string> words);

[[nodiscard]] std::string help_text();

}  // namespace acc::check
