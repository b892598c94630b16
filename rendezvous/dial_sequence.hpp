#pragma once

#include "rendezvous/messages.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace acc::rendezvous {

/// An agent's attempts to reach a coordinator: which of its targets is next, how long each attempt
/// may take, and the pauses between them (pure).
class DialSequence {
 public:
  static constexpr Millis kLongestLimit{3'000};
  static constexpr Millis kLongestBackoff{1'000};

  explicit DialSequence(std::uint64_t seed) : random_{seed} {}

  /// When the next attempt is due.
  [[nodiscard]] Instant due() const { return due_; }
  void set_due(Instant when) { due_ = when; }
  /// Back to the first target, with the first pause.
  void restart() { attempts_ = next_ = 0; }
  void restart_pauses() { attempts_ = 0; }

  /// Chooses among `targets`, or the address of a redirect if `takes_redirect`.
  /// @return nothing: there is no target; else whether it is the first of them, or the redirect's
  std::optional<bool> choose(const std::vector<HostPort>& targets, bool takes_redirect);
  /// The one chosen last.
  [[nodiscard]] const HostPort& chosen() const { return chosen_; }
  void failed() { ++attempts_, ++next_; }
  /// The next attempt needs no pause: the first of `targets` is a new one, or some weren't tried.
  [[nodiscard]] bool has_untried(const std::vector<HostPort>& targets) const;

  /// An answer named another address, or none.
  /// @return whether the next attempt needs no pause: not after many redirects, which are a cycle
  bool redirected(const std::optional<HostPort>& to);
  /// The redirect's target is tried next, and then the first one.
  void rewind() { next_ = 0; }

  // Before this node ever had a place in a round (`at_start`), the nodes of a launch start
  // together, some before the coordinator's.
  /// Time limit for connecting. A connection with a known round trip gets three of them; without
  /// one, the second attempt waits longer than the first, which should report a wrong address soon.
  [[nodiscard]] Millis limit(bool at_start, bool is_first, Millis heartbeat_timeout,
                             Millis round_trip) const;
  /// Full jitter: after a loss all agents start at the same moment.
  [[nodiscard]] Millis backoff(bool at_start, Millis heartbeat_timeout);

 private:
  Instant due_{};
  std::size_t attempts_ = 0;  ///< since the loss
  HostPort chosen_;
  HostPort first_;               ///< of the targets being tried
  std::size_t next_ = 0;         ///< in those
  std::uint32_t redirects_ = 0;  ///< in a row
  std::optional<HostPort> redirect_;
  std::uint64_t random_;
};

}  // namespace acc::rendezvous
