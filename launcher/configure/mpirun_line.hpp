#pragma once

#include "launcher/configure/other_launchers.hpp"

namespace acc::configure {

/// Open MPI's, MPICH's and Intel MPI's mpirun and mpiexec.
/// @param words  behind the launcher's name
[[nodiscard]] Result<ForeignLine> read_mpirun(std::span<const std::string> words,
                                              const LineContext& context);

}  // namespace acc::configure
