#pragma once

#include <string>
#include <string_view>

/// Texts made from the table of verbs and flags.
namespace acc::configure {

/// @param verb  empty: the overview
[[nodiscard]] std::string help_text(std::string_view verb);
/// Empty: no such shell.
[[nodiscard]] std::string completion(std::string_view shell);

}  // namespace acc::configure
