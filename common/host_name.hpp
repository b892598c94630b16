#pragma once

#include <string>

namespace acc {

/// As `hostname` prints it; "localhost" if the system doesn't provide it.
[[nodiscard]] std::string host_name();

}  // namespace acc
