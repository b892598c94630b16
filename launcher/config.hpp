#pragma once

#include "common/error.hpp"
#include "launcher/value.hpp"

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace acc::launcher {

using Environment = std::map<std::string, std::string, std::less<>>;
/// The variables of this process.
[[nodiscard]] Environment read_environment();
/// Empty text for a variable that is not set.
[[nodiscard]] std::string_view variable(const Environment& environment, std::string_view name);

/// A config file as it was written, with the old spellings of the original translated.
struct Config {
  std::string path;
  Map keys;
  std::vector<std::string> notes;  ///< a key that stands there twice

  [[nodiscard]] const Value* find(std::string_view key) const;
  /// "cfg.yaml:3"
  [[nodiscard]] std::string where(const Value& value) const;
};

/// "~" and "~/…" with the user's home folder in place of the tilde: $HOME, else as the system's
/// list of users says. Where there is none the tilde stays.
[[nodiscard]] std::string expand_home(std::string path, const Environment& environment);

/// Where the original looks when --config_file is not given; the file may not exist.
[[nodiscard]] std::string default_config_path(const Environment& environment);

/// Reads a file. The complaint names the file.
Result<Config> load_config(const std::string& path);
/// `path` is for messages, and tells JSON (".json") from YAML.
Result<Config> parse_config(std::string_view text, const std::string& path);

struct KeyCheck {
  Complaints complaints;           ///< unknown keys and missing ones, with the nearest valid name
  std::vector<std::string> meant;  ///< the keys that were probably meant
  std::vector<std::string> notes;  ///< keys without effect
};
/// Keys that `accelerate config` wrote in earlier versions. They had no effect on the launch.
[[nodiscard]] bool was_removed(std::string_view key);
KeyCheck check_config_keys(const Config& config);

}  // namespace acc::launcher
