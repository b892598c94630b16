#pragma once

#include "agent/fanout/fan_out.hpp"
#include "common/duration.hpp"

#include <optional>
#include <set>
#include <string>
#include <vector>

namespace acc::agent {

/// A launch that waits until all of its hosts have room (pure). All are asked, and if one is full
/// all are released and asked again later: between two tries it holds no slot anywhere, so that
/// launches that need each other's hosts can't block each other. Once a host has answered, it is
/// waited for also while it doesn't, or takes no jobs: daemons restart, and hosts are drained.
class SlotWait {
 public:
  /// A try has ended only because hosts had no room, or are away that were there: nothing else is
  /// wrong, and nobody stopped it. Remembers which hosts have answered.
  [[nodiscard]] bool is_due(const FanOutState& state);

  /// What the launch waits for, for the user; nothing: it is what was told last.
  [[nodiscard]] std::optional<std::string> tell(const FanOutState& state,
                                                const std::vector<std::string>& names,
                                                const std::vector<std::string>& why);
  /// Until the next try: longer each time, up to 15 s. @param fraction  random, in [0, 1): two
  /// launches that took slots from each other ask at different times
  [[nodiscard]] Millis pause(double fraction);

 private:
  struct Awaited {
    std::vector<HostIndex> full;
    std::vector<HostIndex> away;
    bool operator==(const Awaited&) const = default;
  };

  Awaited told_;
  std::set<HostIndex> seen_;
  unsigned tries_ = 0;
};

}  // namespace acc::agent
