#pragma once

#include <acc/error.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace acc::runtime {

/// Text of an error, with all its fields, for another rank.
[[nodiscard]] std::string to_text(const Error& error);
/// nothing: these bytes are no error's text.
[[nodiscard]] std::optional<Error> parse_error(std::string_view text);

}  // namespace acc::runtime
