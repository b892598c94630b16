#include "runtime/device/driver.hpp"

#include "runtime/nccl/dynamic_library.hpp"

#include <acc/error.hpp>

namespace acc::runtime::device {
namespace {

LibrarySearch search() {
  return {.what = "CUDA driver",
          .names = {"libcuda.so.1"},
          .variable = "ACC_CUDA_DRIVER_LIBRARY",
          .wheels = {},
          .remedy = "install the NVIDIA driver, or use the cpu backend (ACC_BACKEND=cpu)"};
}

template <class Function>
void need(const DynamicLibrary& from, Function*& into, const char* name) {
  from.take(into, name);
  if (into == nullptr)
    throw Error{ErrorCode::cuda, "CUDA driver: " + from.path() + " has no " + name};
}

DriverApi read_api(const DynamicLibrary& from) {
  DriverApi api{};
  need(from, api.context_get_current, "cuCtxGetCurrent");
  need(from, api.module_load_data, "cuModuleLoadData");
  need(from, api.module_get_function, "cuModuleGetFunction");
  need(from, api.launch_kernel, "cuLaunchKernel");
  need(from, api.get_error_string, "cuGetErrorString");
  return api;
}

}  // namespace

const DriverApi& driver() {
  static auto* const kept = new LazyLibrary<DriverApi>{search, read_api};
  return kept->api();
}

void check(const DriverApi& api, const char* call, int status) {
  if (status == 0) return;
  const char* text = nullptr;
  if (api.get_error_string(status, &text) != 0 || text == nullptr) text = "unknown error";
  throw Error{ErrorCode::cuda,
              std::string{call} + ": " + text + " (" + std::to_string(status) + ")"};
}

}  // namespace acc::runtime::device
