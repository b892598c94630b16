#pragma once

#include <string>
#include <string_view>

namespace acc {

/// A regular file that this process may execute.
[[nodiscard]] bool is_executable_file(const std::string& path);

/// Where programs are looked for while PATH isn't set, as execvp does.
inline constexpr const char* kDefaultPath = "/usr/local/bin:/usr/bin:/bin";

/// Looks a program up like execvp: `program` itself if it has a slash, else the first executable of
/// that name in the folders of `path_variable` ("/a:/b"; an empty part is the working directory).
/// Empty if there is none.
[[nodiscard]] std::string find_on_path(std::string_view program, std::string_view path_variable);

}  // namespace acc
