#pragma once

#include "common/json_bounds.hpp"

#include <nlohmann/json_fwd.hpp>

#include <cstddef>
#include <limits>
#include <string>
#include <string_view>

namespace acc::agent::daemon {

/// Discarded if it isn't JSON, or is_json_beyond.
[[nodiscard]] nlohmann::json parse_bounded(
    std::string_view text, int deepest, std::size_t most = std::numeric_limits<std::size_t>::max());
/// On one line, without its end. Bytes that aren't UTF-8 are replaced.
[[nodiscard]] std::string json_text(const nlohmann::json& value);
/// JSON of a user's process as a part of other JSON, without white space between its values.
struct Foreign {
  std::string text;
  std::string left_out;  ///< why there is none: it is no JSON, too large or nested too deeply
};
[[nodiscard]] Foreign pass_through(std::string_view text, int deepest, std::size_t most);
/// What another daemon's refusal says: its "error", or the whole of what is no such reply.
[[nodiscard]] std::string error_in(std::string_view body);

}  // namespace acc::agent::daemon
