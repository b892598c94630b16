#pragma once

#include "agent/watch/hang_policy.hpp"
#include "common/duration.hpp"
#include "common/heartbeat_slot.hpp"
#include "common/ids.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace acc::agent {

/// The longest times seen, kept for the next run of a job; 0: none yet.
struct LearnedTimes {
  Millis step{0};   ///< between two heartbeats
  Millis first{0};  ///< from the round's start to the second heartbeat
  friend bool operator==(const LearnedTimes&, const LearnedTimes&) = default;
};

/// A worker that has been silent for longer than it may.
struct SilentRank {
  LocalRank rank{0};
  Millis silent{0};
  Millis limit{0};
  bool is_before_first_step = false;
  std::string section;  ///< whose limit it was; empty: that of a step
  bool is_successor = false;  ///< of another program in this round, and has sent none itself
  [[nodiscard]] bool is_overdue() const { return !section.empty() && silent >= limit; }
  friend bool operator==(const SilentRank&, const SilentRank&) = default;
};

/// Decides from the workers' heartbeats which of them hang (pure: time is an argument).
///
/// A worker is judged from its start, or that of another program that has its page since, for which
/// the time of a first step counts anew; from its last heartbeat and from the begin and end of
/// sections, whichever was last. In a section only the section's own limit counts. The others may
/// wait for the one in it: as long as any worker is in a section that isn't over its limit, the
/// time of those outside doesn't pass.
class HangDetector {
 public:
  HangDetector(const HangPolicy& policy, const LearnedTimes& before)
      : policy_{policy}, before_{before} {}

  void begin_round(Instant now, std::uint32_t workers);
  /// The workers, or this process, were stopped for a while: nothing that passed counts.
  void restart_clocks(Instant now);
  /// A debugger of ours held the workers: that time counts for nothing, what was before it does.
  void leave_out(Instant from, Instant to);
  /// A worker of another node is in a section: the time of those here, outside, begins anew.
  void wait_for_other_nodes(Instant now);

  /// Of --hang_timeout auto: the longest step seen on this node, and one of another node's.
  [[nodiscard]] Millis longest_step() const { return std::max(before_.step, here_.step); }
  void take_longer_step(Millis step) { elsewhere_ = std::max(elsewhere_, step); }

  struct Look {
    std::vector<SilentRank> silent;
    /// Where some are silent: those that are so for at least half of what they may be. Ranks that
    /// wait for each other fall silent within one step, and the last one of them is the cause.
    std::vector<SilentRank> nearly;
    /// Where some are silent: those that send heartbeats, but none of a later step for at least
    /// half of what they may be silent. The silent ones may wait for them.
    std::vector<LocalRank> stuck;
    /// Those that would be silent, if nobody were in a section.
    std::vector<SilentRank> held;
    /// Those in a section that isn't over its limit.
    std::vector<LocalRank> in_section;
    /// One outside a section has been silent for some seconds, also while it waits for other nodes.
    bool is_any_waiting = false;
    std::optional<Instant> next;  ///< when the first of the others would be silent for too long
    /// No worker has reported anything in this round, nor a program before it, in the time for the
    /// first step: the program may not use heartbeats. Then none is silent, unless
    /// --first_step_timeout was given.
    bool is_unused = false;
    /// Those that have reported nothing in that time, while others go on: the program may send
    /// heartbeats from those alone. Then these aren't silent, unless --first_step_timeout was given.
    std::vector<LocalRank> without_heartbeats;
  };
  /// @param beats  by local rank
  /// @param lives  whether that worker runs; as many
  Look look(const std::vector<heartbeat::Beat>& beats, const std::vector<bool>& lives, Instant now);
  /// As look(), where ranks of another node are silent: those here that they may wait for are told,
  /// also if none here is silent.
  Look look_beside_silent(const std::vector<heartbeat::Beat>& beats, const std::vector<bool>& lives,
                          Instant now);

  /// For the next run: of this one and those before; nothing: too little was seen.
  [[nodiscard]] std::optional<LearnedTimes> learned() const;
  [[nodiscard]] Millis step_limit() const;
  [[nodiscard]] Millis first_limit() const;

 private:
  struct Seen {
    std::uint32_t pid = 0;      ///< of the program that has the page; 0: none, or it sends messages
    Instant began{};            ///< the round, or a program that took the page over
    bool is_successor = false;  ///< of another program in this round
    std::uint64_t beats = 0;
    std::uint64_t time_ns = 0;
    bool was_in_section = false;  ///< it, or one that it may have waited for
    bool is_inside = false;       ///< of a section of its own, at the last look
    std::uint64_t step = 0;
    Instant step_since{};         ///< a look saw the step for the first time
    Instant::duration waited{0};  ///< since its last sign of life, for others in sections
  };
  struct Hold {
    Instant from;
    Instant to;
  };
  [[nodiscard]] Millis held_between(Instant from, Instant to) const;
  void note_successors(const std::vector<heartbeat::Beat>& beats, Instant now);
  [[nodiscard]] Instant floor_of(const Seen& seen) const { return std::max(floor_, seen.began); }
  void learn(Seen& seen, const heartbeat::Beat& beat, bool is_any_in_section);
  [[nodiscard]] bool is_in_section(std::size_t i, const heartbeat::Beat& beat, Instant now) const;
  /// Since the last look: the time in which any of them was in a section.
  [[nodiscard]] Hold time_in_sections(const std::vector<heartbeat::Beat>& beats,
                                      const std::vector<bool>& lives, Instant now) const;
  void note_waiting(const std::vector<heartbeat::Beat>& beats, const std::vector<bool>& lives,
                    Instant now);
  [[nodiscard]] bool is_stuck(const Seen& seen, const heartbeat::Beat& beat, Millis limit,
                              Instant now) const;
  void spare_ranks_without_heartbeats(const std::vector<heartbeat::Beat>& beats,
                                      const std::vector<bool>& lives, Look& look) const;
  [[nodiscard]] SilentRank judge(LocalRank rank, const heartbeat::Beat& beat, Instant now) const;

  HangPolicy policy_;
  LearnedTimes before_;
  LearnedTimes here_;
  Millis first_step_{0};  ///< of this round: the longest from a first heartbeat to the second
  Millis elsewhere_{0};          ///< the longest step of other nodes: never learned from too few
  std::uint64_t intervals_ = 0;  ///< learned from
  std::vector<Seen> seen_;
  Instant floor_{};
  Instant looked_{};
  Instant outside_floor_{};  ///< of those in no section
  std::vector<Hold> holds_;  ///< the oldest first, few
};

}  // namespace acc::agent
