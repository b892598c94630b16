#pragma once

#include "launcher/configure/other_launchers.hpp"

namespace acc::configure {

/// Whether a line of deepspeed chooses hosts or devices by flags, beside which DeepSpeed ignores
/// CUDA_VISIBLE_DEVICES.
[[nodiscard]] bool ignores_visible_devices(std::span<const std::string> words);

/// The program deepspeed.
/// @param words  behind its name
[[nodiscard]] Result<ForeignLine> read_deepspeed(std::span<const std::string> words,
                                                 const LineContext& context);

}  // namespace acc::configure
