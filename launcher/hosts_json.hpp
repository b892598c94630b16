#pragma once

#include "launcher/hosts_plan.hpp"

#include <string>

namespace acc::launcher {

/// For --print_plan. Values of --env are left out: they may be secrets.
[[nodiscard]] std::string hosts_to_json(const PlannedHosts& planned);

}  // namespace acc::launcher
