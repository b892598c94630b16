#pragma once

#include "common/error.hpp"

#include <string>

namespace acc::launcher {

/// Makes the cluster's secret in `wanted`, or in the usual place if that is empty.
/// @return what to tell the user: where it is, and what to do with it
Result<std::string> make_secret_file(const std::string& wanted);

/// Where it would be made; empty: no home folder to put it in.
[[nodiscard]] std::string secret_path_for(const std::string& wanted);

}  // namespace acc::launcher
