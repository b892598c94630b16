#pragma once

#include <cstddef>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

namespace acc::testing {

/// Runs `body(rank)` for 0 … n - 1, each on a thread of its own, and waits for all.
/// @return what each threw, by rank
template <class Body>
std::vector<std::exception_ptr> on_rank_threads(std::size_t n, Body&& body) {
  std::vector<std::exception_ptr> thrown(n);
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < n; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(static_cast<int>(rank));
      } catch (...) {
        thrown[rank] = std::current_exception();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return thrown;
}

/// Throws what the lowest rank that failed threw.
inline void rethrow_first(const std::vector<std::exception_ptr>& thrown) {
  for (const auto& one : thrown)
    if (one) std::rethrow_exception(one);
}

}  // namespace acc::testing
