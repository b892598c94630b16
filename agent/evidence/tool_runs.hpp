#pragma once

#include "common/duration.hpp"

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace acc::agent::evidence {

/// A program that reads a process's stacks, run as a child of the collecting process.
struct ToolRun {
  std::vector<std::string> words;  ///< the program by its path, and its arguments
  std::string output;
  bool is_finished = false;  ///< it ended in time
};

/// Those that are not finished at the deadline get SIGTERM, and after so long SIGKILL.
inline constexpr Millis kTermTime{400};
inline constexpr Millis kKillTime{100};

/// Runs all, some at once; those that are not finished at the deadline are ended. For a program
/// without threads: blocks.
void run_tools(std::span<ToolRun> runs, std::size_t at_once,
               std::chrono::steady_clock::time_point deadline);

/// On $PATH, and in the usual places; empty: it isn't installed.
[[nodiscard]] std::string find_tool(const std::string& name);

}  // namespace acc::agent::evidence
