#include "agent/output/terminal_view.hpp"

#include "common/worker_env.hpp"

#include <string>

namespace acc::agent {

namespace env = worker_env;

WindowSize window_beside(std::size_t prefix_columns, WindowSize window) {
  if (window.columns > prefix_columns)
    window.columns = static_cast<std::uint16_t>(window.columns - prefix_columns);
  return window;
}

std::vector<Variable> output_variables(const Route& out, std::size_t prefix_columns,
                                       const ConsoleFacts& facts) {
  std::vector<Variable> variables;
  if (out.inherit) return variables;
  const WindowSize window = window_beside(prefix_columns, facts.window);
  if (window.columns != 0)
    variables.push_back({std::string{env::kColumns}, std::to_string(window.columns)});
  if (window.lines != 0)
    variables.push_back({std::string{env::kLines}, std::to_string(window.lines)});
  if (!out.pty) return variables;
  // What is a terminal to the program may be a file or a pipe behind us …
  const bool shows_color = facts.out_is_tty && out.show != Show::nothing;
  if (!shows_color) variables.push_back({std::string{env::kNoColor}, "1"});
  // … and pages can't be turned there.
  for (const auto pager : {env::kPager, env::kGitPager})
    variables.push_back({std::string{pager}, "cat", true});
  return variables;
}

}  // namespace acc::agent
