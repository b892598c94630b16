#include "runtime/device/kernels.hpp"

#include "runtime/device/driver.hpp"
#include "runtime/nccl/device.hpp"

#include <acc/error.hpp>
#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <mutex>

namespace acc::runtime::device {
namespace {

enum class Kernel : std::size_t {
#define ACC_KERNEL_NUMBER(name, ...) name,
  ACC_DEVICE_KERNELS(ACC_KERNEL_NUMBER)
#undef ACC_KERNEL_NUMBER
};
constexpr const char* kNames[] = {
#define ACC_KERNEL_NAME(name, ...) #name,
    ACC_DEVICE_KERNELS(ACC_KERNEL_NAME)
#undef ACC_KERNEL_NAME
};
using Functions = std::array<Function, std::size(kNames)>;

// By the type of the arguments, its kernel.
template <class Arguments>
inline constexpr auto kKernelOf = static_cast<Kernel>(SIZE_MAX);
using namespace body;  // NOLINT(google-build-using-namespace): of the list alone
#define ACC_KERNEL_OF(name, ...) \
  template <>                    \
  inline constexpr auto kKernelOf<__VA_ARGS__> = Kernel::name;
ACC_DEVICE_KERNELS(ACC_KERNEL_OF)
#undef ACC_KERNEL_OF

/// Loads the image into a device's context. What an old driver says to a new image is a number.
Functions load(const DriverApi& api) {
  constexpr int kUnsupportedPtx = 222, kNoBinary = 209;
  Module module = nullptr;
  const int status = api.module_load_data(&module, image().data);
  if (status == kUnsupportedPtx || status == kNoBinary)
    throw Error{ErrorCode::cuda,
                "the driver is older than the CUDA toolkit that this library's kernels were built "
                "with, or the GPU older than Turing: install a newer driver, build with an older "
                "toolkit, or train on the cpu backend (ACC_BACKEND=cpu)"};
  check(api, "cuModuleLoadData", status);
  Functions functions{};
  for (std::size_t i = 0; i < functions.size(); ++i)
    check(api, "cuModuleGetFunction", api.module_get_function(&functions[i], module, kNames[i]));
  return functions;
}

/// Of each device, for as long as the process lives: a device may be in use at its end.
const Functions& functions_of(const DriverApi& api, int device) {
  static auto* const mutex = new std::mutex;
  static auto* const all = new std::map<int, Functions>;
  const std::lock_guard lock{*mutex};
  const auto known = all->find(device);
  return known != all->end() ? known->second : all->emplace(device, load(api)).first->second;
}

/// Makes the context of the CUDA runtime current in this thread, which querying the device does
/// not.
void make_current(const DriverApi& api, int device) {
  Context context = nullptr;
  check(api, "cuCtxGetCurrent", api.context_get_current(&context));
  if (context == nullptr)
    cuda::check(cuda::library(), "cudaSetDevice", cuda::library().set_device(device));
}

template <class Arguments>
void launch(const Arguments& arguments, std::size_t count, int device, void* stream) {
  if (count == 0) return;
  require_kernels("this");
  const auto& api = driver();
  const cuda::DeviceScope here{cuda::library(), device};
  make_current(api, device);
  const auto function = functions_of(api, device)[static_cast<std::size_t>(kKernelOf<Arguments>)];
  const auto blocks =
      static_cast<unsigned>(std::min<std::size_t>((count + kThreads - 1) / kThreads, kMostBlocks));
  void* parameters[] = {const_cast<Arguments*>(&arguments)};
  check(api, "cuLaunchKernel",
        api.launch_kernel(function, blocks, 1, 1, kThreads, 1, 1, 0, stream, parameters, nullptr));
}

/// work(zero of the type that the kernels have for it)
template <class Work>
void with_floating(DType type, const Work& work) {
  switch (type) {
    case DType::f32:
      return work(float{});
    case DType::f64:
      return work(double{});
    case DType::f16:
      return work(F16{});
    case DType::bf16:
      return work(B16{});
    default:
      throw Error{ErrorCode::invalid_argument,
                  std::string{to_string(type)} +
                      " in device memory: f16, bf16, f32 and f64 can be "
                      "trained"};
  }
}

/// work(values as T*, how many) for each launch.
template <class View, class Work>
void in_launches(const View& view, const Work& work) {
  with_floating(view.dtype, [&](auto zero) {
    using T = decltype(zero);
    using At = std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(view.data)>>,
                                  const T*, T*>;
    const std::size_t all = view.count();
    for (std::size_t done = 0; done < all; done += kMostOfLaunch)
      work(static_cast<At>(view.data) + done, std::min(kMostOfLaunch, all - done));
  });
}

/// Memory for Findings that is not in use.
struct Pool {
  std::mutex mutex;
  std::multimap<int, acc::cuda::DeviceBuffer> idle;
};
Pool& pool() {
  static auto* const only = new Pool;  // never destroyed: CUDA may have ended before
  return *only;
}
constexpr std::size_t kMostWords = std::max(kSquareWords, kDoubleSquareWords);

}  // namespace

std::string why_no_kernels() {
  if (image().bytes > 0) return {};
  return "this library was built without the CUDA toolkit, so it has no kernels of its own: build "
         "it "
         "where nvcc is (12 or later), or train in host memory";
}

void require_kernels(std::string_view what) {
  if (const auto why = why_no_kernels(); !why.empty())
    throw Error{ErrorCode::cuda, std::string{what} + " in device memory: " + why};
}

Findings::Findings(int device, std::size_t words, void* stream)
    : device_{device}, count_{std::min(words, kMostWords)}, stream_{stream} {
  const cuda::DeviceScope here{cuda::library(), device};
  {
    const std::lock_guard lock{pool().mutex};
    if (const auto idle = pool().idle.find(device); idle != pool().idle.end()) {
      memory_ = std::move(idle->second);
      pool().idle.erase(idle);
    }
  }
  if (memory_.data() == nullptr) memory_ = acc::cuda::DeviceBuffer{kMostWords * sizeof(Word)};
  acc::cuda::fill_async(memory_.data(), 0, count_ * sizeof(Word), stream);
}

Findings::~Findings() {
  try {
    const std::lock_guard lock{pool().mutex};
    pool().idle.emplace(device_, std::move(memory_));
  } catch (const std::bad_alloc&) {  // then it is freed
  }
}

Word* Findings::words() const noexcept { return static_cast<Word*>(memory_.data()); }

std::vector<std::uint64_t> Findings::read() const {
  const cuda::DeviceScope here{cuda::library(), device_};
  std::vector<std::uint64_t> found(count_);
  acc::cuda::copy_async(found.data(), memory_.data(), count_ * sizeof(Word), stream_);
  acc::cuda::synchronize(stream_);
  return found;
}

void scale(const TensorView& values, double factor, Word* bad, void* stream) {
  in_launches(values, [&]<class T>(T* at, std::size_t count) {
    launch(Scale<T>{at, count, static_cast<Computed<T>>(factor), reinterpret_cast<unsigned*>(bad)},
           count, values.device.index, stream);
  });
}

void clamp(const TensorView& values, double limit, void* stream) {
  in_launches(values, [&]<class T>(T* at, std::size_t count) {
    launch(Clamp<T>{at, count, static_cast<Computed<T>>(limit)}, count, values.device.index,
           stream);
  });
}

void largest(const ConstTensorView& values, Word* found, void* stream) {
  in_launches(values, [&]<class T>(const T* at, std::size_t count) {
    launch(Largest<T>{at, count, found}, count, values.device.index, stream);
  });
}

void squares(const ConstTensorView& values, Word* words, void* stream) {
  in_launches(values, [&]<class T>(const T* at, std::size_t count) {
    launch(Squares<T>{at, count, words}, count, values.device.index, stream);
  });
}

void widen(const void* from, DType from_type, float* to, std::size_t count, const Device& device,
           void* stream) {
  if (from_type == DType::f16)
    launch(Widen<F16>{static_cast<const F16*>(from), to, count}, count, device.index, stream);
  else
    launch(Widen<B16>{static_cast<const B16*>(from), to, count}, count, device.index, stream);
}

void narrow(const float* from, void* to, DType to_type, std::size_t count, const Device& device,
            void* stream) {
  if (to_type == DType::f16)
    launch(Narrow<F16>{from, static_cast<F16*>(to), count}, count, device.index, stream);
  else
    launch(Narrow<B16>{from, static_cast<B16*>(to), count}, count, device.index, stream);
}

template <class T>
void sgd(const Sgd<T>& step, const Device& device, void* stream) {
  launch(step, step.count, device.index, stream);
}
template void sgd(const Sgd<float>&, const Device&, void*);
template void sgd(const Sgd<double>&, const Device&, void*);

template <class T>
void adamw(const AdamW<T>& step, const Device& device, void* stream) {
  launch(step, step.count, device.index, stream);
}
template void adamw(const AdamW<float>&, const Device&, void*);
template void adamw(const AdamW<double>&, const Device&, void*);

}  // namespace acc::runtime::device
