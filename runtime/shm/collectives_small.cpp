#include "runtime/shm/collectives.hpp"
#include "runtime/shm/reduce.hpp"

namespace acc::runtime::shm {

// The slot is free: it was last used two calls ago, and every rank that arrived at the previous
// call had finished that one.
void Collectives::small(const Work& work) {
  stage_small(work, segment_.small(rank_, peers_.number() + 1));
  peers_.arrive(work.active);
  peers_.await_arrivals(work.active);
  copy_out_small(work);
}

void Collectives::stage_small(const Work& work, std::byte* slot) {
  switch (work.what.operation) {
    case Operation::all_reduce:
    case Operation::reduce:
      return copy_bytes(slot, work.send, work.bytes);
    case Operation::all_gather:
    case Operation::gather:
      return copy_bytes(slot, work.send, work.bytes_of(rank_));
    case Operation::reduce_scatter:
    case Operation::all_to_all:
      return copy_bytes(slot, work.send, work.whole_bytes(size_));
    case Operation::broadcast:
      if (work.what.root == rank_) copy_bytes(slot, work.send, work.bytes);
      return;
    case Operation::scatter:
      if (work.what.root == rank_) copy_bytes(slot, work.send, work.whole_bytes(size_));
      return;
    default:
      return;
  }
}

void Collectives::copy_out_small(const Work& work) {
  const auto slot = [&](int rank) { return segment_.small(rank, peers_.number()); };
  const bool is_root = work.what.root == rank_;
  const auto reduce_from = [&](std::size_t offset, std::size_t count) {
    for (int r = 0; r < size_; ++r) inputs_[static_cast<std::size_t>(r)] = slot(r) + offset;
    reduction(work.what.dtype, work.what.reduce)
        .all(work.recv, nullptr, inputs_.data(), size_, count, size_);
  };
  const auto own = work.offset_of(rank_);
  switch (work.what.operation) {
    case Operation::all_reduce:
      return reduce_from(0, work.what.count);
    case Operation::reduce:
      if (is_root) reduce_from(0, work.what.count);
      return;
    case Operation::reduce_scatter:
      return reduce_from(own, work.count_of(rank_));
    case Operation::gather:
      if (!is_root) return;
      [[fallthrough]];
    case Operation::all_gather: {
      std::size_t offset = 0;
      for (int r = 0; r < size_; ++r) {
        copy_bytes(work.recv + offset, slot(r), work.bytes_of(r));
        offset += work.bytes_of(r);
      }
      return;
    }
    case Operation::all_to_all:
      for (int r = 0; r < size_; ++r)
        copy_bytes(work.recv + static_cast<std::size_t>(r) * work.bytes, slot(r) + own, work.bytes);
      return;
    case Operation::broadcast:
      return copy_bytes(work.recv, is_root ? work.send : slot(work.what.root), work.bytes);
    case Operation::scatter:
      return copy_bytes(work.recv, slot(work.what.root) + own, work.bytes_of(rank_));
    default:
      return;
  }
}

}  // namespace acc::runtime::shm
