#pragma once

#include "launcher/configure/other_launchers.hpp"

namespace acc::configure {

/// torchrun's and Accelerate's flags, which acc-launch knows all. What acc-launch refuses is an
/// error.
/// @param words  behind the launcher's name
[[nodiscard]] Result<ForeignLine> read_known(std::span<const std::string> words, bool is_torchrun,
                                             const LineContext& context);

}  // namespace acc::configure
