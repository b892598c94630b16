#include "agent/evidence/stacks_report.hpp"

#include "agent/evidence/culprits.hpp"
#include "agent/evidence/flight_dump.hpp"
#include "agent/evidence/native_tool.hpp"
#include "common/duration.hpp"
#include "common/text.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <utility>

namespace acc::agent::evidence {

namespace {

constexpr std::size_t kFramesShown = 40;
constexpr std::size_t kOtherThreads = 8;
constexpr std::size_t kRanksShown = 256;  // of those in the same place

std::string state_words(char state) {
  switch (state) {
    case 'R':
      return "running";
    case 'S':
      return "sleeping";
    case 'D':
      return "in the kernel, can't be interrupted";
    case 'T':
      return "stopped";
    case 'Z':
      return "has exited";
    default:
      return "unknown";
  }
}

std::string beat_words(const RankEvidence& rank) {
  if (!rank.beat || (rank.beat->beats == 0 && rank.beat->time_ns == 0)) return "no heartbeat yet";
  const auto& beat = *rank.beat;
  std::string text = "step " + std::to_string(beat.step) + ", last heartbeat " +
                     describe(Millis{std::llround(rank.seconds_since_beat * 1000)}) + " ago";
  if (beat.section_since_ns != 0) text += ", in section '" + beat.section + "'";
  if (beat.checkpoints > 0)
    text += ", last checkpoint of step " + std::to_string(beat.checkpoint_step);
  return text;
}

std::string collective_words(const RankSummary& s) {
  if (s.collectives == 0) return {};
  const auto what = s.operation + " #" + std::to_string(s.collectives);
  return s.is_inside ? "is inside of " + what : "has left " + what;
}

std::string facts_of(const RankEvidence& rank, bool names_node) {
  const auto& s = rank.summary;
  std::string text = "  rank " + std::to_string(s.rank.value()) +
                     (names_node ? "  on " + s.node : "") + "  pid " + std::to_string(s.pid) +
                     (rank.command.empty() ? "" : " (" + rank.command + ")") + "  state " +
                     std::string(1, s.state) + " (" +
                     (s.state == 't' ? "held by " + debugger_of(s) : state_words(s.state)) + ")";
  if (rank.worker_pid != s.pid && rank.worker_pid != 0)
    text += "  started by pid " + std::to_string(rank.worker_pid);
  if (!rank.wait_channel.empty()) text += "  in " + rank.wait_channel;
  if (!rank.system_call.empty()) text += "  system call " + rank.system_call;
  text += "\n    " + beat_words(rank);
  if (const auto words = collective_words(s); !words.empty()) text += "; " + words;
  text += '\n';
  for (const auto& note : rank.notes) text += "    " + note + '\n';
  for (const auto& group : rank.flight)
    text += "    torch's flight recorder: " + flight_words(group) + '\n';
  return text;
}

void add_stack(std::string& text, std::string_view kind, const ThreadStack& stack) {
  text +=
      "    " + std::string{kind} + ", " + stack.title + (stack.title.ends_with(':') ? "\n" : ":\n");
  for (std::size_t i = 0; i < std::min(stack.frames.size(), kFramesShown); ++i) {
    const auto& frame = stack.frames[i];
    text += "      " + frame.function + (frame.place.empty() ? "" : "  " + frame.place) + '\n';
  }
  if (stack.frames.size() > kFramesShown)
    text += "      … " + std::to_string(stack.frames.size() - kFramesShown) + " more\n";
}

void add_stacks(std::string& text, std::string_view kind, const std::vector<ThreadStack>& stacks) {
  for (std::size_t i = 0; i < std::min(stacks.size(), kOtherThreads); ++i)
    add_stack(text, kind, stacks[i]);
  if (stacks.size() > kOtherThreads)
    text += "    … " + std::to_string(stacks.size() - kOtherThreads) + " more threads\n";
}

using Group = std::vector<const RankEvidence*>;

std::vector<Group> groups_of(const std::vector<RankEvidence>& ranks) {
  std::map<std::string, Group> by_key;
  for (const auto& rank : ranks) by_key[group_key(rank.summary)].push_back(&rank);
  std::vector<Group> groups;
  for (auto& [key, group] : by_key) groups.push_back(std::move(group));
  std::ranges::stable_sort(groups, {}, &Group::size);
  return groups;
}

std::string names_of(const Group& group) {
  std::vector<std::uint32_t> ranks;
  for (const auto* rank : group) ranks.push_back(rank->summary.rank.value());
  return plural(group.size(), "rank") + ": " + describe_ranks(std::move(ranks));
}

}  // namespace

std::string stacks_text(const Facts& facts, const std::vector<RankEvidence>& ranks) {
  std::string text = "job " + facts.job + ", attempt " + std::to_string(facts.round) + ", node " +
                     facts.node + ", " + facts.when + "\n" + facts.why + "\n";
  for (const auto& node : facts.missing) text += "no answer from node " + node + '\n';
  if (const auto words = finished_words(facts.finished); !words.empty()) text += words + '\n';
  std::vector<RankSummary> summaries;
  for (const auto& rank : ranks) summaries.push_back(rank.summary);
  const bool names_nodes = std::ranges::any_of(
      summaries, [&](const RankSummary& s) { return s.node != summaries.front().node; });
  for (const auto& line : behind_lines(summaries)) text += line + '\n';
  for (const auto& line : missing_in_flight(ranks)) text += line + '\n';
  for (const auto& group : groups_of(ranks)) {
    text += "\n---- " + names_of(group) + " ----\n";
    for (std::size_t i = 0; i < std::min(group.size(), kRanksShown); ++i)
      text += facts_of(*group[i], names_nodes);
    if (group.size() > kRanksShown)
      text += "  … " + std::to_string(group.size() - kRanksShown) + " more ranks\n";
    // Of other nodes' ranks not each has come with its stacks.
    const auto has_stack = [](const RankEvidence* rank) {
      return !rank->python.empty() || !rank->native.empty();
    };
    const auto with_stack = std::ranges::find_if(group, has_stack);
    const auto& first = with_stack == group.end() ? *group.front() : **with_stack;
    if (group.size() > 1 && (!first.python.empty() || !first.native.empty()))
      text += "  stacks of rank " + std::to_string(first.summary.rank.value()) + ":\n";
    add_stacks(text, "Python", first.python);
    add_stacks(text, "native", first.native);
  }
  text += '\n';
  if (const auto lacks = missing_native_tool(facts.purpose, facts.without_native_tool);
      !lacks.empty())
    text += lacks + '\n';
  text +=
      "read with: " + (facts.tools.empty() ? "/proc" : "/proc, " + join(facts.tools, ", ")) + '\n';
  return text;
}

std::string text_of_nodes(Facts facts, std::vector<NodeEvidence> nodes) {
  std::vector<RankEvidence> all;
  std::vector<std::string> names;
  for (auto& node : nodes) {
    names.push_back(node.node);
    if (node.lacks_native_tool) facts.without_native_tool.push_back(node.node);
    std::ranges::move(node.ranks, std::back_inserter(all));
    std::ranges::move(node.finished, std::back_inserter(facts.finished));
    for (auto& tool : node.tools)
      if (std::ranges::find(facts.tools, tool) == facts.tools.end())
        facts.tools.push_back(std::move(tool));
  }
  std::ranges::sort(all, {}, [](const RankEvidence& rank) { return rank.summary.rank; });
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());  // two nodes of one host
  facts.node = join(names, ", ");
  return stacks_text(facts, all);
}

}  // namespace acc::agent::evidence
