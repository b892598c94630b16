#pragma once

#include <cstdint>
#include <string>
#include <string_view>

/// The first line of an --events file that follows a renamed one (pure). A file without it begins
/// at position 0.
namespace acc::agent {

inline constexpr std::size_t kMaxEventFileLine = 128;

/// @param begins_at  how many bytes all earlier files had together
[[nodiscard]] std::string event_file_line(std::uint64_t begins_at);
/// @param head  the file's first kMaxEventFileLine bytes, or all; any bytes
/// @return the position of its first byte; at most 2^62
[[nodiscard]] std::uint64_t begins_at(std::string_view head);

}  // namespace acc::agent
