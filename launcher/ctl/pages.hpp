#pragma once

#include <string>
#include <string_view>

/// Texts made from the table of verbs and flags.
namespace acc::ctl {

/// `verb` empty: all verbs.
[[nodiscard]] std::string help_text(std::string_view verb);
/// `shell`: bash, zsh or fish; empty for others.
[[nodiscard]] std::string completion(std::string_view shell);

}  // namespace acc::ctl
