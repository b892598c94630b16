#pragma once

#include "common/error.hpp"

#include <span>
#include <string>

namespace acc::configure {

/// Complaints about values of flags that hold $NAME or ${NAME}, as the shell leaves them in single
/// quotes.
/// @param words  the launcher's own, without the program and its arguments
[[nodiscard]] Complaints unexpanded_values(std::span<const std::string> words);

}  // namespace acc::configure
