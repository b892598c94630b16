#pragma once

#include <string>

/// What a shell needs to complete the flags of acc-launch and their values, from the table of
/// settings.
namespace acc::launcher {

[[nodiscard]] std::string bash_completion();
[[nodiscard]] std::string zsh_completion();
[[nodiscard]] std::string fish_completion();

}  // namespace acc::launcher
