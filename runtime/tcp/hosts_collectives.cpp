#include "runtime/tcp/hosts_collectives.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace acc::runtime::tcp {

namespace {

/// Below this many bytes a reduction sends all inputs to all hosts: one trip instead of there and
/// back, for n times the bytes.
constexpr std::size_t kChainFrom = 64 * 1024;

const std::byte* input(const Call& call) { return static_cast<const std::byte*>(call.send); }
std::byte* output(const Call& call) { return static_cast<std::byte*>(call.recv); }

/// Offset and size of each rank's part of a gathered whole.
struct Layout {
  std::vector<std::size_t> at, bytes;
};
Layout parts_of(const Call& call, int ranks) {
  Layout parts;
  std::size_t at = 0;
  for (int r = 0; r < ranks; ++r) {
    const auto count =
        call.counts.empty() ? call.what.count : call.counts[static_cast<std::size_t>(r)];
    parts.at.push_back(at);
    parts.bytes.push_back(count * size_of(call.what.dtype));
    at += parts.bytes.back();
  }
  return parts;
}

}  // namespace

void Collectives::run(ActiveCall& active) {
  pipeline_.begin(active);
  dispatch(active);
  pipeline_.end();
}

void Collectives::meet(ActiveCall& active) {
  pipeline_.begin(active);
  pipeline_.run(active, {});
  pipeline_.end();
}

void Collectives::dispatch(ActiveCall& active) {
  const auto& call = active.call;
  const auto n = static_cast<std::size_t>(placement_.size());
  const auto count = call.what.count;
  switch (call.what.operation) {
    case Operation::all_reduce:
      return reduce(active, {count, 0, count});
    case Operation::reduce:
      return reduce(active, {count, 0, call.what.root == placement_.rank ? count : 0});
    case Operation::reduce_scatter: {
      const auto rank = static_cast<std::size_t>(placement_.rank);
      if (call.counts.empty()) return reduce(active, {n * count, rank * count, (rank + 1) * count});
      const auto before = call.counts.first(rank);
      const auto mine = std::accumulate(before.begin(), before.end(), std::size_t{0});
      return reduce(active, {count, mine, mine + call.counts[rank]});
    }
    case Operation::broadcast:
      return broadcast(active);
    case Operation::all_gather:
      return gather_parts(active, -1);
    case Operation::gather:
      return gather_parts(active, call.what.root);
    case Operation::scatter:
      return scatter(active);
    case Operation::all_to_all:
      return call.by_pairs() ? all_to_all_v(active) : all_to_all(active);
    default:
      return pipeline_.run(active, {});
  }
}

// ---- moving ----

void Collectives::gather_parts(ActiveCall& active, int reader) {
  const auto& call = active.call;
  const auto parts = parts_of(call, placement_.size());
  std::vector<StagingPipeline::Piece> pieces;
  for (int r = 0; r < placement_.size(); ++r)
    pieces.push_back({r, parts.bytes[static_cast<std::size_t>(r)], reader});
  pipeline_.distribute(
      active, pieces, [&](std::size_t) { return input(call); },
      [&](std::size_t p) { return output(call) + parts.at[p]; });
}

void Collectives::broadcast(ActiveCall& active) {
  const auto& call = active.call;
  auto* data = output(call);
  pipeline_.distribute(
      active, {{call.what.root, call.bytes(), -1}}, [&](std::size_t) { return data; },
      [&](std::size_t) { return data; });
}

void Collectives::scatter(ActiveCall& active) {
  const auto& call = active.call;
  const auto parts = parts_of(call, placement_.size());
  std::vector<StagingPipeline::Piece> pieces;
  for (int r = 0; r < placement_.size(); ++r)
    pieces.push_back({call.what.root, parts.bytes[static_cast<std::size_t>(r)], r});
  pipeline_.distribute(
      active, pieces, [&](std::size_t p) { return input(call) + parts.at[p]; },
      [&](std::size_t) { return output(call); });
}

// In each step every rank sends to the one `shift` ranks after it.
void Collectives::all_to_all(ActiveCall& active) {
  const auto& call = active.call;
  const int n = placement_.size(), me = placement_.rank;
  const auto bytes = call.bytes();
  for (int shift = 1; shift < n; ++shift) {
    std::vector<StagingPipeline::Piece> pieces;
    for (int r = 0; r < n; ++r) pieces.push_back({r, bytes, (r + shift) % n});
    const auto target = static_cast<std::size_t>((me + shift) % n);
    pipeline_.distribute(
        active, pieces, [&](std::size_t) { return input(call) + target * bytes; },
        [&](std::size_t p) { return output(call) + p * bytes; });
  }
  const auto own = static_cast<std::size_t>(me) * bytes;
  if (bytes > 0) std::memcpy(output(call) + own, input(call) + own, bytes);
}

// Bytes that each rank sends to each other, by sender; compared with what this rank expects.
std::vector<std::uint64_t> Collectives::lengths_of_all(ActiveCall& active) {
  const auto& call = active.call;
  const auto n = static_cast<std::size_t>(placement_.size());
  const auto each = size_of(call.what.dtype);
  std::vector<std::uint64_t> mine, all(n * n);
  for (const std::size_t count : call.counts) mine.push_back(count * each);
  std::vector<StagingPipeline::Piece> pieces;
  for (std::size_t r = 0; r < n; ++r)
    pieces.push_back({static_cast<int>(r), n * sizeof(std::uint64_t), -1});
  pipeline_.distribute(
      active, pieces, [&](std::size_t) { return reinterpret_cast<const std::byte*>(mine.data()); },
      [&](std::size_t p) { return reinterpret_cast<std::byte*>(all.data() + p * n); });
  const auto me = static_cast<std::size_t>(placement_.rank);
  for (std::size_t r = 0; r < n; ++r)
    if (all[r * n + me] != call.recv_counts[r] * each)
      node_.fail(active,
                 pair_mismatch(to_string(call.what), static_cast<int>(r), all[r * n + me] / each,
                               placement_.rank, call.recv_counts[r]));
  return all;
}

void Collectives::all_to_all_v(ActiveCall& active) {
  const auto& call = active.call;
  const auto n = static_cast<std::size_t>(placement_.size());
  const auto me = static_cast<std::size_t>(placement_.rank);
  const auto each = size_of(call.what.dtype);
  const auto lengths = lengths_of_all(active);
  const auto at = [&](std::span<const std::size_t> counts, std::size_t rank) {
    const auto before = counts.first(rank);
    return std::accumulate(before.begin(), before.end(), std::size_t{0}) * each;
  };
  for (std::size_t shift = 1; shift < n; ++shift) {
    std::vector<StagingPipeline::Piece> pieces;
    for (std::size_t r = 0; r < n; ++r) {
      const auto reader = (r + shift) % n;
      pieces.push_back({static_cast<int>(r), lengths[r * n + reader], static_cast<int>(reader)});
    }
    pipeline_.distribute(
        active, pieces,
        [&](std::size_t) { return input(call) + at(call.counts, (me + shift) % n); },
        [&](std::size_t p) { return output(call) + at(call.recv_counts, p); });
  }
  if (call.counts[me] > 0)
    std::memcpy(output(call) + at(call.recv_counts, me), input(call) + at(call.counts, me),
                call.counts[me] * each);
}

// ---- reducing ----

void Collectives::reduce(ActiveCall& active, const Wanted& wanted) {
  const auto bytes = wanted.count * size_of(active.call.what.dtype);
  if (bytes < kChainFrom || !placement_.in_order) return reduce_everywhere(active, wanted);
  if (placement_.one_rank_per_host() && active.call.what.operation == Operation::all_reduce)
    return reduce_directly(active);
  reduce_by_chain(active, wanted);
}

// Every rank receives all inputs and reduces the part that it needs.
void Collectives::reduce_everywhere(ActiveCall& active, const Wanted& wanted) {
  const auto& call = active.call;
  const auto each = size_of(call.what.dtype);
  const auto n = placement_.size();
  const auto& kernels = reduction(call.what.dtype, call.what.reduce);
  std::vector<StagingPipeline::Piece> pieces;
  for (int r = 0; r < n; ++r) pieces.push_back({r, wanted.count * each, -1});
  pipeline_.gather(
      active, pieces, [&](std::size_t) { return input(call); },
      [&](std::size_t offset, std::size_t bytes, const void* const* at) {
        const auto first = std::max(wanted.begin, offset / each);
        const auto last = std::min(wanted.end, (offset + bytes) / each);
        if (first >= last) return;
        std::vector<const void*> inputs;
        for (int r = 0; r < n; ++r)
          inputs.push_back(static_cast<const std::byte*>(at[r]) + first * each - offset);
        kernels.all(output(call) + (first - wanted.begin) * each, nullptr, inputs.data(), n,
                    last - first, n);
      });
}

void Collectives::reduce_directly(ActiveCall& active) {
  StagingPipeline::Step step;
  step.exchange = [&](SocketMux&, std::byte*) { direct_.run(active); };
  pipeline_.run(active, step);
}

// Block by block through the staging buffers: each proxy runs the chain for a slice of the block,
// and leaves the result where the first rank's input was.
void Collectives::reduce_by_chain(ActiveCall& active, const Wanted& wanted) {
  const auto& call = active.call;
  const auto each = size_of(call.what.dtype);
  const auto all = wanted.count * each;
  const auto begin = wanted.begin * each, end = wanted.end * each;
  const auto block = NodeSegment::kStaging / placement_.most / 4096 * 4096;
  for (std::size_t offset = 0; offset < all; offset += block) {
    const auto bytes = std::min(block, all - offset);
    StagingPipeline::Step step;
    step.stage = [&](std::byte* staging) {
      std::memcpy(staging + placement_.index * block, input(call) + offset, bytes);
    };
    step.exchange = [&](SocketMux&, std::byte* staging) {
      chain_.run(active, slice_of_block(call, staging, block, bytes));
    };
    step.copy_out = [&](const std::byte* staging) {
      const auto from = std::max(begin, offset), to = std::min(end, offset + bytes);
      if (from < to) std::memcpy(output(call) + from - begin, staging + from - offset, to - from);
    };
    pipeline_.run(active, step);
  }
}

Chain::Work Collectives::slice_of_block(const Call& call, std::byte* staging, std::size_t block,
                                        std::size_t bytes) const {
  const auto each = size_of(call.what.dtype);
  const auto rails = static_cast<std::size_t>(placement_.rails);
  const auto slice = (bytes / rails + 63) / 64 * 64;
  const auto from = std::min(bytes, slice * placement_.index);
  const auto to = placement_.index + 1 == rails ? bytes : std::min(bytes, from + slice);
  Chain::Work work;
  for (std::size_t i = 0; i < placement_.local_ranks().size(); ++i)
    work.inputs.push_back(staging + i * block + from);
  work.result = staging + from;
  work.count = (to - from) / each;
  work.type = call.what.dtype;
  work.op = call.what.reduce;
  work.ranks = placement_.size();
  return work;
}

}  // namespace acc::runtime::tcp
