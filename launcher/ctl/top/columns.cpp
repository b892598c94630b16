#include "launcher/ctl/top/columns.hpp"

#include "common/plain_text.hpp"
#include "common/text.hpp"
#include "launcher/ctl/text_table.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

namespace acc::ctl::top {

namespace {

/// A rank that says nothing for longer is worth a look.
constexpr double kQuietAfter = 10;
constexpr std::size_t kLongestCommand = 400;
/// Rows without a figure stand behind all others where large figures come first.
constexpr double kNoFigure = -1;

template <class T>
double number_or(const std::optional<T>& value) {
  return value ? static_cast<double>(*value) : kNoFigure;
}

std::string plain(std::string_view text) { return plain_line(text, kLongestCommand); }

std::string steps_text(const Totals& totals) {
  if (!totals.least_step) return "";
  const auto least = std::to_string(*totals.least_step);
  return totals.least_step == totals.most_step ? least
                                               : least + "-" + std::to_string(*totals.most_step);
}

std::string gpu_text(const std::optional<double>& percent) {
  return percent ? percent_text(*percent) : "-";
}

std::string name_of_node(const JobFigures& job, const RankFigures& rank) {
  return rank.node < job.nodes.size() ? job.nodes[rank.node].name : "";
}

bool any_rank(const JobFigures& job, bool (*has)(const RankFigures&)) {
  return std::ranges::any_of(job.ranks, has);
}

std::string node_gpus(const NodeFigures& node) {
  double sum = 0;
  std::size_t count = 0;
  for (const auto& gpu : node.gpus) {
    sum += gpu.percent.value_or(0);
    count += gpu.percent ? 1 : 0;
  }
  return count == 0 ? "" : percent_text(sum / static_cast<double>(count));
}

std::string node_state(const JobFigures& job, std::size_t node, const Totals& totals) {
  const auto& figures = job.nodes[node];
  if (!figures.is_watched) return "elsewhere";
  if (!figures.why.empty()) return "no answer";
  const bool is_mixed = totals.running > 0 && totals.running < totals.ranks;
  if (!is_mixed) return figures.state;
  return std::to_string(totals.running) + " of " + std::to_string(totals.ranks) + " run";
}

std::string node_text(const JobFigures& job, std::size_t node, const Totals&) {
  return job.nodes[node].why;
}

constexpr std::array kRankColumns{
    RankColumn{"RANK", "number in the job", true, false,
               [](const JobFigures&, const RankFigures& r) { return std::to_string(r.rank); },
               [](const JobFigures&, const RankFigures& r) {
                 return SortKey{static_cast<double>(r.rank)};
               }},
    RankColumn{"NODE", "machine", false, false, name_of_node,
               [](const JobFigures& j, const RankFigures& r) {
                 return SortKey{0, name_of_node(j, r)};
               },
               nullptr, [](const JobFigures& j) { return j.nodes.size() > 1; }},
    RankColumn{"PID", "process id on its node", true, false,
               [](const JobFigures&, const RankFigures& r) {
                 return r.pid > 0 ? std::to_string(r.pid) : "-";
               },
               [](const JobFigures&, const RankFigures& r) {
                 return SortKey{static_cast<double>(r.pid)};
               }},
    RankColumn{"STATE", "what it does, or how it ended", false, false,
               [](const JobFigures&, const RankFigures& r) { return state_text(r); },
               [](const JobFigures&, const RankFigures& r) {
                 return SortKey{0, state_text(r)};
               },
               node_state},
    RankColumn{"STEP", "of its last heartbeat", true, false,
               [](const JobFigures&, const RankFigures& r) {
                 return r.step ? std::to_string(*r.step) : "-";
               },
               [](const JobFigures&, const RankFigures& r) { return SortKey{number_or(r.step)}; },
               [](const JobFigures&, std::size_t, const Totals& t) { return steps_text(t); },
               [](const JobFigures& j) {
                 return any_rank(j, [](const RankFigures& r) { return r.step.has_value(); });
               }},
    RankColumn{"STEPS/S", "speed", true, false,
               [](const JobFigures&, const RankFigures& r) {
                 const bool lives = r.end.empty();
                 return lives && r.steps_per_second ? rate_text(*r.steps_per_second) : "-";
               },
               [](const JobFigures&, const RankFigures& r) {
                 return SortKey{number_or(r.steps_per_second)};
               },
               [](const JobFigures&, std::size_t, const Totals& t) {
                 return t.steps_per_second ? rate_text(*t.steps_per_second) : "";
               },
               [](const JobFigures& j) {
                 return any_rank(
                     j, [](const RankFigures& r) { return r.steps_per_second.has_value(); });
               }},
    RankColumn{
        "MEMORY", "resident memory of the process", true, true,
        [](const JobFigures&, const RankFigures& r) {
          return r.rss_bytes ? size_words(static_cast<std::uint64_t>(
                                   std::max<std::int64_t>(0, *r.rss_bytes)))
                             : "-";
        },
        [](const JobFigures&, const RankFigures& r) { return SortKey{number_or(r.rss_bytes)}; },
        [](const JobFigures&, std::size_t, const Totals& t) {
          return t.running == 0 ? ""
                                : size_words(static_cast<std::uint64_t>(
                                      std::max<std::int64_t>(0, t.rss_bytes)));
        }},
    RankColumn{
        "CPU%", "processor time; 100: one core", true, true,
        [](const JobFigures&, const RankFigures& r) {
          return r.cpu_percent ? percent_text(*r.cpu_percent) : "-";
        },
        [](const JobFigures&, const RankFigures& r) { return SortKey{number_or(r.cpu_percent)}; },
        [](const JobFigures&, std::size_t, const Totals& t) {
          return t.cpu_percent ? percent_text(*t.cpu_percent) : "";
        }},
    RankColumn{
        "GPU%", "use of its GPU", true, true,
        [](const JobFigures&, const RankFigures& r) { return gpu_text(r.gpu_percent); },
        [](const JobFigures&, const RankFigures& r) { return SortKey{number_or(r.gpu_percent)}; },
        [](const JobFigures& j, std::size_t node, const Totals&) {
          return node_gpus(j.nodes[node]);
        },
        [](const JobFigures& j) {
          return std::ranges::any_of(j.nodes, [](const auto& n) { return !n.gpus.empty(); });
        }},
    RankColumn{"LAST LINE", "what it wrote last", false, false,
               [](const JobFigures&, const RankFigures& r) { return r.last_line; },
               [](const JobFigures&, const RankFigures& r) {
                 return SortKey{0, r.last_line};
               },
               node_text},
};

std::string time_text(const JobRow& job, std::int64_t now_ms) {
  return job.started_ms > 0 ? span_words(seconds_of(job, now_ms)) : "-";
}

std::string exit_text(const JobRow& job) {
  return job.exit_code ? std::to_string(*job.exit_code) : "-";
}

/// Those that run first.
double place_of_state(std::string_view state) {
  constexpr std::array<std::string_view, 6> kOrder{"running", "stopping", "waiting",
                                                   "failed",  "stopped",  "succeeded"};
  return static_cast<double>(std::ranges::find(kOrder, state) - kOrder.begin());
}

constexpr std::array kJobColumns{
    JobColumn{"ID", "its name and a mark of its own", false, false,
              [](const JobRow& j, std::int64_t) { return plain(j.id); },
              [](const JobRow& j, std::int64_t) {
                return SortKey{0, j.id};
              }},
    JobColumn{"STATE", "running, waiting … or how it ended", false, false,
              [](const JobRow& j, std::int64_t) { return plain(j.state); },
              [](const JobRow& j, std::int64_t) {
                return SortKey{place_of_state(j.state), j.id};
              }},
    JobColumn{"USER", "who started it", false, false,
              [](const JobRow& j, std::int64_t) { return plain(j.user); },
              [](const JobRow& j, std::int64_t) {
                return SortKey{0, j.user};
              }},
    JobColumn{"SLOTS", "of its nodes, or workers", true, true,
              [](const JobRow& j, std::int64_t) { return std::to_string(j.slots); },
              [](const JobRow& j, std::int64_t) { return SortKey{static_cast<double>(j.slots)}; }},
    JobColumn{"TIME", "since its start, or for how long it ran", true, false, time_text,
              [](const JobRow& j, std::int64_t now_ms) { return SortKey{seconds_of(j, now_ms)}; }},
    JobColumn{"EXIT", "exit code", true, false,
              [](const JobRow& j, std::int64_t) { return exit_text(j); },
              [](const JobRow& j, std::int64_t) { return SortKey{number_or(j.exit_code)}; }},
    JobColumn{"COMMAND", "what it runs", false, false,
              [](const JobRow& j, std::int64_t) { return plain(command_text(j)); },
              [](const JobRow& j, std::int64_t) {
                return SortKey{0, command_text(j)};
              }},
};

}  // namespace

std::span<const RankColumn> rank_columns() { return kRankColumns; }
std::span<const JobColumn> job_columns() { return kJobColumns; }

double seconds_of(const JobRow& job, std::int64_t now_ms) {
  if (job.started_ms <= 0) return 0;
  const auto end = is_over(job.state) && job.ended_ms > 0 ? job.ended_ms : now_ms;
  return (static_cast<double>(end) - static_cast<double>(job.started_ms)) / 1000;
}

std::string percent_text(double percent) {
  char text[32];
  std::snprintf(text, sizeof text, percent > 0 && percent < 9.95 ? "%.1f" : "%.0f",
                std::clamp(percent, 0.0, 1e9));
  return text;
}

std::string rate_text(double per_second) {
  char text[32];
  const double shown = std::clamp(per_second, 0.0, 1e12);
  std::snprintf(text, sizeof text, shown >= 1000 ? "%.0f" : "%.3g", shown);
  return text;
}

std::string state_text(const RankFigures& rank) {
  if (!rank.end.empty()) return rank.end;
  if (rank.life == RankFigures::Life::starting) return "starting";
  if (!rank.section.empty()) return "in " + rank.section;
  if (rank.step && rank.heartbeat_age_s >= kQuietAfter)
    return "quiet " + span_words(rank.heartbeat_age_s);
  return "running";
}

Style style_of(const RankFigures& rank) {
  if (rank.life == RankFigures::Life::failed) return Style::bad;
  if (!rank.end.empty() || rank.life == RankFigures::Life::starting) return Style::faint;
  const bool is_quiet = rank.step && rank.section.empty() && rank.heartbeat_age_s >= kQuietAfter;
  return is_quiet ? Style::warning : Style::plain;
}

Style style_of_state(std::string_view state) {
  if (state == "failed") return Style::bad;
  if (state == "running") return Style::good;
  if (state == "stopping" || state == "restarting" || state == "waiting for nodes")
    return Style::warning;
  return is_over(state) || state == "ended" ? Style::faint : Style::plain;
}

}  // namespace acc::ctl::top
