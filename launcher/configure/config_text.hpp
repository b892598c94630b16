#pragma once

#include "launcher/value.hpp"

#include <string>

/// Text of a config file, keys sorted, as the original's writers order it.
namespace acc::configure {

/// As PyYAML's safe_dump lays it out. What any YAML 1.1 reader would take for something else than
/// text stands in quotes.
[[nodiscard]] std::string yaml_text(const launcher::Map& map);
/// As json.dumps with indent=2 and sort_keys.
[[nodiscard]] std::string json_text(const launcher::Map& map);
/// JSON for names that end in .json, else YAML.
[[nodiscard]] std::string config_text_for(const std::string& path, const launcher::Map& map);

}  // namespace acc::configure
