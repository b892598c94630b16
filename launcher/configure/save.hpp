#pragma once

#include "common/error.hpp"

#include <string>
#include <string_view>

namespace acc::configure {

/// Writes a file as a whole or not at all: beside it first, then renamed over it. A file that is
/// there keeps its mode and owner, a link is followed, and folders that are missing are made. What
/// is no regular file, as /dev/stdout, is written into.
/// @return Errc::system and its kin with the path and the reason; then nothing has changed
Result<void> save_file(const std::string& path, std::string_view text);

/// Whether save_file could do it, asked before a person answers forty questions. The disk may still
/// be full then.
Result<void> check_place(const std::string& path);

}  // namespace acc::configure
