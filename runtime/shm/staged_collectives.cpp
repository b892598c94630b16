#include "runtime/shm/staged_collectives.hpp"

#include "runtime/shm/reduce.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace acc::runtime::shm {
namespace {

constexpr std::size_t kLeastChunk = 16 << 10;

std::size_t divide_up(std::size_t whole, std::size_t part) { return (whole + part - 1) / part; }
/// Of chunk `number` of `whole`.
std::size_t part_of(std::size_t whole, std::size_t chunk, std::size_t number) {
  const auto begin = std::min(whole, number * chunk);
  return std::min(chunk, whole - begin);
}

}  // namespace

StagedCollectives::StagedCollectives(Peers& peers)
    : peers_{peers},
      segment_{peers.segment()},
      rank_{peers.rank()},
      size_{peers.size()},
      inputs_(static_cast<std::size_t>(size_)) {}

void StagedCollectives::run(const Work& work, bool has_arrived) {
  switch (work.what.operation) {
    case Operation::all_reduce:
      return all_reduce(work, has_arrived);
    case Operation::reduce:
      return reduce(work, has_arrived);
    case Operation::reduce_scatter:
      return reduce_scatter(work, has_arrived);
    case Operation::all_gather:
      return all_gather(work, has_arrived);
    case Operation::gather:
      return gather(work, has_arrived);
    case Operation::scatter:
      return scatter(work, has_arrived);
    case Operation::all_to_all:
      return all_to_all(work, has_arrived);
    default:
      return broadcast(work, has_arrived);
  }
}

/// Halves if there would be fewer than two chunks, so that one is staged while the other is
/// processed.
std::size_t StagedCollectives::chunk_bytes(std::size_t whole) const noexcept {
  const auto chunk = segment_.layout().chunk;
  if (whole >= 2 * chunk) return chunk;
  return std::min(chunk, std::max(kLeastChunk, divide_up(whole / 2, kLine) * kLine));
}

/// Bytes of a piece where a chunk holds one for each rank. With kMaxRanks a chunk has one cache
/// line of each.
std::size_t StagedCollectives::piece_bytes(std::size_t whole) const noexcept {
  return std::max(kLine, chunk_bytes(whole) / static_cast<std::size_t>(size_) / kLine * kLine);
}

/// Chunks are numbered; a slot serves every second one. All ranks post `taken` for every chunk, the
/// last one before they return, so the first two chunks of a call wait for those of the previous
/// call.
void StagedCollectives::await_free(const Work& work, std::size_t chunk, std::uint32_t number) {
  const bool only_root_reads = work.is(Operation::gather);
  if (chunk >= 2 && only_root_reads) {
    if (rank_ != work.what.root)
      peers_.await(work.active, work.what.root, Count::taken, number - 2);
  } else {
    peers_.await_all(work.active, Count::taken, number - 2);
  }
}

/// @param in   stages chunk `c` in the slots of number `k`; false: this rank has nothing to stage
/// @param out  processes it, waiting for what it needs
template <class In, class Out>
void StagedCollectives::pipeline(const Work& work, std::size_t chunks, bool has_arrived, In in,
                                 Out out) {
  const auto before = chunk_number_;
  const auto number = [&](std::size_t chunk) {
    return before + 1 + static_cast<std::uint32_t>(chunk);
  };
  const auto stage = [&](std::size_t chunk) {
    if (in(chunk, number(chunk))) post(peers_.mine().staged, number(chunk) * kStep);
  };
  stage(0);
  if (!has_arrived) {
    peers_.arrive(work.active);
    peers_.await_arrivals(work.active);
  }
  for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
    if (chunk + 1 < chunks) stage(chunk + 1);
    out(chunk, number(chunk));
    post(peers_.mine().taken, number(chunk) * kStep);
  }
  chunk_number_ = before + static_cast<std::uint32_t>(chunks);
  // Also of ranks that staged nothing: a count that lags far behind would wrap around and seem
  // ahead.
  peers_.mine().staged.count.store(chunk_number_ * kStep, std::memory_order_release);
  peers_.mine().processed.count.store(chunk_number_ * kStep, std::memory_order_release);
}

// Every rank stages all but its own slice, reduces its slice of all inputs, and copies out the
// slices of the others; in a reduce only root copies out.
void StagedCollectives::all_reduce(const Work& work, bool has_arrived) {
  reduce_slices(work, has_arrived, true);
}

void StagedCollectives::reduce(const Work& work, bool has_arrived) {
  reduce_slices(work, has_arrived, work.what.root == rank_);
}

void StagedCollectives::reduce_slices(const Work& work, bool has_arrived, bool takes) {
  const auto item = work.item;
  const auto unit = chunk_bytes(work.bytes) / item;
  const bool all_take = work.what.operation == Operation::all_reduce;
  const auto& reduction = runtime::reduction(work.what.dtype, work.what.reduce);
  const auto in = [&](std::size_t c, std::uint32_t k) {
    const auto count = part_of(work.what.count, unit, c);
    const auto own = slice(count, item, rank_, size_);
    const auto* from = work.send + c * unit * item;
    await_free(work, c, k);
    auto* slot = segment_.chunk(rank_, k);
    copy_bytes(slot, from, own.begin * item);
    copy_bytes(slot + own.end * item, from + own.end * item, (count - own.end) * item);
    return true;
  };
  const auto out = [&](std::size_t c, std::uint32_t k) {
    const auto count = part_of(work.what.count, unit, c);
    const auto own = slice(count, item, rank_, size_);
    const auto at = c * unit * item;
    peers_.await_all(work.active, Count::staged, k);
    for (int r = 0; r < size_; ++r)
      inputs_[static_cast<std::size_t>(r)] =
          (r == rank_ ? work.send + at : segment_.chunk(r, k)) + own.begin * item;
    // The result goes to the slot for the other ranks and to recv for this one; root's needs no
    // slot.
    auto* const slot = segment_.chunk(rank_, k) + own.begin * item;
    auto* const result = takes ? work.recv + at + own.begin * item : slot;
    reduction.all(result, takes && all_take ? slot : nullptr, inputs_.data(), size_, own.size(),
                  size_);
    post(peers_.mine().processed, k * kStep);
    for (int step = 1; takes && step < size_; ++step) {
      const int r = peers_.after(step);
      const auto theirs = slice(count, item, r, size_);
      peers_.await(work.active, r, Count::processed, k);
      copy_bytes(work.recv + at + theirs.begin * item, segment_.chunk(r, k) + theirs.begin * item,
                 theirs.size() * item);
    }
  };
  pipeline(work, divide_up(work.what.count, unit), has_arrived, in, out);
}

// A chunk holds a piece for each rank.
void StagedCollectives::reduce_scatter(const Work& work, bool has_arrived) {
  const auto item = work.item;
  const auto most = work.most_bytes();
  const auto stride = piece_bytes(most * static_cast<std::size_t>(size_));
  const auto unit = stride / item;
  const auto& reduction = runtime::reduction(work.what.dtype, work.what.reduce);
  const auto in = [&](std::size_t c, std::uint32_t k) {
    await_free(work, c, k);
    auto* slot = segment_.chunk(rank_, k);
    for (int step = 1; step < size_; ++step) {
      const int to = peers_.after(step);
      copy_bytes(slot + static_cast<std::size_t>(to) * stride,
                 work.send + work.offset_of(to) + c * stride,
                 part_of(work.count_of(to), unit, c) * item);
    }
    return true;
  };
  const auto out = [&](std::size_t c, std::uint32_t k) {
    const auto own = static_cast<std::size_t>(rank_);
    peers_.await_all(work.active, Count::staged, k);
    for (int r = 0; r < size_; ++r)
      inputs_[static_cast<std::size_t>(r)] = r == rank_
                                                 ? work.send + work.offset_of(rank_) + c * stride
                                                 : segment_.chunk(r, k) + own * stride;
    reduction.all(work.recv + c * stride, nullptr, inputs_.data(), size_,
                  part_of(work.count_of(rank_), unit, c), size_);
  };
  pipeline(work, divide_up(most, stride), has_arrived, in, out);
}

void StagedCollectives::all_gather(const Work& work, bool has_arrived) {
  const auto most = work.staged_bytes(size_);
  const auto unit = chunk_bytes(most);
  const auto in = [&](std::size_t c, std::uint32_t k) {
    const auto bytes = part_of(work.bytes_of(rank_), unit, c);
    await_free(work, c, k);
    copy_bytes(segment_.chunk(rank_, k), work.send + c * unit, bytes);
    copy_bytes(work.recv + work.offset_of(rank_) + c * unit, work.send + c * unit, bytes);
    return true;
  };
  const auto out = [&](std::size_t c, std::uint32_t k) {
    for (int step = 1; step < size_; ++step) {
      const int r = peers_.after(step);
      peers_.await(work.active, r, Count::staged, k);
      copy_bytes(work.recv + work.offset_of(r) + c * unit, segment_.chunk(r, k),
                 part_of(work.bytes_of(r), unit, c));
    }
  };
  pipeline(work, divide_up(most, unit), has_arrived, in, out);
}

void StagedCollectives::gather(const Work& work, bool has_arrived) {
  const auto most = work.staged_bytes(size_);
  const auto unit = chunk_bytes(most);
  const bool is_root = work.what.root == rank_;
  const auto in = [&](std::size_t c, std::uint32_t k) {
    const auto bytes = part_of(work.bytes_of(rank_), unit, c);
    if (is_root) {
      copy_bytes(work.recv + work.offset_of(rank_) + c * unit, work.send + c * unit, bytes);
      return false;
    }
    await_free(work, c, k);
    copy_bytes(segment_.chunk(rank_, k), work.send + c * unit, bytes);
    return true;
  };
  const auto out = [&](std::size_t c, std::uint32_t k) {
    for (int step = 1; is_root && step < size_; ++step) {
      const int r = peers_.after(step);
      peers_.await(work.active, r, Count::staged, k);
      copy_bytes(work.recv + work.offset_of(r) + c * unit, segment_.chunk(r, k),
                 part_of(work.bytes_of(r), unit, c));
    }
  };
  pipeline(work, divide_up(most, unit), has_arrived, in, out);
}

// Root stages each rank's part in that rank's slot, which has space for a whole chunk.
void StagedCollectives::scatter(const Work& work, bool has_arrived) {
  const auto most = work.most_bytes();
  const auto unit = chunk_bytes(most);
  const int root = work.what.root;
  const auto in = [&](std::size_t c, std::uint32_t k) {
    if (rank_ != root) return false;
    await_free(work, c, k);
    for (int r = 0; r < size_; ++r)
      copy_bytes(r == root ? work.recv + c * unit : segment_.chunk(r, k),
                 work.send + work.offset_of(r) + c * unit, part_of(work.bytes_of(r), unit, c));
    return true;
  };
  const auto out = [&](std::size_t c, std::uint32_t k) {
    if (rank_ == root) return;
    peers_.await(work.active, root, Count::staged, k);
    copy_bytes(work.recv + c * unit, segment_.chunk(rank_, k),
               part_of(work.bytes_of(rank_), unit, c));
  };
  pipeline(work, divide_up(most, unit), has_arrived, in, out);
}

void StagedCollectives::all_to_all(const Work& work, bool has_arrived) {
  const auto ranks = static_cast<std::size_t>(size_);
  const auto unit = piece_bytes(work.bytes * ranks);
  const auto own = static_cast<std::size_t>(rank_);
  const auto in = [&](std::size_t c, std::uint32_t k) {
    const auto bytes = part_of(work.bytes, unit, c);
    await_free(work, c, k);
    auto* slot = segment_.chunk(rank_, k);
    for (int step = 1; step < size_; ++step) {
      const auto to = static_cast<std::size_t>(peers_.after(step));
      copy_bytes(slot + to * unit, work.send + to * work.bytes + c * unit, bytes);
    }
    copy_bytes(work.recv + own * work.bytes + c * unit, work.send + own * work.bytes + c * unit,
               bytes);
    return true;
  };
  const auto out = [&](std::size_t c, std::uint32_t k) {
    for (int step = 1; step < size_; ++step) {
      const int r = peers_.after(step);
      peers_.await(work.active, r, Count::staged, k);
      copy_bytes(work.recv + static_cast<std::size_t>(r) * work.bytes + c * unit,
                 segment_.chunk(r, k) + own * unit, part_of(work.bytes, unit, c));
    }
  };
  pipeline(work, divide_up(work.bytes, unit), has_arrived, in, out);
}

// The length of each pair is known to its two ranks only. Every rank announces its largest part on
// arrival, so that all use the same number of chunks; its first chunk holds the lengths that it
// sends, for the receivers to compare.
void StagedCollectives::all_to_all_v(const Work& work) {
  const auto& call = work.active.call;
  peers_.arrive(work.active, work.most_bytes());
  peers_.await_arrivals(work.active);
  std::size_t most = 0;
  for (int r = 0; r < size_; ++r) most = std::max<std::size_t>(most, peers_.arrival(r).send_at);
  const auto unit = piece_bytes(most * static_cast<std::size_t>(size_));
  std::vector<std::size_t> recv_at(static_cast<std::size_t>(size_));
  std::exclusive_scan(call.recv_counts.begin(), call.recv_counts.end(), recv_at.begin(),
                      std::size_t{0});
  const auto in = [&](std::size_t c, std::uint32_t k) {
    await_free(work, c, k);
    auto* slot = segment_.chunk(rank_, k);
    for (int step = 1; step < size_; ++step) {
      const int to = peers_.after(step);
      const auto index = static_cast<std::size_t>(to);
      const std::uint64_t length = work.bytes_of(to);
      if (c == 0)
        std::memcpy(slot + index * sizeof length, &length, sizeof length);
      else
        copy_bytes(slot + index * unit, work.send + work.offset_of(to) + (c - 1) * unit,
                   part_of(length, unit, c - 1));
    }
    return true;
  };
  const auto out = [&](std::size_t c, std::uint32_t k) {
    if (c == 0) return compare_lengths(work, k);
    for (int step = 1; step < size_; ++step) {
      const auto from = static_cast<std::size_t>(peers_.after(step));
      peers_.await(work.active, static_cast<int>(from), Count::staged, k);
      copy_bytes(work.recv + recv_at[from] * work.item + (c - 1) * unit,
                 segment_.chunk(static_cast<int>(from), k) + static_cast<std::size_t>(rank_) * unit,
                 part_of(call.recv_counts[from] * work.item, unit, c - 1));
    }
  };
  const auto first = chunk_number_ + 1;
  pipeline(work, 1 + divide_up(most, unit), true, in, out);
  // A rank that finds unexpected lengths breaks the group, so no rank returns before all have
  // compared.
  peers_.await_all(work.active, Count::taken, first);
  const auto own = static_cast<std::size_t>(rank_);
  copy_bytes(work.recv + recv_at[own] * work.item, work.send + work.offset_of(rank_),
             work.bytes_of(rank_));
}

void StagedCollectives::compare_lengths(const Work& work, std::uint32_t chunk) {
  for (int step = 1; step < size_; ++step) {
    const int from = peers_.after(step);
    peers_.await(work.active, from, Count::staged, chunk);
    std::uint64_t sent = 0;
    std::memcpy(&sent, segment_.chunk(from, chunk) + static_cast<std::size_t>(rank_) * sizeof sent,
                sizeof sent);
    const auto expected = work.active.call.recv_counts[static_cast<std::size_t>(from)];
    if (sent == expected * work.item) continue;
    const auto rank_of = [&](int index) {
      return peers_.options().ranks.at(static_cast<std::size_t>(index)).rank;
    };
    peers_.fail(work.active, pair_mismatch(peers_.title(work.active), rank_of(from),
                                           sent / work.item, rank_of(rank_), expected));
  }
}

void StagedCollectives::broadcast(const Work& work, bool has_arrived) {
  const auto unit = chunk_bytes(work.bytes);
  const int root = work.what.root;
  const auto in = [&](std::size_t c, std::uint32_t k) {
    if (rank_ != root) return false;
    await_free(work, c, k);
    const auto bytes = part_of(work.bytes, unit, c);
    copy_bytes(segment_.chunk(rank_, k), work.send + c * unit, bytes);
    copy_bytes(work.recv + c * unit, work.send + c * unit, bytes);
    return true;
  };
  const auto out = [&](std::size_t c, std::uint32_t k) {
    if (rank_ == root) return;
    peers_.await(work.active, root, Count::staged, k);
    copy_bytes(work.recv + c * unit, segment_.chunk(root, k), part_of(work.bytes, unit, c));
  };
  pipeline(work, divide_up(work.bytes, unit), has_arrived, in, out);
}

}  // namespace acc::runtime::shm
