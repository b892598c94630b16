#pragma once

#include "runtime/nccl/nccl_group.hpp"

#include <cstddef>
#include <memory>
#include <mutex>

namespace acc::runtime::nccl {

/// Device memory allocated by NCCL and registered with it: as a symmetric window if version and
/// machine support it, else as a registered buffer. All ranks make and free theirs in the same
/// order.
class Registration {
 public:
  /// Collective. @throws Error nccl, timed_out
  Registration(std::shared_ptr<NcclGroup> group, std::size_t bytes, Clock::time_point deadline);
  /// Precondition: the calls that use it are done.
  ~Registration();
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;

  /// Called before the communicator is closed; the memory stays until the last handle is gone.
  void deregister() noexcept;
  [[nodiscard]] void* data() const noexcept { return data_; }

 private:
  void enroll(std::size_t bytes, Clock::time_point deadline);

  const std::shared_ptr<NcclGroup> group_;
  void* data_ = nullptr;
  std::mutex mutex_;
  Window window_ = nullptr;
  void* handle_ = nullptr;
};

}  // namespace acc::runtime::nccl
