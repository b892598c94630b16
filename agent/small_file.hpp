#pragma once

#include <string>
#include <string_view>

namespace acc::agent {

/// The text of a file in /proc or /sys (they have no size); empty if it can't be read. At most 1
/// MiB.
[[nodiscard]] std::string read_small_file(const std::string& path);
/// One write; false if the kernel didn't take all of it.
bool write_small_file(const std::string& path, std::string_view text);

}  // namespace acc::agent
