#pragma once

#include <compare>
#include <cstdint>

namespace acc {

/// A number that can't be swapped for another kind of number by accident: no arithmetic, no
/// implicit way back.
template <class Tag, class Rep = std::uint32_t>
class Strong {
 public:
  using Value = Rep;
  constexpr Strong() noexcept = default;
  constexpr explicit Strong(Rep v) noexcept : v_{v} {}
  [[nodiscard]] constexpr Rep value() const noexcept { return v_; }
  friend constexpr auto operator<=>(Strong, Strong) = default;

 private:
  Rep v_{};
};

using Rank = Strong<struct RankTag>;  ///< 0-based in the whole job; may change every round
using LocalRank = Strong<struct LocalRankTag>;  ///< 0-based on this node
using NodeRank = Strong<struct NodeRankTag>;    ///< 0-based number of the node in the job
using WorldSize = Strong<struct WorldSizeTag>;  ///< workers in the whole job, at least 1
/// One attempt with a fixed set of nodes and ranks, numbered upwards for ever within a job; the
/// first is 0.
using Round = Strong<struct RoundTag, std::uint64_t>;

}  // namespace acc
