#pragma once

#include <string>
#include <string_view>

namespace acc::configure {

/// The lines that `after` lacks with a - in front, and those that it adds with a +, in order.
/// Empty: they are equal.
[[nodiscard]] std::string line_changes(std::string_view before, std::string_view after);

}  // namespace acc::configure
