#pragma once

#include <acc/error.hpp>
#include <acc/types.hpp>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

/// Access to CUDA devices without CUDA's headers. The CUDA runtime is loaded on first use, so a
/// program that uses this starts everywhere. Streams are cudaStream_t, passed as void*; nullptr is
/// the legacy stream.
/// @throws Error cuda (no driver, no device, a failed call), system (no CUDA runtime library).
namespace acc::cuda {

struct DeviceFacts {
  int index = 0;  ///< as this process sees it
  std::string name{};
  std::string pci_bus_id{};  ///< "0000:1b:00.0"
  int major = 0, minor = 0;  ///< compute capability
  std::size_t total_bytes = 0, free_bytes = 0;
};

/// Is there a driver and a device? Never throws.
[[nodiscard]] bool available() noexcept;
/// One line with the remedy; empty: available.
[[nodiscard]] std::string why_unavailable();
/// 0 without a driver or without the CUDA runtime.
[[nodiscard]] int device_count() noexcept;
[[nodiscard]] DeviceFacts device_facts(int index);
[[nodiscard]] std::vector<DeviceFacts> devices();
/// 13000 is 13.0: the newest CUDA that the driver supports; 0: no driver.
[[nodiscard]] int driver_version();
[[nodiscard]] int runtime_version();
/// 22809 is 2.28.9.
[[nodiscard]] int nccl_version();
[[nodiscard]] std::string nccl_path();  ///< of the library in use; empty: not loaded

[[nodiscard]] int current_device();
void set_device(int index);
/// Waits for all work of the current device.
void synchronize();
/// Waits for all work of a device, on whatever streams; none is awaited for host memory.
void synchronize(const runtime::Device& device);
/// Waits for all work of a stream.
void synchronize(void* stream);

/// Host to device, device to host, within a device, on the legacy stream, which doesn't wait for
/// non-blocking ones. Returns when the copy is done.
void copy(void* to, const void* from, std::size_t bytes);
/// Ordered with `stream`; host memory must live until it is done, and be pinned to overlap.
void copy_async(void* to, const void* from, std::size_t bytes, void* stream);
/// Sets each byte, ordered with `stream`.
void fill_async(void* data, int byte, std::size_t bytes, void* stream);

/// Memory of the device that is current at construction.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  explicit DeviceBuffer(std::size_t bytes);
  DeviceBuffer(DeviceBuffer&& other) noexcept { swap(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~DeviceBuffer();  ///< waits for the device's work, as cudaFree does
  [[nodiscard]] void* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

 private:
  void swap(DeviceBuffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Page-locked host memory: copies to and from it can overlap with other work.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  explicit PinnedBuffer(std::size_t bytes);
  PinnedBuffer(PinnedBuffer&& other) noexcept { swap(other); }
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~PinnedBuffer();
  [[nodiscard]] void* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  template <runtime::Element T>
  [[nodiscard]] std::span<T> as() const noexcept {
    return {static_cast<T*>(data_), bytes_ / sizeof(T)};
  }

 private:
  void swap(PinnedBuffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace acc::cuda
