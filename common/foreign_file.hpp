#pragma once

#include <string>
#include <string_view>

namespace acc {

/// A regular file with something else in it: not empty, and its text, without spaces and line ends,
/// doesn't begin with `begin`. Such a file was named by mistake (`--report train.py`), and must not
/// be written over. False where there is no file, or it can't be read.
[[nodiscard]] bool holds_other_text(const std::string& path, std::string_view begin);

/// The file that opening `path` for writing creates or changes: symbolic links are followed, also one
/// to a file that isn't there yet. `path` itself where links go in a circle.
[[nodiscard]] std::string file_behind_links(const std::string& path);

}  // namespace acc
