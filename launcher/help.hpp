#pragma once

#include "launcher/job_spec.hpp"

#include <string>
#include <string_view>

/// Texts made from the key table.
namespace acc::launcher {

/// `topic`: "" for the overview, a group's or a flag's name, or "all".
[[nodiscard]] std::string help_text(std::string_view topic);
/// Each setting, its value and who set it.
[[nodiscard]] std::string config_text(const JobSpec& spec);

}  // namespace acc::launcher
