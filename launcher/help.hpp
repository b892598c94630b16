#pragma once

#include "launcher/job_spec.hpp"

#include <span>
#include <string>
#include <string_view>

/// Texts made from the key table.
namespace acc::launcher {

/// `topic`: "" for the overview, a group's or a flag's name, or "all". An error says what there is.
[[nodiscard]] Result<std::string> help_text(std::string_view topic);
/// What a job with these groups of flags needs; without any the overview.
[[nodiscard]] Result<std::string> help_for(std::span<const Group> platforms);
/// Each setting, its value and who set it. @param with_defaults  also those that nobody set
[[nodiscard]] std::string config_text(const JobSpec& spec, bool with_defaults = true);

}  // namespace acc::launcher
