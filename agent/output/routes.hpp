#pragma once

#include "agent/job_plan.hpp"
#include "agent/output/console_facts.hpp"

#include <string>
#include <string_view>

/// Where the streams of a worker go: decided here, without doing anything.
namespace acc::agent {

enum class Show {
  nothing,   ///< not on the console
  as_is,     ///< exact bytes, no line torn by another rank
  prefixed,  ///< line by line behind the rank's prefix
};

struct Route {
  bool inherit = false;  ///< the worker gets our descriptor, we see nothing
  bool file = false;
  Show show = Show::as_is;
  bool pty = false;  ///< the worker gets a pseudo-terminal instead of a pipe
  friend bool operator==(const Route&, const Route&) = default;
};

struct WorkerRoutes {
  Route out;
  Route err;
  bool one_pipe =
      false;  ///< both streams share a pipe, which keeps their order; `out` holds for it
  friend bool operator==(const WorkerRoutes&, const WorkerRoutes&) = default;
};

WorkerRoutes routes_of(const OutputPlan& plan, LocalRank local, std::uint32_t local_world_size,
                       const ConsoleFacts& facts);
/// Whether any of this node's workers has a log file.
bool wants_files(const OutputPlan& plan, std::uint32_t local_world_size, const ConsoleFacts& facts);

struct PrefixFacts {
  std::string_view role;
  Rank rank;
  LocalRank local;
  bool color = false;
};
/// How many columns the prefix takes on a terminal.
std::size_t prefix_width(std::string_view text, const PrefixFacts& facts);
/// torchrun's template: ${role_name}, ${rank}, ${local_rank}, also without braces. Another $ stays.
std::string render_prefix(std::string_view text, const PrefixFacts& facts);

}  // namespace acc::agent
