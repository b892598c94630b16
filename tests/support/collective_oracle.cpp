#include "tests/support/collective_oracle.hpp"

#include <map>
#include <mutex>
#include <tuple>

namespace acc::testing {
namespace {

/// What was asked for last: ranks that are threads ask for the same one after the other.
class Known {
 public:
  using Question = std::tuple<DType, ReduceOp, std::size_t, std::size_t, int, int, std::uint64_t>;

  /// Elements whose value at index i is value(i), as bytes.
  template <class Value>
  Bytes elements(const Question& asked, DType type, std::size_t count, Value value) {
    const std::lock_guard lock{mutex_};
    if (known_.size() == kKept && known_.count(asked) == 0) known_.clear();
    auto [at, is_new] = known_.try_emplace(asked);
    if (is_new) {
      selftest::Elements made{type, count};
      for (std::size_t i = 0; i < count; ++i) made.set(i, value(i));
      at->second = made.bytes();
    }
    return at->second;
  }

 private:
  static constexpr std::size_t kKept = 64;
  std::mutex mutex_;
  std::map<Question, Bytes> known_;
};

}  // namespace

Bytes inputs(DType type, ReduceOp op, std::size_t first, std::size_t count, int rank, int ranks,
             std::uint64_t round) {
  static Known known;
  return known.elements({type, op, first, count, rank, ranks, round}, type, count, [&](auto i) {
    return selftest::value_of(op, rank, ranks, first + i, static_cast<int>(round));
  });
}

Bytes reductions(DType type, ReduceOp op, std::size_t first, std::size_t count, int ranks,
                 std::uint64_t round) {
  static Known known;
  return known.elements({type, op, first, count, 0, ranks, round}, type, count, [&](auto i) {
    return selftest::reduced(op, type, ranks, first + i, static_cast<int>(round));
  });
}

}  // namespace acc::testing
