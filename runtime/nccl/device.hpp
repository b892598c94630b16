#pragma once

#include "runtime/nccl/cuda_library.hpp"

#include <acc/cuda.hpp>
#include <utility>

/// RAII owners of CUDA objects, for the backend.
namespace acc::runtime::cuda {

/// Makes a device current for this thread within a scope. Cheap if it already is.
class DeviceScope {
 public:
  DeviceScope(const Api& api, int device) : api_{api} {
    check(api_, "cudaGetDevice", api_.get_device(&before_));
    if (before_ == device) return;
    check(api_, "cudaSetDevice", api_.set_device(device));
    changed_ = true;
  }
  ~DeviceScope() {
    if (changed_) (void)api_.set_device(before_);
  }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  const Api& api_;
  int before_ = 0;
  bool changed_ = false;
};

/// A stream of the highest priority, which doesn't wait for the legacy stream.
class OwnedStream {
 public:
  OwnedStream() = default;
  explicit OwnedStream(const Api& api);
  OwnedStream(OwnedStream&& other) noexcept
      : api_{other.api_}, stream_{std::exchange(other.stream_, nullptr)} {}
  OwnedStream& operator=(OwnedStream&& other) noexcept {
    std::swap(api_, other.api_);
    std::swap(stream_, other.stream_);
    return *this;
  }
  ~OwnedStream() {
    if (stream_ != nullptr) (void)api_->stream_destroy(stream_);
  }
  [[nodiscard]] Stream get() const { return stream_; }
  /// Abandons it to the driver: for a stream whose work may never end.
  void leak() noexcept { stream_ = nullptr; }

 private:
  const Api* api_ = nullptr;
  Stream stream_ = nullptr;
};

/// Why no device is usable, in one line; empty: one is.
[[nodiscard]] std::string explain_missing(const Api& api);
/// Is it memory that the device can't access: neither its own, nor managed, nor pinned?
[[nodiscard]] bool is_plain_host_memory(const Api& api, const void* pointer) noexcept;
[[nodiscard]] std::string pci_bus_id(const Api& api, int device);

}  // namespace acc::runtime::cuda
