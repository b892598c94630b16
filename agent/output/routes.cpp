#include "agent/output/routes.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace acc::agent {

namespace {

struct Asked {
  bool tee = false;
  bool redirect = false;
};

bool is_shown(const OutputPlan& plan, LocalRank local) {
  return plan.console.empty() ||
         std::find(plan.console.begin(), plan.console.end(), local) != plan.console.end();
}

Route route_of(const OutputPlan& plan, Asked asked, bool shown, bool captured) {
  Route route;
  route.file = asked.tee || asked.redirect || !plan.log_dir.empty();
  if (!shown || (asked.redirect && !asked.tee))
    route.show = Show::nothing;
  else if (asked.tee)
    route.show = Show::prefixed;
  route.inherit = !captured && !route.file && route.show == Show::as_is;
  return route;
}

}  // namespace

WorkerRoutes routes_of(const OutputPlan& plan, LocalRank local, std::uint32_t local_world_size,
                       const ConsoleFacts& facts) {
  // A single worker on a terminal keeps it: progress bars, pdb and questions work as without us.
  const bool keeps_terminal = local_world_size == 1 && facts.out_is_tty && facts.err_is_tty;
  const bool captured =
      plan.capture == Choice::yes || (plan.capture == Choice::automatic && !keeps_terminal);
  const bool shown = is_shown(plan, local);
  const Streams tee = plan.tee.of(local);
  const Streams redirects = plan.redirects.of(local);
  WorkerRoutes routes;
  routes.out = route_of(plan, {has_out(tee), has_out(redirects)}, shown, captured);
  routes.err = route_of(plan, {has_err(tee), has_err(redirects)}, shown, captured);
  const bool pty = plan.pty && !routes.out.inherit;
  routes.one_pipe = facts.same_target && !facts.journal_out && routes.out == routes.err &&
                    !routes.out.file && !routes.out.inherit && routes.out.show == Show::as_is;
  // stderr is never buffered: it stays a pipe, unless the two share one.
  routes.out.pty = pty;
  routes.err.pty = pty && routes.one_pipe;
  return routes;
}

bool wants_files(const OutputPlan& plan, std::uint32_t local_world_size,
                 const ConsoleFacts& facts) {
  for (std::uint32_t i = 0; i < local_world_size; ++i) {
    const WorkerRoutes routes = routes_of(plan, LocalRank{i}, local_world_size, facts);
    if (routes.out.file || routes.err.file) return true;
  }
  return false;
}

std::size_t prefix_width(std::string_view text, const PrefixFacts& facts) {
  const std::string prefix = render_prefix(text, {facts.role, facts.rank, facts.local, false});
  const auto starts_character = [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  };
  return static_cast<std::size_t>(std::count_if(prefix.begin(), prefix.end(), starts_character));
}

std::string render_prefix(std::string_view text, const PrefixFacts& facts) {
  const std::array<std::pair<std::string_view, std::string>, 3> names{{
      {"role_name", std::string{facts.role}},
      {"local_rank", std::to_string(facts.local.value())},
      {"rank", std::to_string(facts.rank.value())},
  }};
  std::string result;
  while (!text.empty()) {
    const auto found = std::find_if(names.begin(), names.end(), [&](const auto& name) {
      return text.starts_with("${" + std::string{name.first} + "}") ||
             text.starts_with("$" + std::string{name.first});
    });
    if (text.front() != '$' || found == names.end()) {
      result += text.front();
      text.remove_prefix(1);
      continue;
    }
    result += found->second;
    text.remove_prefix(found->first.size() + (text[1] == '{' ? 3 : 1));
  }
  if (!facts.color || result.empty()) return result;
  // Not red: that is for failures.
  static constexpr std::array<std::string_view, 6> kColors{"36", "33", "32", "35", "34", "96"};
  return "\x1b[" + std::string{kColors[facts.rank.value() % kColors.size()]} + "m" + result +
         "\x1b[0m";
}

}  // namespace acc::agent
