#pragma once

#include <cstddef>

/// The CUDA runtime's entry points as this library calls them; see nccl_api.hpp.
namespace acc::runtime::cuda {

enum class Status : int {
  success = 0,
  no_memory = 2,
  stub_library = 34,
  insufficient_driver = 35,  ///< also: none at all
  no_device = 100,
  invalid_device = 101,
  not_ready = 600,
  captured_event = 907,
};

using Stream = void*;  ///< cudaStream_t; nullptr: the legacy stream of the current device
using Event = struct OpaqueEvent*;

inline constexpr unsigned kEventDisableTiming = 2;
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr int kCopyByAddress = 4;  ///< cudaMemcpyDefault
inline constexpr int kAttributeMajor = 75;
inline constexpr int kAttributeMinor = 76;
inline constexpr int kMemoryUnregistered = 0;  ///< cudaMemoryTypeUnregistered
inline constexpr int kCaptureRelaxed = 2;      ///< cudaStreamCaptureModeRelaxed

struct Api {
  Status (*get_device_count)(int* count);
  Status (*set_device)(int device);
  Status (*get_device)(int* device);
  Status (*device_get_pci_bus_id)(char* id, int length, int device);
  Status (*device_get_attribute)(int* value, int attribute, int device);
  /// cudaDeviceProp differs between versions; its first member, the name, does not.
  Status (*get_device_properties)(void* properties, int device);
  Status (*driver_get_version)(int* version);
  Status (*runtime_get_version)(int* version);
  Status (*mem_get_info)(std::size_t* free, std::size_t* total);
  Status (*device_synchronize)();
  Status (*device_get_stream_priority_range)(int* least, int* greatest);
  Status (*stream_create_with_priority)(Stream* stream, unsigned flags, int priority);
  Status (*stream_destroy)(Stream stream);
  Status (*stream_synchronize)(Stream stream);
  Status (*stream_wait_event)(Stream stream, Event event, unsigned flags);
  Status (*stream_is_capturing)(Stream stream, int* status);
  Status (*thread_exchange_stream_capture_mode)(int* mode);
  Status (*event_create_with_flags)(Event* event, unsigned flags);
  Status (*event_destroy)(Event event);
  Status (*event_record)(Event event, Stream stream);
  Status (*event_query)(Event event);
  Status (*event_elapsed_time)(float* milliseconds, Event start, Event end);
  Status (*malloc)(void** data, std::size_t bytes);
  Status (*free)(void* data);
  Status (*host_alloc)(void** data, std::size_t bytes, unsigned flags);
  Status (*free_host)(void* data);
  Status (*memcpy)(void* to, const void* from, std::size_t bytes, int kind);
  Status (*memcpy_async)(void* to, const void* from, std::size_t bytes, int kind, Stream stream);
  Status (*memset_async)(void* data, int value, std::size_t bytes, Stream stream);
  /// cudaPointerAttributes differs between versions; its first member, the type, does not.
  Status (*pointer_get_attributes)(void* attributes, const void* pointer);
  const char* (*get_error_string)(Status status);
  const char* (*get_error_name)(Status status);
  Status (*get_last_error)();
};

}  // namespace acc::runtime::cuda
