#include "runtime/nccl/device.hpp"

#include "runtime/nccl/library.hpp"

#include <array>

namespace acc::runtime::cuda {

OwnedStream::OwnedStream(const Api& api) : api_{&api} {
  int least = 0;
  int greatest = 0;
  check(api, "cudaDeviceGetStreamPriorityRange",
        api.device_get_stream_priority_range(&least, &greatest));
  check(api, "cudaStreamCreateWithPriority",
        api.stream_create_with_priority(&stream_, kStreamNonBlocking, greatest));
}

std::string explain_missing(const Api& api) {
  int count = 0;
  const auto status = api.get_device_count(&count);
  if (status == Status::success && count > 0) return {};
  (void)api.get_last_error();
  if (status == Status::success || status == Status::no_device) {
    return "CUDA: the driver shows no device to this process: see CUDA_VISIBLE_DEVICES and "
           "nvidia-smi, or use the cpu backend (ACC_BACKEND=cpu)";
  }
  if (status == Status::insufficient_driver || status == Status::stub_library) {
    int driver = 0;
    int runtime = 0;
    (void)api.driver_get_version(&driver);
    (void)api.runtime_get_version(&runtime);
    const auto code =
        " (cudaGetDeviceCount: error " + std::to_string(static_cast<int>(status)) + ")";
    if (driver == 0) {
      return "CUDA: no driver on this machine" + code +
             ": install the NVIDIA driver, or use the cpu backend (ACC_BACKEND=cpu)";
    }
    return "CUDA: the driver is for CUDA " + std::to_string(driver / 1000) + "." +
           std::to_string(driver % 1000 / 10) + ", the runtime library needs " +
           std::to_string(runtime / 1000) + "." + std::to_string(runtime % 1000 / 10) + code +
           ": install a newer driver or an older CUDA runtime";
  }
  return "CUDA: " + explain(api, "cudaGetDeviceCount", status) +
         ": see nvidia-smi and the kernel's log, or use the cpu backend (ACC_BACKEND=cpu)";
}

bool is_plain_host_memory(const Api& api, const void* pointer) noexcept {
  struct alignas(16) {  // larger than cudaPointerAttributes of any version
    int type = 0;
    std::array<char, 252> rest{};
  } attributes;
  if (api.pointer_get_attributes(&attributes, pointer) != Status::success) {
    (void)api.get_last_error();
    return true;
  }
  return attributes.type == kMemoryUnregistered;
}

std::string pci_bus_id(const Api& api, int device) {
  std::array<char, 32> id{};
  check(api, "cudaDeviceGetPCIBusId",
        api.device_get_pci_bus_id(id.data(), static_cast<int>(id.size()), device));
  return id.data();
}

}  // namespace acc::runtime::cuda

namespace acc::cuda {

namespace rt = runtime::cuda;

namespace {

/// The library, on a machine with a device.
const rt::Api& ready() {
  const auto& api = rt::library();
  // Called once: cudaGetDeviceCount starts the driver, which is not free.
  static const bool succeeded = [&] {
    if (const auto why = rt::explain_missing(api); !why.empty()) {
      throw runtime::Error{runtime::ErrorCode::cuda, why};
    }
    return true;
  }();
  (void)succeeded;
  return api;
}

}  // namespace

std::string why_unavailable() {
  try {
    return rt::explain_missing(rt::library());
  } catch (const runtime::Error& error) {
    return error.what();
  }
}

bool available() noexcept { return device_count() > 0; }

int device_count() noexcept {
  try {
    const auto& api = rt::library();
    int count = 0;
    if (api.get_device_count(&count) == rt::Status::success) return count;
    (void)api.get_last_error();
  } catch (...) {  // no CUDA runtime here: no devices
  }
  return 0;
}

DeviceFacts device_facts(int index) {
  const auto& api = ready();
  DeviceFacts facts{.index = index};
  facts.pci_bus_id = rt::pci_bus_id(api, index);
  // Larger than cudaDeviceProp of any version; the name is its first 256 bytes in all of them.
  struct alignas(16) {
    std::array<char, 8192> bytes{};
  } properties;
  rt::check(api, "cudaGetDeviceProperties",
            api.get_device_properties(properties.bytes.data(), index));
  properties.bytes[255] = '\0';
  facts.name = properties.bytes.data();
  rt::check(api, "cudaDeviceGetAttribute",
            api.device_get_attribute(&facts.major, rt::kAttributeMajor, index));
  rt::check(api, "cudaDeviceGetAttribute",
            api.device_get_attribute(&facts.minor, rt::kAttributeMinor, index));
  const rt::DeviceScope here{api, index};
  rt::check(api, "cudaMemGetInfo", api.mem_get_info(&facts.free_bytes, &facts.total_bytes));
  return facts;
}

std::vector<DeviceFacts> devices() {
  std::vector<DeviceFacts> all;
  const int count = device_count();
  for (int index = 0; index < count; ++index) all.push_back(device_facts(index));
  return all;
}

int driver_version() {
  const auto& api = rt::library();
  int version = 0;
  rt::check(api, "cudaDriverGetVersion", api.driver_get_version(&version));
  return version;
}

int runtime_version() {
  const auto& api = rt::library();
  int version = 0;
  rt::check(api, "cudaRuntimeGetVersion", api.runtime_get_version(&version));
  return version;
}

int nccl_version() { return runtime::nccl::version(); }
std::string nccl_path() { return runtime::nccl::library_path(); }

int current_device() {
  const auto& api = ready();
  int device = 0;
  rt::check(api, "cudaGetDevice", api.get_device(&device));
  return device;
}

void set_device(int index) {
  const auto& api = ready();
  rt::check(api, "cudaSetDevice", api.set_device(index));
}

void synchronize() {
  const auto& api = ready();
  rt::check(api, "cudaDeviceSynchronize", api.device_synchronize());
}

void synchronize(const runtime::Device& device) {
  if (device.kind == runtime::Device::Kind::cpu) return;
  const auto& api = ready();
  const rt::DeviceScope here{api, device.index};
  rt::check(api, "cudaDeviceSynchronize", api.device_synchronize());
}

void synchronize(void* stream) {
  const auto& api = ready();
  rt::check(api, "cudaStreamSynchronize", api.stream_synchronize(stream));
}

void copy(void* to, const void* from, std::size_t bytes) {
  const auto& api = ready();
  rt::check(api, "cudaMemcpy", api.memcpy(to, from, bytes, rt::kCopyByAddress));
  // Copies from pageable memory and within the device may return before they are done.
  rt::check(api, "cudaStreamSynchronize", api.stream_synchronize(nullptr));
}

void copy_async(void* to, const void* from, std::size_t bytes, void* stream) {
  const auto& api = ready();
  rt::check(api, "cudaMemcpyAsync", api.memcpy_async(to, from, bytes, rt::kCopyByAddress, stream));
}

void fill_async(void* data, int byte, std::size_t bytes, void* stream) {
  const auto& api = ready();
  rt::check(api, "cudaMemsetAsync", api.memset_async(data, byte, bytes, stream));
}

DeviceBuffer::DeviceBuffer(std::size_t bytes) : bytes_{bytes} {
  const auto& api = ready();
  // 0 bytes still get a distinct address, as counts of 0 are legal everywhere.
  rt::check(api, "cudaMalloc", api.malloc(&data_, bytes != 0 ? bytes : 1));
}

DeviceBuffer::~DeviceBuffer() {
  if (data_ != nullptr) (void)rt::library().free(data_);
}

PinnedBuffer::PinnedBuffer(std::size_t bytes) : bytes_{bytes} {
  const auto& api = ready();
  rt::check(api, "cudaHostAlloc", api.host_alloc(&data_, bytes != 0 ? bytes : 1, 0));
}

PinnedBuffer::~PinnedBuffer() {
  if (data_ != nullptr) (void)rt::library().free_host(data_);
}

}  // namespace acc::cuda
