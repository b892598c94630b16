#pragma once

#include "runtime/backend.hpp"

namespace acc::runtime {

/// Is this call in order by itself, for this rank of so many? Before any communication.
/// @param waits  a blocking call: one to oneself would wait for ever
/// @return nullptr, or what is wrong with it, in words
[[nodiscard]] const char* fault_of(const Call& call, int rank, int size, bool waits) noexcept;

/// May it be a part of a launch of several calls? @return nullptr, or why not
[[nodiscard]] const char* fault_in_launch(const Call& call) noexcept;

/// Of the counts of a _v form: what ranks compare. Never 0.
[[nodiscard]] std::uint64_t digest_of(std::span<const std::size_t> counts) noexcept;

}  // namespace acc::runtime
