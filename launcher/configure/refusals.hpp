#pragma once

#include "common/error.hpp"
#include "launcher/cli.hpp"
#include "launcher/value.hpp"

#include <string>

namespace acc::configure {

/// What acc-launch would refuse of a command line on any machine, but for flags that it doesn't
/// know.
/// @param path  of the config file that holds `keys`; empty: there is none
[[nodiscard]] Complaints refusals(const launcher::CommandLine& line, const std::string& path,
                                  const launcher::Map& keys);

}  // namespace acc::configure
