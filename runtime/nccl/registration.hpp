#pragma once

#include "runtime/nccl/core.hpp"

#include <cstddef>
#include <memory>
#include <mutex>

namespace acc::runtime::nccl {

/// Device memory that NCCL allocated and knows: as a symmetric window where the version and the
/// machine have it, else as a registered buffer. All ranks make and free theirs in the same order.
class Registration {
 public:
  /// Collective. @throws Error nccl, timed_out
  Registration(std::shared_ptr<Core> core, std::size_t bytes, Clock::time_point deadline);
  /// The calls that use it are done by then.
  ~Registration();
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;

  /// Before the communicator goes; the memory stays until the last handle does.
  void deregister() noexcept;
  [[nodiscard]] void* data() const noexcept { return data_; }

 private:
  void enroll(std::size_t bytes, Clock::time_point deadline);

  const std::shared_ptr<Core> core_;
  void* data_ = nullptr;
  std::mutex mutex_;
  Window window_ = nullptr;
  void* handle_ = nullptr;
};

}  // namespace acc::runtime::nccl
