#pragma once

#include "agent/health_findings.hpp"

#include <cstdint>
#include <string>
#include <vector>

/// The probes themselves. Each may block for as long as a driver or a file system likes: they run
/// in processes of their own (health_prober.hpp).
namespace acc::agent::health {

/// One probe to be run.
struct Probe {
  std::string name;     ///< disk memory shm cpu name net gpu command
  std::string subject;  ///< of disk: the folder; of command: what a shell runs
  std::string use;      ///< of disk: "checkpoints" or "logs"
  friend bool operator==(const Probe&, const Probe&) = default;
};

struct ProbeSetting {
  std::string root;                     ///< in front of /proc, /sys and /dev; for tests
  std::string nvml;                     ///< the library; empty: libnvidia-ml.so.1
  std::int64_t kernel_log_from_us = 0;  ///< older lines of the kernel's log don't count
};

/// Runs it here and now. The readings of `command` are made by the prober, which has its output.
[[nodiscard]] std::vector<Reading> measure(const Probe& probe, const ProbeSetting& setting);

/// NVML's figures of all GPUs; nothing where there is no NVML (health_nvml.cpp).
[[nodiscard]] std::vector<Reading> measure_gpus(const std::string& library);

/// Xids of the kernel's log from a time on (pure): "6,1234,5678901,-;NVRM: Xid (PCI:0000:3b:00):
/// 79, …".
[[nodiscard]] std::vector<Reading> xids_in(std::string_view kernel_log, std::int64_t from_us);

}  // namespace acc::agent::health
