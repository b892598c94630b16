#pragma once

#include "runtime/shm/peers.hpp"
#include "runtime/shm/pull.hpp"
#include "runtime/shm/regions.hpp"
#include "runtime/shm/staged_collectives.hpp"
#include "runtime/shm/work.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace acc::runtime::shm {

/// The collectives over a segment, in three ways. Small: each rank copies its data into its slot
/// and arrives; when all have, each copies out what it needs: one synchronisation. Staged: the same
/// in chunks, staging the next while the last is processed. Direct: the buffers are in memory that
/// all ranks can access. The choice depends only on what all ranks know alike.
class Collectives {
 public:
  Collectives(Peers& peers, const Regions& regions);
  void run(ActiveCall& active);

 private:
  [[nodiscard]] bool arrives_first(const Work& work) noexcept;
  void alone(const Work& work);

  // collectives_small.cpp
  void small(const Work& work);
  void stage_small(const Work& work, std::byte* slot);
  void copy_out_small(const Work& work);

  // collectives_direct.cpp
  /// Addresses of this rank's buffers, if this call can use them.
  struct Addresses {
    std::uint64_t send = 0;
    std::uint64_t recv = 0;
  };
  [[nodiscard]] Addresses addresses(const Work& work) noexcept;
  /// Continues once all have arrived and their buffers' addresses are known.
  void agreed(const Work& work);
  [[nodiscard]] bool all_registered(const Work& work) const noexcept;
  void registered(const Work& work);
  template <class Source, class Target>
  void reduce_slice(const Work& work, Source source, Target target);
  /// The trial of calls that can be pulled; nullptr: this one cannot.
  [[nodiscard]] PullTrial* trial(const Work& work) noexcept;
  [[nodiscard]] bool all_want_to_pull(const Work& work) const noexcept;
  bool pull(const Work& work);
  void meet(const Work& work);

  Peers& peers_;
  const Regions& regions_;
  const Segment& segment_;
  int rank_;
  int size_;
  std::uint32_t meeting_number_ = 0;  ///< the same on all ranks
  std::vector<const void*> inputs_;   ///< of a reduction, by rank
  StagedCollectives staged_;
  PullTrial broadcast_trial_;
  PullTrial all_gather_trial_;
};

}  // namespace acc::runtime::shm
