#pragma once

#include <string>
#include <string_view>
#include <vector>

/// What acc-env found out, as a value, and the three ways to print it (pure).
namespace acc::env {

struct Fact {
  std::string name;
  std::string value;  ///< of several lines for a file; empty: couldn't be found out, or not there
  friend bool operator==(const Fact&, const Fact&) = default;
};

struct Section {
  std::string title;
  std::vector<Fact> facts;
};

enum class Format { text, markdown, json };

/// Values are made safe for terminals; an empty one is "not found".
[[nodiscard]] std::string to_text(const std::vector<Section>& sections);
/// For a bug report: a list a section, files in fences that nothing in them can close.
[[nodiscard]] std::string to_markdown(const std::vector<Section>& sections);
/// {"section": {"name": "value"}}; null where nothing was found.
[[nodiscard]] std::string to_json(const std::vector<Section>& sections);
[[nodiscard]] std::string to_string(const std::vector<Section>& sections, Format format);

/// The value of a variable, or of a config key, as it may be shown: what is called a secret, token,
/// password, credential or key is "(set, not shown)"; of a URL the password is "***".
[[nodiscard]] std::string shown_value(std::string_view name, std::string_view value);
/// A config file, by the same rule; also NAME=VALUE and `--flag VALUE` in it, its comments, and all
/// of a script's arguments, tpu_env and commands.
[[nodiscard]] std::string shown_config(std::string_view text);
/// Whether a bug report wants this variable: launchers', schedulers', NCCL's, CUDA's, Python's.
[[nodiscard]] bool is_wanted_variable(std::string_view name);

}  // namespace acc::env
