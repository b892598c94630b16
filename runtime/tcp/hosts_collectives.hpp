#pragma once

#include "runtime/tcp/chain.hpp"
#include "runtime/tcp/direct_all_reduce.hpp"
#include "runtime/tcp/staging_pipeline.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace acc::runtime::tcp {

/// The collectives over several hosts, built on staging passes, chains and direct exchange.
class Collectives {
 public:
  Collectives(NodeSegment& node, const RankPlacement& placement, SocketMux& mux,
              AbortableWait& abortable, const std::string& group, bool check)
      : node_{node},
        placement_{placement},
        pipeline_{node, placement, placement.is_proxy() ? &mux : nullptr, group, check},
        chain_{mux, abortable, placement},
        direct_{mux, abortable, placement} {}

  void run(ActiveCall& active);
  /// Only waits until all ranks have arrived with the same call.
  void meet(ActiveCall& active);

 private:
  void dispatch(ActiveCall& active);
  void gather_parts(ActiveCall& active, int reader);
  void broadcast(ActiveCall& active);
  void scatter(ActiveCall& active);
  void all_to_all(ActiveCall& active);
  void all_to_all_v(ActiveCall& active);
  [[nodiscard]] std::vector<std::uint64_t> lengths_of_all(ActiveCall& active);
  /// A reduction of `count` elements, of which this rank needs those from `begin` to `end`.
  struct Wanted {
    std::size_t count = 0, begin = 0, end = 0;  ///< elements
  };
  void reduce(ActiveCall& active, const Wanted& wanted);
  void reduce_everywhere(ActiveCall& active, const Wanted& wanted);
  void reduce_by_chain(ActiveCall& active, const Wanted& wanted);
  void reduce_directly(ActiveCall& active);
  [[nodiscard]] Chain::Work slice_of_block(const Call& call, std::byte* staging, std::size_t block,
                                           std::size_t bytes) const;

  NodeSegment& node_;
  const RankPlacement& placement_;
  StagingPipeline pipeline_;
  Chain chain_;
  DirectAllReduce direct_;
};

}  // namespace acc::runtime::tcp
