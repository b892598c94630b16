#pragma once

#include "runtime/backend.hpp"
#include "runtime/selftest/elements.hpp"

#include <atomic>
#include <cstddef>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

/// Checks collectives over device memory against the oracle (collective_oracle.hpp). Outputs are
/// poisoned before, and the memory around them is checked after.
namespace acc::testing {

/// The complaints of several threads: a test framework's own checks are often for one thread.
class Verdicts {
 public:
  void expect(bool right, const std::string& what);
  [[nodiscard]] int checks() const { return checks_; }
  [[nodiscard]] std::vector<std::string> wrong() const;

 private:
  std::atomic<int> checks_{0};
  mutable std::mutex mutex_;
  std::vector<std::string> wrong_;
};

class ExactCollectives {
 public:
  /// Carries a call out; it numbers it if the caller of run doesn't.
  using Run = std::function<void(const runtime::Call&)>;
  /// Several calls as one launch.
  using RunAsOne = std::function<void(const std::vector<runtime::Call>&)>;

  /// @param shift  elements by which buffers are misaligned
  ExactCollectives(int rank, int size, Run run, RunAsOne run_as_one, Verdicts& verdicts,
                   std::size_t shift = 0);

  /// Every operation with every reduction and, up to 3 ranks, every root.
  void all(runtime::DType type, std::size_t count);

 private:
  class Array;
  runtime::Call call(runtime::Operation operation, const void* send, void* recv, std::size_t count,
                     runtime::DType type);
  void run_and_expect(const runtime::Call& made, const Array& buffer,
                      const std::vector<std::byte>& expected);
  void expect(const Array& buffer, const std::vector<std::byte>& expected,
              const runtime::Call& made);
  [[nodiscard]] Array own(runtime::DType type, std::size_t count,
                          runtime::ReduceOp op = selftest::kMoved) const;
  /// What a rank contributes.
  [[nodiscard]] std::vector<std::byte> input(runtime::DType type, std::size_t count, int rank,
                                             runtime::ReduceOp op = selftest::kMoved,
                                             std::size_t first = 0) const;
  [[nodiscard]] Array empty(runtime::DType type, std::size_t count) const;
  [[nodiscard]] std::vector<std::byte> inputs_of_all(runtime::DType type, std::size_t count) const;
  [[nodiscard]] std::vector<int> roots() const;

  void all_reduce(runtime::DType type, std::size_t count, runtime::ReduceOp op, bool in_place);
  void reduce(runtime::DType type, std::size_t count, runtime::ReduceOp op, int root);
  void reduce_scatter(runtime::DType type, std::size_t count, runtime::ReduceOp op, bool in_place);
  void broadcast(runtime::DType type, std::size_t count, int root);
  void all_gather(runtime::DType type, std::size_t count, bool in_place);
  void all_gather_v(runtime::DType type, std::size_t count);
  void gather(runtime::DType type, std::size_t count, int root);
  void gather_v(runtime::DType type, std::size_t count, int root);
  void scatter(runtime::DType type, std::size_t count, int root);
  void all_to_all(runtime::DType type, std::size_t count);
  void ring(runtime::DType type, std::size_t count);
  void in_pairs(runtime::DType type, std::size_t count);

  int rank_;
  int size_;
  Run run_;
  RunAsOne run_as_one_;
  Verdicts& verdicts_;
  std::size_t shift_;
  std::uint64_t sequence_ = 0;
};

}  // namespace acc::testing
