#pragma once

#include "common/error.hpp"

#include <sys/types.h>

#include <string>

namespace acc {

/// A folder and those above it that are missing, each with this mode, less the umask.
[[nodiscard]] Result<void> make_with_parents(const std::string& folder, mode_t mode);

}  // namespace acc
