// DeviceModel without a GPU: its bodies run in loops, on the memory of the fake CUDA runtime
// (tests/support/fake_nccl), which the host can reach. In the place of cuda_model.cu.
#include "examples/08_fashion_mnist_cpp/device_model.hpp"

namespace example {
namespace {

struct HostMachine {
  template <class Body>
  void each(std::size_t count, const Body& body) const {
    acc::cuda::synchronize(nullptr);  // what was enqueued before comes before
    for (std::size_t i = 0; i < count; ++i) body(i);
  }
};

}  // namespace

std::unique_ptr<Model> make_cuda_model(const acc::runtime::Device& device, std::uint64_t seed) {
  // Few at a time, so that a batch is several and the last one not full.
  return std::make_unique<DeviceModel<HostMachine>>(HostMachine{}, device, seed, 12);
}

}  // namespace example
