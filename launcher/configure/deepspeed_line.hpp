#pragma once

#include "launcher/configure/other_launchers.hpp"

namespace acc::configure {

/// The program deepspeed.
/// @param words  behind its name
[[nodiscard]] Result<ForeignLine> read_deepspeed(std::span<const std::string> words,
                                                 const LineContext& context);

}  // namespace acc::configure
