#pragma once

#include <string>
#include <string_view>

namespace acc::agent {

/// One line of --events as the mark that brings it to the launching host. A line that is too long
/// for a mark (kMaxEventMark) has its `command` cut: what the workers run may be as long as the
/// system allows.
/// @param line  without its end
/// @return empty: too long all the same
[[nodiscard]] std::string event_mark(std::string_view line, std::string_view token);

}  // namespace acc::agent
