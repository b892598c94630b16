#pragma once

#include "agent/evidence/rank_evidence.hpp"

#include <sys/types.h>

#include <string>
#include <vector>

namespace acc::agent::evidence {

/// The program that reads native stacks: it stops the process that it reads. eu-stack does so for
/// about ten milliseconds; gdb for as long as it reads the symbols, seconds for a program with
/// torch.
struct NativeTool {
  enum class Kind { none, eu_stack, gdb };
  Kind kind = Kind::none;
  std::string path{};

  /// The words that run it on a process.
  [[nodiscard]] std::vector<std::string> words(pid_t pid) const;
  /// "eu-stack"; empty: none.
  [[nodiscard]] std::string name() const;
};

/// Of those that are installed, whose path isn't empty, the one that may be used: workers that go
/// on are not stopped by gdb (pure).
[[nodiscard]] NativeTool choose_native_tool(Purpose purpose, std::string eu_stack,
                                            std::string gdb);

/// What a reader of the text needs to know where native stacks are missing for want of a program on
/// these nodes; empty: on none (pure).
[[nodiscard]] std::string missing_native_tool(Purpose purpose,
                                              const std::vector<std::string>& nodes);

}  // namespace acc::agent::evidence
