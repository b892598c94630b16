#include "launcher/hosts_flags.hpp"

#include "launcher/key_table.hpp"

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

namespace acc::launcher {

using namespace literals;

namespace {

constexpr Key kOnlyWithHosts[] = {"ssh"_key,           "ssh_options"_key, "launch_agent"_key,
                                  "remote_launch"_key, "env"_key,         "tag_output"_key,
                                  "detach"_key,        "wait"_key};
/// Each host gets its own; one for all would be wrong.
constexpr std::pair<Key, std::string_view> kOfOneMachine[] = {
    {"machine_rank"_key, "each host gets its number by its place among the hosts"},
    {"node_name"_key, "each host has its own"},
    {"local_addr"_key, "each host has its own"},
    {"stdin"_key, "our standard input reaches no other host"},
    {"standalone"_key, "it is a job on one machine alone"},
    {"mpirun_hostfile"_key, "mpirun would start the workers"},
    {"secret_fd"_key, "each job on hosts gets a fresh secret"},
    {"life_line"_key, "it is for the acc-launch that runs there"}};
/// Said anew for each host, or for this side alone.
constexpr Key kNotPassedOn[] = {"hosts"_key,        "hostfile"_key,       "ssh"_key,
                                "ssh_options"_key,  "launch_agent"_key,   "remote_launch"_key,
                                "env"_key,          "tag_output"_key,     "print_plan"_key,
                                "detach"_key,       "wait"_key,           "nnodes"_key,
                                "num_machines"_key, "nproc_per_node"_key, "num_processes"_key,
                                "report"_key,       "events"_key,         "events_size"_key};

}  // namespace

bool is_on_hosts(const CommandLine& line) {
  return line.given("hosts"_key) != nullptr || line.given("hostfile"_key) != nullptr;
}

Complaints check_without_hosts(const CommandLine& line) {
  Complaints complaints;
  for (const auto key : kOnlyWithHosts) {
    const auto* option = line.given(key);
    if (option == nullptr) continue;
    std::string hint;
    if (key == "env"_key)
      hint = ": on this machine workers inherit all variables: NAME=VALUE acc-launch …";
    if (key == "tag_output"_key) hint = ": on one machine --tee 3 shows the rank of each line";
    complaints.push_back(
        {Errc::bad_config, option->spelled + " needs --hosts or --hostfile" + hint});
  }
  return complaints;
}

Complaints check_with_hosts(const CommandLine& line, const JobSpec& spec) {
  Complaints complaints;
  for (const auto& [key, why] : kOfOneMachine) {
    if (line.given(key) == nullptr) continue;
    complaints.push_back(
        {Errc::bad_config,
         spec.name_for_complaint(key) + " can't be given with --hosts: " + std::string{why}});
  }
  return complaints;
}

bool is_passed_on(Key key) {
  return std::ranges::find(kNotPassedOn, key) == std::end(kNotPassedOn);
}

}  // namespace acc::launcher
