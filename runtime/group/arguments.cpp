#include "runtime/group/arguments.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <vector>

namespace acc::runtime {

namespace {

struct Range {
  const std::byte* at = nullptr;
  std::size_t bytes = 0;
};

bool overlap(Range a, Range b) noexcept {
  const std::less<> before;
  return a.bytes > 0 && b.bytes > 0 && before(a.at, b.at + b.bytes) && before(b.at, a.at + a.bytes);
}

const std::byte* bytes_at(const void* at) noexcept { return static_cast<const std::byte*>(at); }

constexpr const char* kNullSend = "`send` is a null pointer";
constexpr const char* kNullRecv = "`recv` is a null pointer";
constexpr const char* kNullData = "`data` is a null pointer";
constexpr const char* kRoot = "the root isn't a rank of the group";
constexpr const char* kPeer = "the peer isn't a rank of the group";
constexpr const char* kTooLarge = "count x size x ranks is more than memory can hold";
constexpr const char* kPartly = "`send` and `recv` overlap, and not as an in-place call";
constexpr const char* kCounts = "there must be as many counts as ranks";
constexpr const char* kOwnPart =
    "what this rank sends to itself isn't what it receives from itself";
constexpr const char* kOverlap = "`send` and `recv` overlap, and this call has no in-place form";

// `recv` has a part for each rank, `send` is one part: in place it is this rank's part of recv.
const char* parts_in_recv(const Call& call, std::size_t part, std::size_t before,
                          std::size_t all) noexcept {
  if (part > 0 && call.send == nullptr) return kNullSend;
  if (all > 0 && call.recv == nullptr) return kNullRecv;
  if (part == 0 || call.send == bytes_at(call.recv) + before) return nullptr;
  return overlap({bytes_at(call.send), part}, {bytes_at(call.recv), all}) ? kPartly : nullptr;
}

struct Parts {
  std::size_t mine = 0;
  std::size_t before = 0;
  std::size_t all = 0;  // bytes
};

Parts parts_of(const Call& call, int rank, int size) noexcept {
  const std::size_t each = size_of(call.what.dtype);
  if (call.counts.empty()) {
    const std::size_t bytes = call.what.count * each;
    return {bytes, bytes * static_cast<std::size_t>(rank), bytes * static_cast<std::size_t>(size)};
  }
  Parts parts;
  for (int r = 0; r < size; ++r) {
    const std::size_t bytes = call.counts[static_cast<std::size_t>(r)] * each;
    if (r < rank) parts.before += bytes;
    if (r == rank) parts.mine = bytes;
    parts.all += bytes;
  }
  return parts;
}

const char* counts_fault(std::span<const std::size_t> counts, int size, std::size_t most) noexcept {
  if (counts.size() != static_cast<std::size_t>(size)) return kCounts;
  std::size_t all = 0;
  for (const std::size_t count : counts) {
    if (count > most - all) return kTooLarge;
    all += count;
  }
  return nullptr;
}

const char* counts_fault(const Call& call, int size) noexcept {
  const std::size_t most = (SIZE_MAX >> 1) / size_of(call.what.dtype);
  if (call.counts.empty() && call.what.digest == 0)
    return call.what.count > most / static_cast<std::size_t>(size) ? kTooLarge : nullptr;
  if (const char* fault = counts_fault(call.counts, size, most)) return fault;
  if (call.what.operation != Operation::all_to_all) return nullptr;
  return counts_fault(call.recv_counts, size, most);
}

const char* reduction_fault(const Call& call, bool receives) noexcept {
  const std::size_t bytes = call.bytes();
  if (bytes == 0) return nullptr;
  if (call.send == nullptr) return kNullSend;
  if (!receives) return nullptr;
  if (call.recv == nullptr) return kNullRecv;
  if (call.send == call.recv) return nullptr;
  return overlap({bytes_at(call.send), bytes}, {bytes_at(call.recv), bytes}) ? kPartly : nullptr;
}

const char* gather_fault(const Call& call, int rank, int size) noexcept {
  const Parts parts = parts_of(call, rank, size);
  if (parts.mine > 0 && call.send == nullptr) return kNullSend;
  if (rank != call.what.root) return nullptr;
  if (parts.all > 0 && call.recv == nullptr) return kNullRecv;
  return overlap({bytes_at(call.send), parts.mine}, {bytes_at(call.recv), parts.all}) ? kOverlap
                                                                                      : nullptr;
}

const char* scatter_fault(const Call& call, int rank, int size) noexcept {
  const Parts parts = parts_of(call, rank, size);
  if (parts.mine > 0 && call.recv == nullptr) return kNullRecv;
  if (rank != call.what.root) return nullptr;
  if (parts.all > 0 && call.send == nullptr) return kNullSend;
  return overlap({bytes_at(call.send), parts.all}, {bytes_at(call.recv), parts.mine}) ? kOverlap
                                                                                      : nullptr;
}

const char* reduce_scatter_fault(const Call& call, int rank, int size) noexcept {
  const Parts parts = parts_of(call, rank, size);
  if (parts.all > 0 && call.send == nullptr) return kNullSend;
  if (parts.mine > 0 && call.recv == nullptr) return kNullRecv;
  if (parts.mine == 0 || call.recv == bytes_at(call.send) + parts.before) return nullptr;
  return overlap({bytes_at(call.send), parts.all}, {bytes_at(call.recv), parts.mine}) ? kPartly
                                                                                      : nullptr;
}

std::size_t sum_of(std::span<const std::size_t> counts) noexcept {
  std::size_t sum = 0;
  for (const std::size_t count : counts) sum += count;
  return sum;
}

const char* all_to_all_fault(const Call& call, int rank, int size) noexcept {
  const std::size_t each = size_of(call.what.dtype);
  const auto own = static_cast<std::size_t>(rank);
  if (call.by_pairs() && call.counts[own] != call.recv_counts[own]) return kOwnPart;
  const std::size_t all = call.bytes() * static_cast<std::size_t>(size);
  const std::size_t sent = call.by_pairs() ? sum_of(call.counts) * each : all;
  const std::size_t received = call.by_pairs() ? sum_of(call.recv_counts) * each : all;
  if (sent > 0 && call.send == nullptr) return kNullSend;
  if (received > 0 && call.recv == nullptr) return kNullRecv;
  return overlap({bytes_at(call.send), sent}, {bytes_at(call.recv), received}) ? kOverlap : nullptr;
}

const char* message_fault(const Call& call, int rank, int size, bool waits) noexcept {
  if (call.peer < 0 || call.peer >= size) return kPeer;
  if (waits && call.peer == rank)
    return "a blocking message to oneself would wait for ever; take the _async form";
  const void* data = call.what.operation == Operation::send ? call.send : call.recv;
  return call.what.count > 0 && data == nullptr ? kNullData : nullptr;
}

const char* kinds_fault(const Descriptor& what) noexcept {
  if (static_cast<std::size_t>(what.dtype) >= kDTypes) return "no such element type";
  return what.reduce > ReduceOp::avg ? "no such reduction" : nullptr;
}

bool has_root(Operation operation) noexcept {
  return operation == Operation::reduce || operation == Operation::broadcast ||
         operation == Operation::gather || operation == Operation::scatter;
}

struct Memory {
  Range read;
  Range written;
};

/// What a call uses on this rank.
Memory memory_of(const Call& call, int rank, int size) noexcept {
  const Parts parts = parts_of(call, rank, size);
  const bool is_root = rank == call.what.root;
  const Range none;
  const auto sends = [&](std::size_t bytes) { return Range{bytes_at(call.send), bytes}; };
  const auto receives = [&](std::size_t bytes) { return Range{bytes_at(call.recv), bytes}; };
  switch (call.what.operation) {
    case Operation::all_reduce:
      return {sends(call.bytes()), receives(call.bytes())};
    case Operation::reduce:
      return {sends(call.bytes()), is_root ? receives(call.bytes()) : none};
    case Operation::broadcast:
      return is_root ? Memory{receives(call.bytes()), none} : Memory{none, receives(call.bytes())};
    case Operation::all_gather:
      return {sends(parts.mine), receives(parts.all)};
    case Operation::gather:
      return {sends(parts.mine), is_root ? receives(parts.all) : none};
    case Operation::scatter:
      return {is_root ? sends(parts.all) : none, receives(parts.mine)};
    case Operation::reduce_scatter:
      return {sends(parts.all), receives(parts.mine)};
    case Operation::all_to_all: {
      const std::size_t each = size_of(call.what.dtype);
      if (call.by_pairs())
        return {sends(sum_of(call.counts) * each), receives(sum_of(call.recv_counts) * each)};
      return {sends(parts.all), receives(parts.all)};
    }
    case Operation::send:
      return {sends(call.bytes()), none};
    case Operation::recv:
      return {none, receives(call.bytes())};
    default:
      return {};
  }
}

}  // namespace

const char* UsedMemory::add(const Call& call, int rank, int size) {
  const auto meets = [](const Ranges& ranges, Range one) {
    if (one.bytes == 0) return false;
    const auto after = ranges.lower_bound(one.at + one.bytes);
    return after != ranges.begin() && std::less<>{}(one.at, std::prev(after)->second);
  };
  // Ranges that are read may overlap: as one they are apart from the others again.
  const auto join = [](Ranges& ranges, Range one) {
    if (one.bytes == 0) return;
    const std::less<> before;
    const std::byte* begin = one.at;
    const std::byte* end = one.at + one.bytes;
    auto after = ranges.lower_bound(end);
    while (after != ranges.begin() && before(begin, std::prev(after)->second)) {
      const auto met = std::prev(after);
      begin = before(met->first, begin) ? met->first : begin;
      end = before(end, met->second) ? met->second : end;
      after = ranges.erase(met);
    }
    ranges.emplace(begin, end);
  };
  const Memory used = memory_of(call, rank, size);
  if (meets(written_, used.written))
    return "it receives into memory into which another call of the same coalesce receives";
  if (meets(written_, used.read))
    return "it sends memory into which another call of the same coalesce receives";
  if (meets(read_, used.written))
    return "it receives into memory that another call of the same coalesce sends";
  join(read_, used.read);
  join(written_, used.written);
  return nullptr;
}

const char* fault_of(const Call& call, int rank, int size, bool waits) noexcept {
  const Descriptor& what = call.what;
  if (const char* fault = kinds_fault(what)) return fault;
  if (has_root(what.operation) && (what.root < 0 || what.root >= size)) return kRoot;
  if (const char* fault = counts_fault(call, size)) return fault;
  switch (what.operation) {
    case Operation::all_reduce:
      return reduction_fault(call, true);
    case Operation::reduce:
      return reduction_fault(call, rank == what.root);
    case Operation::broadcast:
      return what.count > 0 && call.recv == nullptr ? kNullData : nullptr;
    case Operation::all_gather: {
      const Parts parts = parts_of(call, rank, size);
      return parts_in_recv(call, parts.mine, parts.before, parts.all);
    }
    case Operation::gather:
      return gather_fault(call, rank, size);
    case Operation::scatter:
      return scatter_fault(call, rank, size);
    case Operation::reduce_scatter:
      return reduce_scatter_fault(call, rank, size);
    case Operation::all_to_all:
      return all_to_all_fault(call, rank, size);
    case Operation::send:
    case Operation::recv:
      return message_fault(call, rank, size, waits);
    case Operation::barrier:
    case Operation::allocate:
      return nullptr;
    case Operation::none:
    case Operation::split:
      return "no such operation";
  }
  return "no such operation";
}

const char* fault_in_launch(const Call& call) noexcept {
  switch (call.what.operation) {
    case Operation::barrier:
    case Operation::allocate:
      return "it waits for the device, which a call within coalesce can't";
    default:
      return nullptr;
  }
}

const char* fault_between(std::span<const Call> messages) {
  struct Used {
    Range memory;
    bool receives;
  };
  std::vector<Used> all;
  for (const Call& call : messages) {
    const bool receives = call.what.operation != Operation::send;
    if (call.bytes() > 0)
      all.push_back({{bytes_at(receives ? call.recv : call.send), call.bytes()}, receives});
  }
  const std::less<> before;
  std::sort(all.begin(), all.end(),
            [&](const Used& a, const Used& b) { return before(a.memory.at, b.memory.at); });
  // Of those before in memory, the one that reaches furthest.
  Range sent;
  Range received;
  for (const Used& used : all) {
    if (used.receives && overlap(received, used.memory))
      return "two messages are received into the same memory";
    if (overlap(used.receives ? sent : received, used.memory))
      return "a message is received into memory that another one of the same call sends";
    Range& furthest = used.receives ? received : sent;
    if (furthest.bytes == 0 ||
        before(furthest.at + furthest.bytes, used.memory.at + used.memory.bytes))
      furthest = used.memory;
  }
  return nullptr;
}

std::uint64_t digest_of(std::span<const std::size_t> counts) noexcept {
  std::uint64_t digest = 0xcbf29ce484222325U;  // FNV-1a, word by word
  for (const std::uint64_t count : counts) {
    digest = (digest ^ count) * 0x100000001b3U;
    digest ^= digest >> 29;
  }
  return digest | 1U;
}

}  // namespace acc::runtime
