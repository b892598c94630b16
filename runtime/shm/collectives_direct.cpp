#include "runtime/shm/collectives.hpp"
#include "runtime/shm/pull.hpp"
#include "runtime/shm/reduce.hpp"

#include <algorithm>

namespace acc::runtime::shm {
namespace {

// Between two ranks, measured: one copy by the kernel against two by us, 84 against 104 µs at 1
// MiB; at 16 MiB it loses, and among more ranks always.
constexpr std::size_t kPullFrom = 256 << 10;
constexpr std::size_t kPullTo = 2 << 20;

}  // namespace

Collectives::Places Collectives::places(const Work& work) const noexcept {
  const auto ranks = static_cast<std::size_t>(size_);
  const bool may_pull = peers_.can_pull() && work.bytes >= kPullFrom && work.bytes <= kPullTo &&
                        work.turn.call.counts.empty();
  const auto address = [](const void* at) { return reinterpret_cast<std::uintptr_t>(at); };
  switch (work.what.operation) {
    case Operation::all_reduce:
      return {regions_.where(work.send, work.bytes), regions_.where(work.recv, work.bytes)};
    case Operation::reduce_scatter:
      return {regions_.where(work.send, work.bytes * ranks), 0};
    case Operation::all_gather: {
      const auto at = regions_.where(work.send, work.bytes_of(rank_));
      return {at == 0 && may_pull ? address(work.send) : at, 0};
    }
    case Operation::broadcast: {
      const bool is_root = work.what.root == rank_;
      const auto at = regions_.where(is_root ? work.send : work.recv, work.bytes);
      return {at == 0 && may_pull ? address(is_root ? work.send : work.recv) : at, 0};
    }
    default:
      return {};
  }
}

bool Collectives::direct(const Work& work) {
  if (all_registered(work)) {
    registered(work);
    return true;
  }
  return can_pull(work) && pull(work);
}

/// Each rank must have the region still, to know where the others' parts are.
bool Collectives::all_registered(const Work& work) const noexcept {
  const auto& own = peers_.arrival(rank_);
  for (int r = 0; r < size_; ++r) {
    const auto& theirs = peers_.arrival(r);
    if (!Regions::same_region(theirs.send_at, own.send_at)) return false;
    if (work.is(Operation::all_reduce) && !Regions::same_region(theirs.recv_at, own.recv_at))
      return false;
  }
  return true;
}

void Collectives::registered(const Work& work) {
  const auto source = [&](int r) { return regions_.at(peers_.arrival(r).send_at, r); };
  const auto target = [&](int r) { return regions_.at(peers_.arrival(r).recv_at, r); };
  const auto own = static_cast<std::size_t>(rank_) * work.bytes;
  switch (work.what.operation) {
    case Operation::all_reduce:
      reduce_slice(work, source, target);
      break;
    case Operation::reduce_scatter:
      for (int r = 0; r < size_; ++r)
        inputs_[static_cast<std::size_t>(r)] = (r == rank_ ? work.send : source(r)) + own;
      reduction(work.what.dtype, work.what.reduce)
          .all(work.recv, nullptr, inputs_.data(), size_, work.what.count, size_);
      break;
    case Operation::all_gather:
      for (int step = 0; step < size_; ++step) {
        const int r = peers_.after(step);
        copy_bytes(work.recv + work.offset_of(r), r == rank_ ? work.send : source(r),
                   work.bytes_of(r));
      }
      break;
    default:
      copy_bytes(work.recv, rank_ == work.what.root ? work.send : source(work.what.root),
                 work.bytes);
  }
  meet(work);
}

/// Each rank reduces its slice of all, and writes it to all.
template <class Source, class Target>
void Collectives::reduce_slice(const Work& work, Source source, Target target) {
  const auto& reduction = runtime::reduction(work.what.dtype, work.what.reduce);
  const auto mine = slice(work.what.count, work.item, rank_);
  constexpr std::size_t kBlock =
      4096;  // bytes: what was just reduced is copied out of the first cache
  const auto step = kBlock / work.item;
  for (auto at = mine.begin; at < mine.end; at += step) {
    const auto count = std::min(step, mine.end - at);
    for (int r = 0; r < size_; ++r)
      inputs_[static_cast<std::size_t>(r)] = source(r) + at * work.item;
    auto* const first = target(0) + at * work.item;
    reduction.all(first, target(1) + at * work.item, inputs_.data(), size_, count, size_);
    for (int r = 2; r < size_; ++r)
      copy_bytes(target(r) + at * work.item, first, count * work.item);
  }
}

bool Collectives::can_pull(const Work& work) const noexcept {
  if (!work.is(Operation::all_gather) && !work.is(Operation::broadcast)) return false;
  for (int r = 0; r < size_; ++r) {
    const auto& theirs = peers_.arrival(r);
    if (theirs.can_pull == 0 || theirs.send_at == 0 || Regions::is_place(theirs.send_at))
      return false;
  }
  return true;
}

/// @return false: some rank could not read after all (memory of a device, say), so nobody relies on
/// what was read, nor tries again.
bool Collectives::pull(const Work& work) {
  const auto read = [&](int from, std::byte* to) {
    const auto pid = peers_.options().ranks.at(static_cast<std::size_t>(from)).pid;
    if (!read_memory_of(pid, peers_.arrival(from).send_at, to, work.bytes))
      peers_.mine().pull_failed.store(peers_.number());
  };
  if (work.is(Operation::broadcast)) {
    if (rank_ != work.what.root)
      read(work.what.root, work.recv);
    else
      copy_bytes(work.recv, work.send, work.bytes);
  } else {
    copy_bytes(work.recv + work.offset_of(rank_), work.send, work.bytes);
    for (int step = 1; step < size_; ++step)
      read(peers_.after(step), work.recv + work.offset_of(peers_.after(step)));
  }
  meet(work);
  for (int r = 0; r < size_; ++r) {
    if (segment_.place(r).pull_failed.load() != peers_.number()) continue;
    peers_.never_pull();
    return false;
  }
  return true;
}

/// Until all have done with each other's buffers.
void Collectives::meet(const Work& work) {
  post(peers_.mine().met, ++meeting_number_ * kStep);
  peers_.await_all(work.turn, Count::met, meeting_number_);
}

}  // namespace acc::runtime::shm
