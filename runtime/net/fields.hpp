#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace acc::runtime {

/// Several strings of any bytes in one: "3:abc0:12:…". The format of what ranks send each other.
[[nodiscard]] std::string pack(std::span<const std::string> fields);
[[nodiscard]] std::string pack(std::initializer_list<std::string> fields);
/// nothing: not in this format.
[[nodiscard]] std::optional<std::vector<std::string>> unpack(std::string_view packed);

}  // namespace acc::runtime
