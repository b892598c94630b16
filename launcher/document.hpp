#pragma once

#include "common/error.hpp"
#include "launcher/value.hpp"

#include <string>
#include <string_view>

/// Text of a config file → values with their lines. Total: any bytes give a value or an error, in
/// bounded memory.
namespace acc::launcher {

inline constexpr std::size_t kMaxConfigBytes = 1024UL * 1024;
inline constexpr std::size_t kMaxConfigDepth = 32;  ///< lists and mappings inside each other
inline constexpr std::size_t kMaxConfigValues =
    20'000;  ///< after aliases are written out, so that they can't multiply

struct Document {
  Value root;
  std::vector<std::string> notes;  ///< what the user should know: a key that stands there twice
};

/// `name` stands in front of each message: "cfg.yaml:3: …".
Result<Document> read_yaml(std::string_view text, const std::string& name);
Result<Document> read_json(std::string_view text, const std::string& name);

}  // namespace acc::launcher
