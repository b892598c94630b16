#pragma once

#include "launcher/cli.hpp"
#include "launcher/config.hpp"
#include "launcher/host_facts.hpp"
#include "launcher/merge.hpp"
#include "launcher/plan.hpp"
#include "launcher/plan_json.hpp"

#include <map>
#include <set>
#include <string>
#include <vector>

namespace acc::launcher {

/// A machine made of words.
struct FakeFacts : HostFacts {
  std::string kind = "cuda";
  std::uint32_t devices = 0;
  std::vector<std::string> names;
  std::string driver_version = "550.54.15";
  bool computes_bf16 = true;
  std::uint32_t cores = 16;
  std::set<std::uint16_t> taken;
  std::string mpi_kind;
  bool has_fp8 = false;
  bool shows = true;
  std::string deepspeed_version;
  std::string full_name = "node1";
  CpuTopology cpu_topology;

  std::string accelerator() override { return kind; }
  std::uint32_t gpus() override { return devices; }
  std::vector<std::string> gpu_names() override { return names; }
  std::string driver() override { return driver_version; }
  bool bf16() override { return computes_bf16; }
  std::uint32_t physical_cores() override { return cores; }
  std::uint32_t logical_cores() override { return cores * 2; }
  bool port_in_use(std::uint16_t port) override { return taken.contains(port); }
  std::string mpi() override { return mpi_kind; }
  bool shows_packages(const std::string&) override { return shows; }
  bool fp8(const std::string&) override { return has_fp8; }
  std::string host_name() override { return full_name; }
  std::string deepspeed(const std::string&) override { return deepspeed_version; }
  CpuTopology topology() override { return cpu_topology; }
};

/// A command line, a config file and a machine, up to the plan.
struct Trial {
  explicit Trial(std::vector<std::string> the_words, std::string the_yaml = {},
                 Environment the_environment = {})
      : words{std::move(the_words)},
        yaml{std::move(the_yaml)},
        environment{std::move(the_environment)} {}

  std::vector<std::string> words;
  std::string yaml;  ///< empty: no config file
  Environment environment;
  FakeFacts facts;
  ScriptKind script = ScriptKind::python;
  MpiLibrary mpi = MpiLibrary::none;

  Merged merged() {
    line_ = parse_command_line(words);
    std::optional<Config> config;
    Complaints complaints = line_.complaints;
    if (!yaml.empty()) {
      auto parsed = parse_config(yaml, "cfg.yaml");
      if (parsed) {
        config = *parsed;
      } else {
        complaints.push_back(parsed.error());
      }
    }
    auto out = merge(line_, config, facts, environment);
    out.complaints.insert(out.complaints.begin(), complaints.begin(), complaints.end());
    return out;
  }

  Planned planned() {
    auto spec = merged();
    auto out = make_plan(spec.spec, facts,
                         {environment, "/job", "/usr/bin/python3", script, mpi, "mpirun"});
    out.complaints.insert(out.complaints.begin(), spec.complaints.begin(), spec.complaints.end());
    return out;
  }

  /// What --print_plan says.
  std::string printed() {
    auto spec = merged().spec;
    const auto planned =
        make_plan(spec, facts, {environment, "/job", "/usr/bin/python3", script, mpi, "mpirun"});
    return plan_to_json(spec, planned.plan);
  }

  std::string complaints() {
    std::string text;
    for (const auto& complaint : planned().complaints) text += complaint.what + "\n";
    return text;
  }

 private:
  CommandLine line_;
};

}  // namespace acc::launcher
