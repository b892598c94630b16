#pragma once

#include "runtime/backend.hpp"
#include "runtime/shm/peers.hpp"
#include "runtime/tcp/placement.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace acc::runtime::tcp {

using shm::ActiveCall;
using shm::Count;

/// What the ranks of one host share in a group that spans several: shm::Peers, by which they wait
/// for each other and learn that the group broke, and a staging buffer for bytes from and to other
/// hosts. Of Peers' counts it uses `staged` (in the buffer), `processed` (exchanged between the
/// hosts) and `taken` (copied out), by passes.
class NodeSegment {
 public:
  /// Bytes of one half of the staging buffer: while one half is read the other is written.
  static constexpr std::size_t kStaging = 4 << 20;
  static constexpr std::size_t kAlign = 64;  ///< of a piece in it, in bytes
  /// Above 65,536 ranks more, so that a piece of each has a place.
  [[nodiscard]] static constexpr std::size_t staging_bytes(std::size_t ranks) noexcept {
    return std::max(kStaging, ranks * kAlign);
  }
  [[nodiscard]] static std::size_t bytes(const RankPlacement& placement);

  struct Options {
    std::vector<RankFacts> ranks;  ///< of the whole group
    std::string group;
    /// Called once, on the thread that broke the group, after it did.
    std::function<void()> on_break;
    /// Called when a call's time is up: finds out who is late, on all hosts, and breaks the group.
    std::function<void(ActiveCall&)> find_late;
  };
  NodeSegment(UniqueFd memory, const RankPlacement& placement, Options options);

  [[nodiscard]] shm::Peers& peers() noexcept { return peers_; }
  [[nodiscard]] const shm::Peers& peers() const noexcept { return peers_; }
  [[nodiscard]] std::size_t size() const noexcept { return placement_.local_ranks().size(); }
  [[nodiscard]] std::byte* staging(std::uint32_t pass) const noexcept {
    return peers_.segment().staging() +
           (pass % 2) * staging_bytes(static_cast<std::size_t>(placement_.size()));
  }

  [[nodiscard]] bool is_healthy() const noexcept { return peers_.is_healthy(); }
  void check_healthy(const ActiveCall& active) { peers_.check_healthy(active); }
  void break_with(const Error& cause) noexcept { peers_.break_with(cause, {}); }
  [[noreturn]] void fail(const ActiveCall& active, const Error& cause) {
    break_with(cause);
    peers_.throw_cause(active);
  }

  /// How far the ranks of this host are, by rank of the group; the others are unknown.
  [[nodiscard]] std::vector<shm::RankStatus> statuses() const;
  /// Describes any rank of the group: "rank 2 (host a, pid 4711)".
  [[nodiscard]] std::string describe(int rank) const;

 private:
  const RankPlacement& placement_;
  std::vector<RankFacts> ranks_;
  shm::Peers peers_;
};

}  // namespace acc::runtime::tcp
