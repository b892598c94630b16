#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace acc::runtime {

enum class ErrorCode : std::uint8_t {
  timed_out,         ///< a rank did not reach the call before its deadline; ranks(): which
  peer_lost,         ///< a process of the group ended; ranks(): which
  mismatch,          ///< the calls of the ranks differ; ranks(): those unlike the majority
  aborted,           ///< abort() was called; ranks(): by whom
  invalid_argument,  ///< this call was wrong and had no effect; the group is as before
  system,            ///< memory, files, sockets
  corrupt,           ///< a file isn't what it should be
  cuda,
  nccl,
};
[[nodiscard]] std::string_view to_string(ErrorCode code) noexcept;  ///< "timed_out"

/// The one exception of the runtime. After any code but invalid_argument and corrupt the group it
/// came from is broken for good: each later call fails immediately with the first cause.
/// Exceptions: timed_out of Work::wait, whose call continues, and functions documented to leave the
/// group usable, such as those that compare the ranks or write files.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& what) : std::runtime_error{what}, code_{code} {}
  Error(ErrorCode code, const std::string& what, std::vector<int> ranks, std::string operation = {},
        std::uint64_t sequence = 0)
      : std::runtime_error{what},
        code_{code},
        ranks_{std::move(ranks)},
        operation_{std::move(operation)},
        sequence_{sequence} {}

  [[nodiscard]] ErrorCode code() const noexcept { return code_; }
  /// The ranks to blame, as numbered in the group; empty: unknown, or none.
  [[nodiscard]] const std::vector<int>& ranks() const noexcept { return ranks_; }
  [[nodiscard]] const std::string& operation() const noexcept {
    return operation_;
  }                                                                            ///< "all_reduce"
  [[nodiscard]] std::uint64_t sequence() const noexcept { return sequence_; }  ///< of that call

 private:
  ErrorCode code_;
  std::vector<int> ranks_;
  std::string operation_;
  std::uint64_t sequence_ = 0;
};

}  // namespace acc::runtime
