#pragma once

#include "runtime/shm/peers.hpp"

#include <cstddef>

namespace acc::runtime::shm {

/// A call in bytes.
struct Work {
  ActiveCall& active;
  const Descriptor& what;
  const std::byte* send;
  std::byte* recv;
  std::size_t item;   ///< bytes of an element
  std::size_t bytes;  ///< of `count` elements

  explicit Work(ActiveCall& call);
  [[nodiscard]] bool is(Operation operation) const noexcept { return what.operation == operation; }
  /// Elements of a rank: its own in the _v forms, else the same for all.
  [[nodiscard]] std::size_t count_of(int rank) const noexcept;
  [[nodiscard]] std::size_t bytes_of(int rank) const noexcept { return count_of(rank) * item; }
  [[nodiscard]] std::size_t offset_of(int rank) const noexcept;
  [[nodiscard]] std::size_t most_bytes() const noexcept;  ///< of any rank
  /// Bytes of all ranks' parts.
  [[nodiscard]] std::size_t whole_bytes(int ranks) const noexcept;
  /// Bytes staged by the rank that stages most.
  [[nodiscard]] std::size_t staged_bytes(int ranks) const noexcept;
};

struct Span {
  std::size_t begin, end;
  [[nodiscard]] std::size_t size() const noexcept { return end - begin; }
};
/// The part of `count` elements that `rank` of `ranks` reduces; whole cache lines except the last.
[[nodiscard]] Span slice(std::size_t count, std::size_t item, int rank, int ranks) noexcept;

/// memcpy that allows nullptr for 0 bytes, and equal addresses.
void copy_bytes(void* to, const void* from, std::size_t bytes) noexcept;

}  // namespace acc::runtime::shm
