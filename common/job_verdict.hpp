#pragma once

#include "common/exit_codes.hpp"

#include <algorithm>
#include <optional>

namespace acc {

/// The exit code of a job on several nodes, of what their agents report. Those that take part at
/// the end all report the job's. One that was lost on the way reports what happened to it alone:
/// the job may have gone on without it, so that counts only where no node reports anything else.
class JobVerdict {
 public:
  /// Whether `code` may tell of the end of one node's part only.
  [[nodiscard]] static constexpr bool is_of_one_node(int code) {
    return std::ranges::any_of(kExitCodes, [code](const ExitCodeRow& row) {
      return to_int(row.code) == code && row.end_of == EndOf::node;
    });
  }

  void add(int code) {
    auto& kind = is_of_one_node(code) ? of_one_node_ : code == 0 ? success_ : failure_;
    // Those that wait in vain for the lost one tell how the job ended; an unfit one tells why.
    const bool is_unfit = kind == to_int(ExitCode::unfit);
    if (!kind || code == to_int(ExitCode::unfit) ||
        (code == to_int(ExitCode::nodes_missing) && !is_unfit))
      kind = code;
  }

  /// The first failure in the order of add(), and of those of one node an unfit or a missing node;
  /// nothing, if nothing was reported.
  [[nodiscard]] std::optional<int> code() const {
    return failure_ ? failure_ : success_ ? success_ : of_one_node_;
  }

 private:
  std::optional<int> failure_;
  std::optional<int> success_;
  std::optional<int> of_one_node_;
};

}  // namespace acc
