#include "runtime/nccl/cuda_library.hpp"

#include "runtime/nccl/dynamic_library.hpp"

namespace acc::runtime::cuda {
namespace {

LibrarySearch search() {
  return {.what = "CUDA runtime",
          .names = {"libcudart.so.13", "libcudart.so.12"},
          .variable = "ACC_CUDART_LIBRARY",
          .wheels = {"nvidia/cu13/lib", "nvidia/cuda_runtime/lib"},
          .remedy =
              "install the CUDA runtime (package cuda-cudart), name the file in "
              "ACC_CUDART_LIBRARY, or use the cpu backend (ACC_BACKEND=cpu)"};
}

template <class Function>
void need(const DynamicLibrary& from, Function*& into, const char* name) {
  from.take(into, name);
  if (into == nullptr) {
    throw Error{ErrorCode::cuda, "CUDA runtime: " + from.path() + " has no " + name +
                                     ": version 12 or later is needed"};
  }
}

Api read_api(const DynamicLibrary& from) {
  Api api{};
  need(from, api.get_device_count, "cudaGetDeviceCount");
  need(from, api.set_device, "cudaSetDevice");
  need(from, api.get_device, "cudaGetDevice");
  need(from, api.device_get_pci_bus_id, "cudaDeviceGetPCIBusId");
  need(from, api.device_get_attribute, "cudaDeviceGetAttribute");
  need(from, api.get_device_properties, "cudaGetDeviceProperties");
  need(from, api.driver_get_version, "cudaDriverGetVersion");
  need(from, api.runtime_get_version, "cudaRuntimeGetVersion");
  need(from, api.mem_get_info, "cudaMemGetInfo");
  need(from, api.device_synchronize, "cudaDeviceSynchronize");
  need(from, api.device_get_stream_priority_range, "cudaDeviceGetStreamPriorityRange");
  need(from, api.stream_create_with_priority, "cudaStreamCreateWithPriority");
  need(from, api.stream_destroy, "cudaStreamDestroy");
  need(from, api.stream_synchronize, "cudaStreamSynchronize");
  need(from, api.stream_wait_event, "cudaStreamWaitEvent");
  need(from, api.stream_is_capturing, "cudaStreamIsCapturing");
  need(from, api.thread_exchange_stream_capture_mode, "cudaThreadExchangeStreamCaptureMode");
  need(from, api.event_create_with_flags, "cudaEventCreateWithFlags");
  need(from, api.event_destroy, "cudaEventDestroy");
  need(from, api.event_record, "cudaEventRecord");
  need(from, api.event_query, "cudaEventQuery");
  need(from, api.event_elapsed_time, "cudaEventElapsedTime");
  need(from, api.malloc, "cudaMalloc");
  need(from, api.free, "cudaFree");
  need(from, api.host_alloc, "cudaHostAlloc");
  need(from, api.free_host, "cudaFreeHost");
  need(from, api.memcpy, "cudaMemcpy");
  need(from, api.memcpy_async, "cudaMemcpyAsync");
  need(from, api.memset_async, "cudaMemsetAsync");
  need(from, api.pointer_get_attributes, "cudaPointerGetAttributes");
  need(from, api.get_error_string, "cudaGetErrorString");
  need(from, api.get_error_name, "cudaGetErrorName");
  need(from, api.get_last_error, "cudaGetLastError");
  return api;
}

LazyLibrary<Api>& loaded() {
  static auto* const kept = new LazyLibrary<Api>{search, read_api};
  return *kept;
}

}  // namespace

const Api& library() { return loaded().api(); }
std::string library_path() { return loaded().path(); }

std::string explain(const Api& api, const char* call, Status status) {
  return std::string{call} + ": " + api.get_error_string(status) + " (" +
         api.get_error_name(status) + ", " + std::to_string(static_cast<int>(status)) + ")";
}

void check(const Api& api, const char* call, Status status) {
  if (status == Status::success) return;
  const auto text = explain(api, call, status);
  // The runtime keeps a non-sticky error until it is queried, and would blame it on a later call of
  // the user's.
  (void)api.get_last_error();
  throw Error{ErrorCode::cuda, text};
}

}  // namespace acc::runtime::cuda
