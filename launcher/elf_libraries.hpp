#pragma once

#include <string>
#include <vector>

namespace acc::launcher {

/// Names of the shared libraries that a program was linked with (DT_NEEDED), as "libmpi.so.40".
/// Empty for a static program and for anything that isn't a 64-bit ELF file of this machine's byte
/// order. Total: any bytes give an answer.
[[nodiscard]] std::vector<std::string> linked_libraries(const std::string& path);

/// The MPI library among them, by the versions in their names: MPICH's ABI is libmpi.so.12,
/// Open MPI's are 20 and 40.
enum class MpiLibrary { none, mpich, open_mpi };
[[nodiscard]] MpiLibrary mpi_library(const std::vector<std::string>& libraries);

}  // namespace acc::launcher
