#include "launcher/configure/host_view.hpp"

#include "launcher/config.hpp"

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

namespace acc::configure {

namespace {

class WellEquipped : public launcher::HostFacts {
 public:
  std::string accelerator() override { return "cuda"; }
  std::uint32_t gpus() override { return 1024; }
  std::vector<std::string> gpu_names() override { return {}; }
  std::string driver() override { return "999.0"; }
  bool bf16() override { return true; }
  std::uint32_t physical_cores() override { return 1024; }
  std::uint32_t logical_cores() override { return 1024; }
  bool port_in_use(std::uint16_t /*port*/) override { return false; }
  std::string mpi() override { return "openmpi"; }
  bool fp8(const std::string& /*interpreter*/) override { return true; }
  std::string host_name() override { return "localhost"; }
  std::string deepspeed(const std::string& /*interpreter*/) override { return "999.0"; }
  launcher::CpuTopology topology() override { return {}; }
};

}  // namespace

std::unique_ptr<launcher::HostFacts> any_machine() { return std::make_unique<WellEquipped>(); }

std::string file_of(const Command& command) {
  const auto environment = launcher::read_environment();
  if (!command.operands.empty()) return command.operands.front();
  if (command.has("--config_file"))
    return launcher::expand_home(command.value("--config_file"), environment);
  return launcher::default_config_path(environment);
}

Result<std::unique_ptr<launcher::HostFacts>> facts_of(const Command& command) {
  if (command.has("--host_facts")) return launcher::facts_from_file(command.value("--host_facts"));
  return launcher::detected_facts();
}

std::string working_folder() {
  std::error_code failed;
  const auto folder = std::filesystem::current_path(failed);
  return failed ? "." : folder.string();
}

std::string text_of_file(const std::string& path) {
  std::error_code failed;
  if (!std::filesystem::is_regular_file(path, failed)) return {};
  std::ifstream file{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{file}, {}};
}

bool file_exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

}  // namespace acc::configure
