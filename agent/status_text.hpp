#pragma once

#include "agent/group_state.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace acc::agent {

/// What the status line on a terminal says (pure).
struct StatusFacts {
  Phase phase = Phase::idle;
  bool is_coordinated = false;
  bool ends_for_good = false;  ///< no round will follow
  std::uint32_t alive = 0;     ///< workers here
  std::uint32_t workers = 1;   ///< workers of this node
  RestartLedger ledger;
  std::uint32_t max_restarts = 0;
  std::string reason;      ///< of the last restart, or why it waits
  Millis in_phase{0};      ///< so long already
  Millis left{0};          ///< until the next round, or until SIGTERM or SIGKILL; 0: unknown
  bool kills_next = true;  ///< `left` is until SIGKILL
  std::string progress;    ///< of running workers, from heartbeats; empty: nothing is known
};

/// A running worker of this node that sends heartbeats.
struct WorkerProgress {
  Rank rank{0};
  std::uint64_t step = 0;
  std::optional<double> steps_per_second{};
  double seconds_since_heartbeat = 0;
  std::string section{};  ///< empty: in none
};
/// The one with the fewest steps, of those the slowest. @param workers  at least one
[[nodiscard]] const WorkerProgress& slowest_of(const std::vector<WorkerProgress>& workers);
/// "step 1200, 3.1 steps/s, slowest: rank 3": the step and rate of the slowest of them, since a
/// synchronous program gets on as that one does. Empty: there is none.
[[nodiscard]] std::string progress_text(const std::vector<WorkerProgress>& workers);

/// "3.14", "12346"
[[nodiscard]] std::string shown_rate(double steps_per_second);
/// Cut to so many characters, of which some may take several bytes.
[[nodiscard]] std::string cut_to(std::string text, std::size_t columns);
/// Whole seconds, as a line that is drawn each second shows them: "1 min 15 s".
[[nodiscard]] std::string shown_seconds(Millis time);

/// Without a line's end, at most `columns` wide; empty: there is nothing to wait for.
[[nodiscard]] std::string status_text(const StatusFacts& facts, std::size_t columns);

}  // namespace acc::agent
