#pragma once

#include "common/error.hpp"
#include "launcher/core_binding.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace acc::launcher {

/// What a plan may ask about the machine. Nothing is looked up before it is asked for.
class HostFacts {
 public:
  HostFacts() = default;
  HostFacts(const HostFacts&) = delete;
  HostFacts& operator=(const HostFacts&) = delete;
  virtual ~HostFacts() = default;

  /// cuda, xpu, npu, mlu, musa, sdaa, hpu or neuron.
  virtual std::string accelerator() = 0;
  virtual std::uint32_t gpus() = 0;  ///< devices of that kind that a worker would see
  virtual std::vector<std::string> gpu_names() = 0;
  virtual std::string driver() = 0;  ///< "550.54.15"; empty: as old as can be
  virtual bool bf16() = 0;           ///< the device computes in bfloat16 without emulation
  virtual std::uint32_t physical_cores() = 0;
  virtual std::uint32_t logical_cores() = 0;
  /// A process listens on this port of this machine, or we may not.
  virtual bool port_in_use(std::uint16_t port) = 0;
  /// Of such a port, in words that follow "port 80" (common/ports.hpp).
  virtual std::string why_port_taken(std::uint16_t /*port*/) { return "is already in use"; }
  /// openmpi, intel (or another) or empty: no mpirun.
  virtual std::string mpi() = 0;
  /// Whether it can be seen which packages this interpreter has.
  virtual bool shows_packages(const std::string& /*interpreter*/) { return true; }
  /// Whether a backend for 8-bit floats is installed for this interpreter.
  virtual bool fp8(const std::string& interpreter) = 0;
  /// With its domain, if /etc/hosts gives it one.
  virtual std::string host_name() = 0;
  /// Version of DeepSpeed installed for this interpreter; empty: none, "0": it can't be told.
  virtual std::string deepspeed(const std::string& interpreter) = 0;
  /// The cores that workers may use, and where they lie.
  virtual CpuTopology topology() = 0;
};

/// Looks at this machine.
std::unique_ptr<HostFacts> detected_facts();
/// The facts in this JSON file and nothing else; missing ones are 16 cores, no GPU, bf16, nothing
/// installed, no port taken.
Result<std::unique_ptr<HostFacts>> facts_from_file(const std::string& path);

/// Facts of a machine that isn't looked at, as the job runs elsewhere: nothing is refused for them.
std::unique_ptr<HostFacts> unknown_facts();

/// A TCP port that was free a moment ago; nothing if none can be had.
std::optional<std::uint16_t> free_port();

}  // namespace acc::launcher
