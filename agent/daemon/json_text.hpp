#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <string_view>

namespace acc::agent::daemon {

/// Discarded if it isn't JSON, or has more brackets within brackets than that: what nests deeply is
/// printed, and destroyed, by recursion.
[[nodiscard]] nlohmann::json parse_bounded(std::string_view text, int deepest);
/// On one line, without its end. Bytes that aren't UTF-8 are replaced.
[[nodiscard]] std::string json_text(const nlohmann::json& value);
/// What another daemon's refusal says: its "error", or the whole of what is no such reply.
[[nodiscard]] std::string error_in(std::string_view body);

}  // namespace acc::agent::daemon
