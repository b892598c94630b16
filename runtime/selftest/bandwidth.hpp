#pragma once

#include "runtime/selftest/results.hpp"

#include <acc/process_group.hpp>
#include <string>
#include <vector>

namespace acc::selftest {

/// As nccl-tests' options of these letters.
struct BandwidthOptions {
  bool wanted = false;
  std::size_t min_bytes = 32U << 20, max_bytes = 32U << 20;
  std::size_t step_bytes = 1U << 20;
  std::size_t factor = 0;  ///< 0: by step_bytes
  int iterations = 20, warm_up = 1, aggregated = 1, checked = 1;
  std::vector<runtime::ReduceOp> reductions{runtime::ReduceOp::sum};
  std::vector<runtime::DType> types{runtime::DType::f32};
  int root = 0;  ///< -1: all
  int average = 1;
  /// Time limit of a call, also in the checks: a hang is reported within minutes.
  runtime::Millis timeout{30'000};
  bool registered = false;
  std::size_t misalign = 0;
  std::vector<std::string> operations;  ///< empty: all
};

/// @return what is wrong with the options; empty: nothing.
[[nodiscard]] std::string read_bandwidth_options(const std::vector<std::string>& words,
                                                 BandwidthOptions& options);

/// nccl-tests' table for each operation. The verdict: was an element wrong, or is the average below
/// 90 % of NCCL_TESTS_MIN_BW?
void measure_bandwidth(runtime::ProcessGroup& group, const BandwidthOptions& options,
                       Results& results);

}  // namespace acc::selftest
