#pragma once

#include "launcher/configure/other_launchers.hpp"

namespace acc::configure {

/// Whether a line of deepspeed chooses hosts or devices by flags, beside which DeepSpeed ignores
/// CUDA_VISIBLE_DEVICES.
[[nodiscard]] bool ignores_visible_devices(std::span<const std::string> words);

/// Whether the keys name DeepSpeed's own config file.
[[nodiscard]] bool has_deepspeed_file(const launcher::Map& keys);
/// Of a key that says what that file says, too. Accelerate raises in each worker where its own file
/// has both; a flag beside it is taken.
[[nodiscard]] bool is_of_deepspeed_file(std::string_view key);

/// The program deepspeed.
/// @param words  behind its name
[[nodiscard]] Result<ForeignLine> read_deepspeed(std::span<const std::string> words,
                                                 const LineContext& context);

}  // namespace acc::configure
