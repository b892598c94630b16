#include <catch2/catch.hpp>

#include <acc/error.hpp>
#include <acc/torch.hpp>
#include <memory>
#include <string>
#include <vector>

/// Tensors with the methods of libtorch's that the adapter uses, and nothing else of them.
namespace {

using namespace acc::runtime;

enum class ScalarType : std::int8_t { Byte = 0, Short = 2, Long = 4, Float = 6, BFloat16 = 15 };

class FakeTensor {
 public:
  FakeTensor() = default;
  FakeTensor(ScalarType type, std::vector<std::int64_t> sizes)
      : type_{type}, sizes_{std::move(sizes)}, memory_{std::make_shared<std::vector<double>>(64)} {}
  [[nodiscard]] bool defined() const { return memory_ != nullptr; }
  [[nodiscard]] void* data_ptr() const { return memory_->data(); }
  [[nodiscard]] ScalarType scalar_type() const { return type_; }
  [[nodiscard]] const std::vector<std::int64_t>& sizes() const { return sizes_; }
  [[nodiscard]] bool is_contiguous() const { return contiguous; }
  [[nodiscard]] bool is_cuda() const { return device >= 0; }
  [[nodiscard]] std::int64_t get_device() const { return device; }
  [[nodiscard]] bool requires_grad() const { return trained; }
  [[nodiscard]] FakeTensor new_zeros(const std::vector<std::int64_t>& sizes) const {
    return {type_, sizes};
  }
  [[nodiscard]] const FakeTensor& grad() const { return gradient_ ? *gradient_ : none(); }
  FakeTensor& mutable_grad() {
    if (!gradient_) gradient_ = std::make_shared<FakeTensor>();
    return *gradient_;
  }
  bool contiguous = true;
  bool trained = true;
  std::int64_t device = -1;

 private:
  static const FakeTensor& none() {
    static const FakeTensor nothing;
    return nothing;
  }
  ScalarType type_ = ScalarType::Float;
  std::vector<std::int64_t> sizes_;
  std::shared_ptr<std::vector<double>> memory_;
  std::shared_ptr<FakeTensor> gradient_;
};

struct Item {
  std::string name;
  FakeTensor tensor;
  [[nodiscard]] const std::string& key() const { return name; }
  FakeTensor& value() { return tensor; }
};

struct FakeModule {
  std::vector<Item> parameters{{"weight", {ScalarType::Float, {2, 3}}},
                               {"frozen", {ScalarType::Float, {4}}}};
  std::vector<Item> buffers{{"running", {ScalarType::Long, {}}}};
  std::vector<Item>& named_parameters() { return parameters; }
  std::vector<Item>& named_buffers() { return buffers; }
};

}  // namespace

TEST_CASE("a view shows a torch tensor's memory, type, shape and device", "[runtime][training]") {
  FakeTensor tensor{ScalarType::BFloat16, {2, 5}};
  TensorView view = acc::torch::view(tensor);
  CHECK(view.data == tensor.data_ptr());
  CHECK(view.dtype == DType::bf16);
  CHECK(view.shape == Shape{2, 5});
  CHECK(view.device == Device{});
  tensor.device = 3;
  CHECK(acc::torch::view(tensor).device == Device{Device::Kind::cuda, 3});
  tensor.contiguous = false;
  CHECK_THROWS_AS(acc::torch::view(tensor), Error);
  CHECK_THROWS_AS(acc::torch::view(FakeTensor{ScalarType::Short, {1}}), Error);
}

TEST_CASE("a module gives its trained parameters with gradients, and its buffers",
          "[runtime][training]") {
  FakeModule module;
  module.parameters[1].tensor.trained = false;
  const auto parameters = acc::torch::parameters_of(module);
  REQUIRE(parameters.size() == 1);
  CHECK(parameters[0].name == "weight");
  CHECK(parameters[0].gradient.data == module.parameters[0].tensor.grad().data_ptr());
  CHECK(parameters[0].gradient.shape == Shape{2, 3});
  const auto again = acc::torch::parameters_of(module);
  CHECK(again[0].gradient.data == parameters[0].gradient.data);
  const auto buffers = acc::torch::buffers_of(module);
  REQUIRE(buffers.size() == 1);
  CHECK(buffers[0].value.dtype == DType::i64);
}
