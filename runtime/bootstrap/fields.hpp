#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace acc::runtime {

/// Texts of any bytes in one text: "3:abc0:12:…", what the ranks write into the store.
[[nodiscard]] std::string pack(std::span<const std::string> fields);
[[nodiscard]] std::string pack(std::initializer_list<std::string> fields);
/// nothing: these bytes weren't packed by us.
[[nodiscard]] std::optional<std::vector<std::string>> unpack(std::string_view packed);

}  // namespace acc::runtime
