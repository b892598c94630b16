#pragma once

#include <string>

namespace acc {

/// As `hostname` prints it; "localhost" if the system won't say.
[[nodiscard]] std::string host_name();

}  // namespace acc
