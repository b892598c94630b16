#pragma once

#include <cstddef>
#include <string>

/// The entry points of the CUDA driver by which kernels are loaded and launched: the CUDA runtime
/// has its own for them since 12.8 only. The driver's library is loaded when the first kernel runs.
namespace acc::runtime::device {

using Module = struct OpaqueModule*;
using Function = struct OpaqueFunction*;
using Context = struct OpaqueContext*;

struct DriverApi {
  int (*context_get_current)(Context* context);
  int (*module_load_data)(Module* module, const void* image);
  int (*module_get_function)(Function* function, Module module, const char* name);
  int (*launch_kernel)(Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                       void* stream, void** parameters, void** extra);
  int (*get_error_string)(int status, const char** text);
};

/// @throws Error system: there is none
[[nodiscard]] const DriverApi& driver();
/// @throws Error cuda unless the call succeeded
void check(const DriverApi& api, const char* call, int status);

/// The image of the kernels, as nvcc made it; empty: this library was built without the toolkit.
struct Image {
  const void* data;
  std::size_t bytes;
};
[[nodiscard]] Image image() noexcept;

}  // namespace acc::runtime::device
