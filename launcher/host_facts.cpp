#include "launcher/host_facts.hpp"

#include "common/ports.hpp"
#include "launcher/host_probes.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace acc::launcher {

namespace {

class DetectedFacts : public HostFacts {
 public:
  std::string accelerator() override { return devices().kind; }
  std::uint32_t gpus() override { return devices().count; }
  std::vector<std::string> gpu_names() override { return nvidia_names(); }
  std::string driver() override {
    auto version = nvidia_driver();
    return version.empty()
               ? "999"
               : version;  // no NVIDIA driver: no NVIDIA card to have the old driver's fault
  }
  bool bf16() override {
    return devices().kind != "cuda" || devices().count == 0 || nvidia_computes_bf16();
  }
  std::uint32_t physical_cores() override { return count_physical_cores(); }
  std::uint32_t logical_cores() override {
    return static_cast<std::uint32_t>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
  }
  bool port_in_use(std::uint16_t port) override { return !port_is_free(port); }
  std::string why_port_taken(std::uint16_t port) override { return acc::why_port_taken(port); }
  std::string mpi() override { return mpirun_kind(); }
  bool shows_packages(const std::string& interpreter) override {
    return launcher::shows_packages(interpreter);
  }
  bool fp8(const std::string& interpreter) override {
    for (const std::string_view module : {"transformer_engine", "msamp", "torchao"}) {
      if (has_module(interpreter, module)) return true;
    }
    return false;
  }
  std::string host_name() override { return full_host_name(); }
  std::string deepspeed(const std::string& interpreter) override {
    return installed_version(interpreter, "deepspeed");
  }
  CpuTopology topology() override { return read_topology("/sys", allowed_cpus()); }

 private:
  const Devices& devices() {
    if (!devices_) devices_ = count_devices();
    return *devices_;
  }
  std::optional<Devices> devices_;
};

class UnknownFacts final : public HostFacts {
 public:
  std::string accelerator() override { return "cuda"; }
  std::uint32_t gpus() override { return 1; }
  std::vector<std::string> gpu_names() override { return {}; }
  std::string driver() override { return {}; }
  bool bf16() override { return true; }
  std::uint32_t physical_cores() override { return 1; }
  std::uint32_t logical_cores() override { return 1; }
  bool port_in_use(std::uint16_t /*port*/) override { return false; }
  std::string mpi() override { return {}; }
  bool fp8(const std::string& /*interpreter*/) override { return true; }
  std::string host_name() override { return {}; }
  std::string deepspeed(const std::string& /*interpreter*/) override { return {}; }
  CpuTopology topology() override { return {}; }
};

}  // namespace

std::unique_ptr<HostFacts> detected_facts() { return std::make_unique<DetectedFacts>(); }

std::unique_ptr<HostFacts> unknown_facts() { return std::make_unique<UnknownFacts>(); }

std::optional<std::uint16_t> free_port() {
  const auto port = pick_free_port();
  return port != 0 ? std::optional{port} : std::nullopt;
}

}  // namespace acc::launcher
