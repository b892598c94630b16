#pragma once

#include "common/error.hpp"
#include "launcher/configure/other_launchers.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace acc::configure {

/// @param words  the whole line: torchrun, mpirun, mpiexec, deepspeed, `accelerate launch`,
/// acc-launch, or python with the module of one of them
/// @param base  what a --config_file of the line holds; its keys are kept where no flag replaces
/// them
/// @param gpus  devices here, where the line leaves their number to the launcher
[[nodiscard]] Result<ForeignLine> read_foreign_line(std::span<const std::string> words,
                                                    const launcher::Map& base, std::uint32_t gpus);

/// The --config_file that the line names; empty: none.
[[nodiscard]] std::string config_file_in(std::span<const std::string> words);

}  // namespace acc::configure
