#pragma once

#include "common/error.hpp"
#include "launcher/env/fact_table.hpp"

#include <span>
#include <string>

namespace acc::env {

struct Command {
  Format format = Format::text;
  std::string config_file;
  bool help = false;
  bool version = false;
  Complaints complaints;
};

/// Total: wrong words become complaints.
[[nodiscard]] Command parse_command(std::span<const std::string> words);

[[nodiscard]] std::string help_text();

}  // namespace acc::env
