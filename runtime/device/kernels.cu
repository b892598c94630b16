// The kernels, out of bodies.hpp. There is no host code in here: what nvcc makes of it is an image
// that the driver loads at run time (kernels.cpp), so nothing of CUDA is linked.
#include "runtime/device/bodies.hpp"

namespace acc::runtime::device {
namespace {

struct OnDevice {
  body::Word* shared;

  template <class Body>
  __device__ void each(std::size_t count, const Body& body) const {
    const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
    for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step)
      body(i);
  }
  __device__ body::Word* table() const { return shared; }
  template <class Body>
  __device__ void over_table(const Body& body) const {
    for (unsigned e = threadIdx.x; e < 256; e += blockDim.x) body(e);
  }
  __device__ void sync() const { __syncthreads(); }
  __device__ void add(body::Word* to, body::Word value) const { atomicAdd(to, value); }
  __device__ void add_in_block(body::Word* to, body::Word value) const { atomicAdd(to, value); }
  __device__ void set(unsigned* flag) const { *flag = 1; }  // all writers write the same
  __device__ void raise(body::Word* to, body::Word value) const {
    for (int away = 16; away > 0; away /= 2) {
      const body::Word other = __shfl_down_sync(0xffffffffU, value, static_cast<unsigned>(away));
      value = other > value ? other : value;
    }
    if (threadIdx.x % 32 == 0 && value > 0) atomicMax(to, value);
  }
};

template <class Arguments>
struct UsesTable {
  static constexpr unsigned words = 1;
};
template <class T>
struct UsesTable<body::Squares<T>> {
  static constexpr unsigned words = 256;
};

}  // namespace
}  // namespace acc::runtime::device

#define ACC_KERNEL(name, ...)                                                          \
  extern "C" __global__ void name(acc::runtime::device::body::__VA_ARGS__ arguments) { \
    using namespace acc::runtime::device;                                              \
    __shared__ body::Word table[UsesTable<body::__VA_ARGS__>::words];                  \
    OnDevice machine{table};                                                           \
    body::run(machine, arguments);                                                     \
  }
using acc::runtime::device::B16;
using acc::runtime::device::F16;
ACC_DEVICE_KERNELS(ACC_KERNEL)
