#include "runtime/fork.hpp"

#include <pthread.h>

#include <atomic>

namespace acc::runtime {

namespace {

std::atomic<std::uint64_t> generation{0};

// Without memory for the handler forks are not detected; nothing else depends on it.
[[maybe_unused]] const int registered =
    ::pthread_atfork(nullptr, nullptr, [] { generation.fetch_add(1, std::memory_order_relaxed); });

}  // namespace

std::uint64_t fork_generation() noexcept { return generation.load(std::memory_order_relaxed); }

}  // namespace acc::runtime
