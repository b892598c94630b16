#pragma once

#include "common/duration.hpp"
#include "rendezvous/peer.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace acc::rendezvous {

/// Pending questions of workers whether their round may still write, each until there is a proof
/// younger than the question; and the probe that asks the members for one. Pure.
class Inquiries {
 public:
  struct Inquiry {
    PeerId peer;
    std::uint64_t id = 0;
    Instant asked;
  };

  /// Ignored when there are too many: then the asking agent's deadline answers.
  void add(const Inquiry& inquiry);
  /// Removes and returns the questions that `proof` answers.
  [[nodiscard]] std::vector<Inquiry> take_answered(Instant proof);
  [[nodiscard]] std::vector<Inquiry> take_all();
  [[nodiscard]] bool empty() const { return pending_.empty(); }

  /// True if the members must be asked for a proof. Questions that arrived after a probe was sent
  /// need another one, and a probe may get lost: it is repeated after `repeat`.
  [[nodiscard]] bool needs_probe(Instant proof, Instant now, Millis repeat) const;
  void probed(Instant now) { probed_at_ = now; }
  /// The next question needs a newer probe.
  void forget_probe() { probed_at_.reset(); }
  [[nodiscard]] bool has_probe() const { return probed_at_.has_value(); }

 private:
  std::vector<Inquiry> pending_;
  std::optional<Instant> probed_at_;  ///< the newest probe, while a question is pending
};

}  // namespace acc::rendezvous
