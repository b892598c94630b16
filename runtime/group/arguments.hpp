#pragma once

#include "runtime/backend.hpp"

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

/// Digest of the counts of a _v form, which ranks compare. Never 0.
[[nodiscard]] std::uint64_t digest_of(std::span<const std::size_t> counts) noexcept;

}  // namespace acc::runtime
