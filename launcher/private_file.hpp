#pragma once

#include "common/error.hpp"

#include <string>

namespace acc::launcher {

/// Appends to a file that may hold secrets, which is made if it is missing: a regular file of this
/// user with no other name, whose mode becomes 0600. What belongs to the uid that a server of files
/// gives to all that this user makes is its own, too. What another user may have planted in a
/// shared working directory (a link, a file of its own) is an error, with what to do.
[[nodiscard]] Result<void> append_private(const std::string& path, const std::string& text);

}  // namespace acc::launcher
