#include "agent/daemon/service_settings.hpp"

#include "common/text.hpp"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

namespace acc::agent::daemon {

namespace {

std::uint32_t cores() { return std::max(1U, std::thread::hardware_concurrency()); }

std::vector<std::uint32_t> gpus_of_node() {
  constexpr std::string_view kPrefix = "nvidia";
  std::vector<std::uint32_t> gpus;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator{"/dev", error}) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kPrefix)) continue;
    if (const auto number = parse_number<std::uint32_t>(name.substr(kPrefix.size())))
      gpus.push_back(*number);
  }
  return gpus;
}

std::string beside_own_program() {
  std::error_code error;
  const auto own = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "/usr/bin/acc-launch" : (own.parent_path() / "acc-launch").string();
}

}  // namespace

ServiceSettings with_node_facts(ServiceSettings settings) {
  if (settings.slots == 0) settings.slots = cores();
  if (!settings.gpus) settings.gpus = gpus_of_node();
  if (settings.launcher.empty()) settings.launcher = beside_own_program();
  return settings;
}

}  // namespace acc::agent::daemon
