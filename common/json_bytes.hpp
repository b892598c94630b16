#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Command lines, paths and variables are bytes; text in JSON is UTF-8. Bytes that aren't UTF-8 are
/// carried as Latin-1 behind a mark (U+0001), so that nothing is lost or replaced.
namespace acc {

/// By Unicode's table 3-7: no overlong forms, no surrogates, nothing above U+10FFFF.
[[nodiscard]] bool is_utf8(std::string_view text);
[[nodiscard]] std::string json_text_of(std::string_view bytes);
[[nodiscard]] std::vector<std::string> json_texts_of(std::span<const std::string> all);
[[nodiscard]] std::string bytes_of(std::string_view json_text);

}  // namespace acc
