#pragma once

#include "runtime/shm/work.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace acc::runtime::shm {

/// Collectives through the chunk slots of the segment: each rank stages a chunk of its data and
/// copies out what it needs of the others', staging the next chunk meanwhile.
class StagedCollectives {
 public:
  explicit StagedCollectives(Peers& peers);
  /// @param has_arrived  the ranks have compared this call; else they do, after the first chunk
  void run(const Work& work, bool has_arrived);
  /// The lengths of each pair differ: compares them and moves the data.
  void all_to_all_v(const Work& work);

 private:
  template <class In, class Out>
  void pipeline(const Work& work, std::size_t chunks, bool has_arrived, In in, Out out);
  [[nodiscard]] std::size_t chunk_bytes(std::size_t whole) const noexcept;
  [[nodiscard]] std::size_t piece_bytes(std::size_t whole) const noexcept;
  void await_free(const Work& work, std::size_t chunk, std::uint32_t number);
  void all_reduce(const Work& work, bool has_arrived);
  void reduce(const Work& work, bool has_arrived);
  void reduce_slices(const Work& work, bool has_arrived, bool takes);
  void reduce_scatter(const Work& work, bool has_arrived);
  void all_gather(const Work& work, bool has_arrived);
  void gather(const Work& work, bool has_arrived);
  void scatter(const Work& work, bool has_arrived);
  void all_to_all(const Work& work, bool has_arrived);
  void compare_lengths(const Work& work, std::uint32_t chunk);
  void broadcast(const Work& work, bool has_arrived);

  Peers& peers_;
  const Segment& segment_;
  int rank_;
  int size_;
  std::uint32_t chunk_number_ = 0;   ///< of the last chunk; the same on all ranks
  std::vector<const void*> inputs_;  ///< of a reduction, by rank
};

}  // namespace acc::runtime::shm
