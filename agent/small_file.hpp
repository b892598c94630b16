#pragma once

#include "common/error.hpp"

#include <sys/types.h>

#include <string>
#include <string_view>

namespace acc::agent {

/// The text of a file in /proc or /sys (they have no size); empty if it can't be read. At most 1
/// MiB.
[[nodiscard]] std::string read_small_file(const std::string& path);
/// The same where that decides something. Empty: there is no such file, or the process of that file
/// in /proc has ended. An error: it can't be read now.
[[nodiscard]] Result<std::string> read_if_there(const std::string& path);
/// All of `text` or an error, and never half a file for a reader: a regular file is written beside
/// its place and renamed, through symbolic links; a device, a pipe or /dev/stdout is written to as
/// it is.
/// @param reserve  bytes of the disk that the file keeps for overwrite_file, where it can
Result<void> write_whole_file(const std::string& path, std::string_view text,
                              std::size_t reserve = 0, mode_t mode = 0644);
/// Writes over a regular file that is there, into the space that it has: for a full disk. A reader
/// meanwhile may see the beginning alone, but no old text behind the new one.
Result<void> overwrite_file(const std::string& path, std::string_view text);

/// One write; false if the kernel didn't take all of it.
bool write_small_file(const std::string& path, std::string_view text);

}  // namespace acc::agent
