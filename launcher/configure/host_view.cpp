#include "launcher/configure/host_view.hpp"

#include "launcher/config.hpp"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace acc::configure {

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
