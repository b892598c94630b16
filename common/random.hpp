#pragma once

#include <cstdint>
#include <string>

namespace acc {

/// Eight random letters and digits, for names that must not collide.
[[nodiscard]] std::string random_name();
[[nodiscard]] std::uint64_t random_number();
/// Uniform in [0, 1).
[[nodiscard]] double random_fraction();

}  // namespace acc
