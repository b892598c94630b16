#include "runtime/shm/collectives.hpp"
#include "runtime/shm/pull.hpp"
#include "runtime/shm/reduce.hpp"

#include <algorithm>

namespace acc::runtime::shm {
namespace {

// Sizes between which pulling paid where it did, with two ranks only.
constexpr std::size_t kPullFrom = 256 << 10;
constexpr std::size_t kPullTo = 2 << 20;

}  // namespace

PullTrial* Collectives::trial(const Work& work) noexcept {
  if (!peers_.can_pull() || work.bytes < kPullFrom || work.bytes > kPullTo ||
      !work.active.call.counts.empty())
    return nullptr;
  if (work.is(Operation::all_gather)) return &all_gather_trial_;
  return work.is(Operation::broadcast) ? &broadcast_trial_ : nullptr;
}

Collectives::Addresses Collectives::addresses(const Work& work) noexcept {
  const PullTrial* const pulls = trial(work);
  const auto or_address = [&](std::uint64_t where, const void* at) {
    return where == 0 && pulls != nullptr && pulls->wants() ? reinterpret_cast<std::uintptr_t>(at)
                                                            : where;
  };
  switch (work.what.operation) {
    case Operation::all_reduce:
      return {regions_.where(work.send, work.bytes), regions_.where(work.recv, work.bytes)};
    case Operation::reduce_scatter:
      return {regions_.where(work.send, work.whole_bytes(size_)), 0};
    case Operation::all_gather:
      return {or_address(regions_.where(work.send, work.bytes_of(rank_)), work.send), 0};
    case Operation::broadcast: {
      const auto* const data = work.what.root == rank_ ? work.send : work.recv;
      return {or_address(regions_.where(data, work.bytes), data), 0};
    }
    default:
      return {};
  }
}

void Collectives::agreed(const Work& work) {
  if (all_registered(work)) return registered(work);
  PullTrial* const pulls = trial(work);
  const bool is_trial = pulls != nullptr && !pulls->is_over();
  const auto began = is_trial ? Clock::now() : Clock::time_point{};
  const bool pulled = all_want_to_pull(work) && pull(work);
  if (!pulled) staged_.run(work, true);
  if (is_trial) pulls->ran(pulled, Clock::now() - began, work.bytes);
}

/// Each rank must still hold the region to know the others' parts.
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
  const auto own = work.offset_of(rank_);
  switch (work.what.operation) {
    case Operation::all_reduce:
      reduce_slice(work, source, target);
      break;
    case Operation::reduce_scatter:
      for (int r = 0; r < size_; ++r)
        inputs_[static_cast<std::size_t>(r)] = (r == rank_ ? work.send : source(r)) + own;
      reduction(work.what.dtype, work.what.reduce)
          .all(work.recv, nullptr, inputs_.data(), size_, work.count_of(rank_), size_);
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

/// Each rank reduces its slice of all inputs and writes it to all outputs.
template <class Source, class Target>
void Collectives::reduce_slice(const Work& work, Source source, Target target) {
  const auto& reduction = runtime::reduction(work.what.dtype, work.what.reduce);
  const auto mine = slice(work.what.count, work.item, rank_, size_);
  constexpr std::size_t kBlock =
      4096;  // bytes: the reduced block is copied while it is in the first-level cache
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

bool Collectives::all_want_to_pull(const Work& work) const noexcept {
  if (!work.is(Operation::all_gather) && !work.is(Operation::broadcast)) return false;
  for (int r = 0; r < size_; ++r) {
    const auto at = peers_.arrival(r).send_at;
    if (at == 0 || Regions::is_place(at)) return false;
  }
  return true;
}

/// @return false: a rank could not read (device memory, for example); no rank uses what was read,
///   or tries again.
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
    if (segment_.rank_state(r).pull_failed.load() != peers_.number()) continue;
    peers_.never_pull();
    return false;
  }
  return true;
}

/// Waits until all ranks have finished with each other's buffers.
void Collectives::meet(const Work& work) {
  post(peers_.mine().met, ++meeting_number_ * kStep);
  peers_.await_all(work.active, Count::met, meeting_number_);
}

}  // namespace acc::runtime::shm
