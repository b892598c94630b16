#pragma once

#include "runtime/backend.hpp"

#include <cstddef>
#include <functional>
#include <map>

namespace acc::runtime {

/// Checks a call on its own, before any communication.
/// @param waits  a blocking call: a message to oneself would never complete
/// @return nullptr, or what is wrong
[[nodiscard]] const char* fault_of(const Call& call, int rank, int size, bool waits) noexcept;

/// May it be part of a launch of several calls? @return nullptr, or why not
[[nodiscard]] const char* fault_in_launch(const Call& call) noexcept;

/// Of messages that run concurrently, each without a fault of its own: do two share memory that one
/// of them writes? @return nullptr, or what is wrong
[[nodiscard]] const char* fault_between(std::span<const Call> messages);

/// The memory of calls that may run at the same time, as those of one coalesce: what one of them
/// writes no other one may use.
class UsedMemory {
 public:
  /// Of a call without a fault of its own. Adds its memory if there is nothing wrong.
  /// @return nullptr, or what is wrong
  [[nodiscard]] const char* add(const Call& call, int rank, int size);

 private:
  using Ranges = std::map<const std::byte*, const std::byte*, std::less<>>;  // begin to end, apart
  Ranges read_;
  Ranges written_;
};

/// Digest of the counts of a _v form, which ranks compare. Never 0.
[[nodiscard]] std::uint64_t digest_of(std::span<const std::size_t> counts) noexcept;

}  // namespace acc::runtime
