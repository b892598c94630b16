#pragma once

#include "agent/evidence/rank_evidence.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace acc::agent::evidence {

/// The ranks for which the others wait.
struct Culprits {
  std::vector<std::size_t> which;  ///< of the ranks given; the first one is named as the cause
  std::string
      why;  ///< of the first one: "it is stopped (state T)"; empty: nothing tells them apart
  /// Where those are stopped: others whose stacks don't wait for any rank, either.
  std::vector<std::size_t> not_waiting{};
};

/// Whether it waits for other ranks; nothing: neither its stack nor our runtime tells.
[[nodiscard]] std::optional<bool> waits(const RankSummary& rank);

/// Finds them by what differs between them and the others (pure). In this order: a process that is
/// stopped; one that sends heartbeats of a step that isn't beyond that of the silent ones, or of
/// the next one if its stack isn't where these wait, while these wait; one that hasn't entered the
/// collective that others wait in, of these rather those that aren't known to wait elsewhere; one
/// whose stack doesn't wait for other ranks; one in a section for longer than that may take; the
/// fewest steps; the stack that most others don't have. If nothing tells them apart, all silent
/// ranks.
///
/// A rank in its first step, or one that sends no heartbeats, is never silent. It is the culprit
/// only if it is stopped, or if others are known to wait and it is known not to.
[[nodiscard]] Culprits find_culprits(const std::vector<RankSummary>& ranks);

/// "ranks 1,2 sent no heartbeat in this attempt, so rank 0 may wait for one of them", of those that
/// aren't silent; empty: there are none.
[[nodiscard]] std::string unheard_words(const std::vector<RankSummary>& ranks,
                                        const Culprits& culprits);

/// "rank 1 sends heartbeats, but only of step 15", of those that aren't named and aren't known to
/// wait; empty: there are none.
[[nodiscard]] std::string repeating_words(const std::vector<RankSummary>& ranks,
                                          const Culprits& culprits);

/// "rank 1 had finished (exit code 0) 12 s before", with `link` behind the name; empty: none had.
[[nodiscard]] std::string finished_words(const std::vector<FinishedRank>& finished,
                                         std::string_view link = " ");

/// "behind the others: rank 2, at f (x.cpp:3): ranks 0,1 wait for it", and which ranks sent no
/// heartbeat. Nothing: none is silent, or all are and nothing tells them apart.
[[nodiscard]] std::vector<std::string> behind_lines(const std::vector<RankSummary>& ranks);

/// "a debugger, gdb (pid 71)", of a rank that one holds.
[[nodiscard]] std::string debugger_of(const RankSummary& rank);

/// "0,2-3"
[[nodiscard]] std::string describe_ranks(std::vector<std::uint32_t> ranks);
/// "rank 3", "ranks 0,2-3"
[[nodiscard]] std::string name_ranks(std::vector<std::uint32_t> ranks);

}  // namespace acc::agent::evidence
