#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

/// Numbers as Python's int() and float() read text: blanks around them, a sign, underscores between
/// digits. What the original takes for a number is one here, and nothing else.
namespace acc::configure {

/// Nothing also for one that needs more than 64 bits.
[[nodiscard]] std::optional<std::int64_t> python_integer(std::string_view text);
[[nodiscard]] std::optional<double> python_number(std::string_view text);

}  // namespace acc::configure
