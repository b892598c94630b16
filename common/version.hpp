#pragma once

namespace acc {

/// "0.1.0", as the project's.
[[nodiscard]] const char* version();

}  // namespace acc
