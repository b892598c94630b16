#pragma once

#include "launcher/value.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

/// Command lines whose flags have other names than ours; `words` are those behind the launcher's.
namespace acc::configure {

/// A command line of another launcher, said with a config file and acc-launch.
struct ForeignLine {
  launcher::Map map;                     ///< of the config file
  std::vector<std::string> flags;        ///< of acc-launch, for what is no key of a file
  std::vector<std::string> command;      ///< the program and its arguments
  std::vector<std::string> notes;        ///< one for each flag without a counterpart
  std::vector<std::string> variables{};  ///< NAME=VALUE, as set in front of the line
};

/// Open MPI's, MPICH's and Intel MPI's mpirun and mpiexec.
[[nodiscard]] ForeignLine read_mpirun(std::span<const std::string> words, std::uint32_t gpus);
/// The program deepspeed.
[[nodiscard]] ForeignLine read_deepspeed(std::span<const std::string> words, std::uint32_t gpus);

}  // namespace acc::configure
