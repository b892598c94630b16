#pragma once

#include "common/error.hpp"
#include "launcher/configure/other_launchers.hpp"

#include <span>
#include <string>

namespace acc::configure {

/// @param words  the whole line: torchrun, mpirun, mpiexec, deepspeed, `accelerate launch`,
/// acc-launch, or python with the module of one of them
[[nodiscard]] Result<ForeignLine> read_foreign_line(std::span<const std::string> words,
                                                    LineContext context);

/// The caller's variables with those in front of the line, which has them instead.
[[nodiscard]] launcher::Environment environment_of(std::span<const std::string> words,
                                                   launcher::Environment caller);

/// The config file that the line reads; empty: none.
/// @param in_default_place  the file there; empty: there is none
[[nodiscard]] std::string config_file_in(std::span<const std::string> words,
                                         const std::string& in_default_place);

}  // namespace acc::configure
