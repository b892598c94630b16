// The net on a CUDA device: the bodies of layers.hpp as kernels.
#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

#include "device_model.hpp"

namespace example {
namespace {

void check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  throw std::runtime_error{std::string{call} + ": " + cudaGetErrorString(status) + " (" +
                           cudaGetErrorName(status) + ")"};
}

template <class Body>
__global__ void over_all(std::size_t count, Body body) {
  const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step)
    body(i);
}

struct CudaMachine {
  template <class Body>
  void each(std::size_t count, const Body& body) const {
    if (count == 0) return;
    constexpr std::size_t kThreads = 256, kMostBlocks = 4096;
    const auto blocks = std::min((count + kThreads - 1) / kThreads, kMostBlocks);
    over_all<<<static_cast<unsigned>(blocks), kThreads>>>(count, body);
    check(cudaGetLastError(), "launching a kernel");
  }
};

}  // namespace

std::unique_ptr<Model> make_cuda_model(const acc::runtime::Device& device, std::uint64_t seed) {
  // The accelerator has done so in the CUDA runtime that it loaded; kernels come with one of their
  // own.
  const auto status = cudaSetDevice(device.index);
  if (status == cudaErrorInsufficientDriver)
    throw std::runtime_error{
        "the driver is older than the CUDA toolkit that this program was built with: install a "
        "newer "
        "driver, build with an older toolkit, or take --device cpu"};
  check(status, "cudaSetDevice");
  return std::make_unique<DeviceModel<CudaMachine>>(CudaMachine{}, device, seed);
}

}  // namespace example
