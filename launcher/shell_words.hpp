#pragma once

#include "common/error.hpp"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace acc::launcher {

/// As a POSIX shell splits a line into words: blanks, quotes, backslashes; nothing is expanded.
Result<std::vector<std::string>> split_shell_words(std::string_view text);

/// One word, so that every POSIX shell reads it back as it is.
[[nodiscard]] std::string quote_for_shell(std::string_view word);
[[nodiscard]] std::string quote_for_shell(std::span<const std::string> words);

/// The same for a line that is shown: control characters as $'\n', which bash and zsh read, and in
/// one line. Other words are as above.
[[nodiscard]] std::string quote_for_paste(std::string_view word);

/// A shell can set a variable of this name.
[[nodiscard]] bool is_variable_name(std::string_view name);

}  // namespace acc::launcher
