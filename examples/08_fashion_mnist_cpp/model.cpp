#include "model.hpp"

#include <acc/cuda.hpp>
#include <stdexcept>

namespace example {
namespace {

using acc::runtime::BackendKind;
using acc::runtime::Device;
using acc::runtime::TensorView;

#ifdef EXAMPLE_WITH_CUDA
constexpr bool kWithCuda = true;
#else
constexpr bool kWithCuda = false;
#endif

class CpuModel final : public Model {
 public:
  explicit CpuModel(std::uint64_t seed) { net_.initialise(seed); }

  std::vector<acc::Parameter> parameters() override {
    std::vector<acc::Parameter> made;
    for (const auto& part : Net::parts())
      made.push_back({part.name,
                      TensorView{net_.parameters().subspan(part.first, part.count), part.shape},
                      TensorView{net_.gradient().subspan(part.first, part.count), part.shape}});
    return made;
  }

  double learn(std::span<const Image> images, double factor) override {
    const auto count = static_cast<double>(images.size());
    return net_.learn(images, factor / count) / count;
  }

  std::size_t recognised(std::span<const Image> images) override { return net_.recognised(images); }

  std::unique_ptr<acc::Optimizer> make_sgd(acc::GradientReducer& reducer, double learning_rate,
                                           double momentum) override {
    return std::make_unique<acc::Sgd>(
        reducer, acc::runtime::SgdOptions{.learning_rate = learning_rate, .momentum = momentum});
  }

 private:
  Net net_;
};

}  // namespace

BackendKind backend_for(const std::string& device) {
  if (device == "cpu") return BackendKind::cpu;
  // Without CUDA in the program the ranks mustn't meet on devices that it can't compute on.
  if (device == "auto") return kWithCuda ? BackendKind::automatic : BackendKind::cpu;
  if (!kWithCuda)
    throw std::runtime_error{
        "--device cuda: this program was built without CUDA: install the CUDA toolkit (nvcc), "
        "build "
        "it again, or take --device cpu"};
  if (const auto why = acc::cuda::why_unavailable(); !why.empty())
    throw std::runtime_error{"--device cuda: " + why + ", or take --device cpu"};
  return BackendKind::nccl;
}

std::unique_ptr<Model> make_model(const Device& device, std::uint64_t seed) {
  if (device.kind == Device::Kind::cpu) return std::make_unique<CpuModel>(seed);
#ifdef EXAMPLE_WITH_CUDA
  return make_cuda_model(device, seed);
#else
  throw std::runtime_error{"this program was built without CUDA"};  // backend_for() doesn't let it
#endif
}

}  // namespace example
