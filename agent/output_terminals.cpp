#include "agent/output_hub_impl.hpp"
#include "agent/pseudo_terminal.hpp"
#include "common/worker_env.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

// What workers see of a terminal: pseudo-terminals, the size of the window, variables.
namespace acc::agent {

namespace env = worker_env;

// Empty: a pipe will do.
UniqueFd OutputHub::Impl::open_terminal(Channel& channel) {
  auto terminal = open_pseudo_terminal(window_of(channel.prefix_columns));
  if (terminal) {
    channel.child_end = std::move(terminal->workers);
    return std::move(terminal->ours);
  }
  const int why = errno;
  if (!std::exchange(lacks_terminals_, true))
    say("acc-launch: warning: no pseudo-terminal for workers (" + std::string{std::strerror(why)} +
        "): C programs may show their output late (--pty off says nothing of it)");
  return {};
}

// Prefixes take room from the workers' lines. Unknown where there is no terminal.
WindowSize OutputHub::Impl::window_of(std::size_t prefix_columns) const {
  WindowSize window = facts_.window;
  if (window.columns > prefix_columns)
    window.columns = static_cast<std::uint16_t>(window.columns - prefix_columns);
  return window;
}

void OutputHub::Impl::window_changed() {
  facts_.window = window_size(options_.out, options_.err);
  for (Worker& worker : workers_)
    for (Channel* channel : {&worker.out, &worker.err})
      if (channel->reader) Pump::set_window(*channel->reader, window_of(channel->prefix_columns));
}

std::vector<Variable> OutputHub::Impl::environment(LocalRank local, Rank rank) const {
  const WorkerRoutes routes = routes_of(plan_, local, local_world_size_, facts_);
  std::vector<Variable> variables;
  if (routes.out.inherit) return variables;
  const bool is_prefixed = routes.out.show == Show::prefixed;
  const WindowSize window =
      window_of(is_prefixed ? prefix_width(plan_.prefix, {role, rank, local}) : 0);
  if (window.columns != 0)
    variables.push_back({std::string{env::kColumns}, std::to_string(window.columns)});
  if (window.lines != 0)
    variables.push_back({std::string{env::kLines}, std::to_string(window.lines)});
  if (!routes.out.pty) return variables;
  // What is a terminal to the program may be a file or a pipe behind us …
  const bool shows_color = facts_.out_is_tty && routes.out.show != Show::nothing;
  if (!shows_color) variables.push_back({std::string{env::kNoColor}, "1"});
  // … and nobody can turn pages there.
  for (const auto pager : {env::kPager, env::kGitPager})
    variables.push_back({std::string{pager}, "cat", true});
  return variables;
}

}  // namespace acc::agent
