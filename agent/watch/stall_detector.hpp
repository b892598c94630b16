#pragma once

#include "common/duration.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace acc::agent {

/// What a worker and its children have used since their start.
struct WorkerUsage {
  std::uint64_t cpu_ms = 0;
  std::uint64_t io_bytes = 0;  ///< read and written, also to pipes, terminals, mapped files
  friend bool operator==(const WorkerUsage&, const WorkerUsage&) = default;
};

/// Finds jobs whose workers all do nothing, without their help (pure): no more CPU time than their
/// libraries' polling takes, nothing read or written.
class StallDetector {
 public:
  /// @param timeout  0: off
  explicit StallDetector(Millis timeout) : timeout_{timeout} {}
  void begin(Instant now) {
    seen_.clear();
    latest_.clear();
    since_ = looked_ = now;
    is_told_ = false;
  }
  /// Stacks were read for so long until now, which makes the workers run: that counts for nothing.
  void leave_out(Millis held, const std::vector<WorkerUsage>& usage);
  /// Between two looks.
  [[nodiscard]] Millis interval() const;
  /// @param usage  of the living workers. @return how long all have done nothing, once it is for
  /// too long, and once until one does something
  std::optional<Millis> look(const std::vector<WorkerUsage>& usage, Instant now);
  /// A stall was told, and goes on as far as is known.
  [[nodiscard]] bool is_told() const { return is_told_; }

 private:
  Millis timeout_;
  std::vector<WorkerUsage> seen_;  ///< when the latest quiet time began, or was told
  Instant since_{};
  std::vector<WorkerUsage> latest_;  ///< at the latest look
  Instant looked_{};
  bool is_told_ = false;
};

}  // namespace acc::agent
