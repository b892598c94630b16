#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>

namespace acc {

/// A number that can't be passed for another kind of number by accident: no arithmetic, no implicit
/// conversion back.
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
/// The ranks of one node, which are consecutive.
struct RankRange {
  Rank first{0};
  std::uint32_t count = 1;

  [[nodiscard]] constexpr Rank of(LocalRank local) const noexcept {
    return Rank{first.value() + local.value()};
  }
  /// Nothing: a rank of another node.
  [[nodiscard]] constexpr std::optional<LocalRank> local(Rank rank) const noexcept {
    if (rank < first || rank.value() - first.value() >= count) return std::nullopt;
    return LocalRank{rank.value() - first.value()};
  }
  friend constexpr bool operator==(const RankRange&, const RankRange&) = default;
};
/// "rank 4", "ranks 4-7"
[[nodiscard]] std::string describe(const RankRange& ranks);
/// One attempt with a fixed set of nodes and ranks, numbered upwards within a job; the first is 0.
using Round = Strong<struct RoundTag, std::uint64_t>;

}  // namespace acc
