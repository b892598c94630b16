#pragma once

#include "launcher/value.hpp"

#include <string_view>

namespace acc::launcher {

/// What PyYAML (YAML 1.1) makes of an unquoted scalar: yes/no/on/off are booleans, 1e8 is text (no
/// dot), 017 is octal, 1:30 is ninety, 1_000 a thousand. yaml-cpp would apply YAML 1.2 here, and a
/// config file would change its meaning.
[[nodiscard]] Value resolve_yaml_scalar(std::string_view text);

}  // namespace acc::launcher
