#pragma once

namespace acc {

/// "0.1.0", the version of the project.
[[nodiscard]] const char* version();

}  // namespace acc
