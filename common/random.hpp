#pragma once

#include <string>

namespace acc {

/// Eight random letters and digits, for names that must not meet.
[[nodiscard]] std::string random_name();
/// Uniform in [0, 1).
[[nodiscard]] double random_fraction();

}  // namespace acc
