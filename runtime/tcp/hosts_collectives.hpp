#pragma once

#include "runtime/tcp/chain.hpp"
#include "runtime/tcp/rounds.hpp"
#include "runtime/tcp/trade.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace acc::runtime::hosts {

/// The collectives over several hosts, made of rounds and chains.
class Collectives {
 public:
  Collectives(Room& room, const Placement& placement, Courier& courier, Lifeline& lifeline,
              const std::string& group, bool check)
      : room_{room},
        placement_{placement},
        rounds_{room, placement, placement.carries() ? &courier : nullptr, group, check},
        chain_{courier, lifeline, placement},
        trade_{courier, lifeline, placement} {}

  void run(Turn& turn);
  /// Nothing but that all come and call the same.
  void meet(Turn& turn);

 private:
  void dispatch(Turn& turn);
  void gather_parts(Turn& turn, int reader);
  void broadcast(Turn& turn);
  void scatter(Turn& turn);
  void all_to_all(Turn& turn);
  void all_to_all_v(Turn& turn);
  [[nodiscard]] std::vector<std::uint64_t> lengths_of_all(Turn& turn);
  /// Of `count` elements, of which this rank wants those from `begin` to `end`.
  struct Wanted {
    std::size_t count = 0, begin = 0, end = 0;  ///< elements
  };
  void reduce(Turn& turn, const Wanted& wanted);
  void reduce_everywhere(Turn& turn, const Wanted& wanted);
  void reduce_along(Turn& turn, const Wanted& wanted);
  void reduce_directly(Turn& turn);
  [[nodiscard]] Chain::Work slice_of_block(const Call& call, std::byte* board, std::size_t block,
                                           std::size_t bytes) const;

  Room& room_;
  const Placement& placement_;
  Rounds rounds_;
  Chain chain_;
  Trade trade_;
};

}  // namespace acc::runtime::hosts
