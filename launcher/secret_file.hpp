#pragma once

#include "common/error.hpp"

#include <string>

namespace acc::launcher {

/// Makes the cluster's secret in `wanted`, or in the usual place if that is empty.
/// @param how  words that name a file, for the error where there is no usual place
/// @return what to tell the user: where it is, and what to do with it
Result<std::string> make_secret_file(const std::string& wanted, const std::string& how);

/// Where it would be made; empty: no home folder to put it in.
[[nodiscard]] std::string secret_path_for(const std::string& wanted);

}  // namespace acc::launcher
