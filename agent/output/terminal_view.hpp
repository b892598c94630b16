#pragma once

#include "agent/job_plan.hpp"
#include "agent/output/console_facts.hpp"
#include "agent/output/routes.hpp"

#include <cstddef>
#include <vector>

/// What a worker sees of the terminal behind us (pure).
namespace acc::agent {

/// The window that is left to a worker's lines behind a prefix. Unknown where there is no terminal.
WindowSize window_beside(std::size_t prefix_columns, WindowSize window);

/// COLUMNS and LINES, and for a program on a pseudo-terminal what keeps colours out of files, and
/// pagers away.
std::vector<Variable> output_variables(const Route& out, std::size_t prefix_columns,
                                       const ConsoleFacts& facts);

}  // namespace acc::agent
