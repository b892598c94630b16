// One call of one vector kernel, for who counts its instructions
// (tests/bench/kernels/instructions.py):
//   acc-bench-kernels sum f32 4096
#include "runtime/shm/reduce.hpp"
#include "runtime/training/cast.hpp"

#include <acc/types.hpp>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string_view>

namespace {

using acc::runtime::DType;
using acc::runtime::ReduceOp;

std::optional<DType> type_named(std::string_view name) {
  for (std::size_t i = 0; i < acc::runtime::kDTypes; ++i) {
    if (acc::runtime::to_string(static_cast<DType>(i)) == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

std::optional<ReduceOp> op_named(std::string_view name) {
  for (const auto op :
       {ReduceOp::sum, ReduceOp::prod, ReduceOp::max, ReduceOp::min, ReduceOp::avg}) {
    if (acc::runtime::to_string(op) == name) return op;
  }
  return std::nullopt;
}

// Zeros that no instruction wrote: their number must not depend on the count.
constexpr std::size_t kMost = 65'536;
std::array<double, kMost> from;
std::array<double, kMost> to;

/// @return false for a kernel that there isn't
bool call(std::string_view name, DType type, std::size_t count) {
  if (count > kMost) return false;
  if (name == "widen") {
    acc::runtime::training::widen(from.data(), type, to.data(), DType::f32, count);
  } else if (name == "narrow") {
    acc::runtime::training::narrow(from.data(), DType::f32, to.data(), type, count, 1);
  } else if (const auto op = op_named(name)) {
    const void* const two[] = {from.data(), from.data()};
    acc::runtime::reduction(type, *op).all(to.data(), nullptr, two, 2, count, 2);
  } else {
    return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const auto type = argc == 4 ? type_named(argv[2]) : std::nullopt;
  if (!type || !call(argv[1], *type, std::strtoul(argv[3], nullptr, 10))) {
    std::fputs(
        "usage: acc-bench-kernels sum|prod|max|min|avg TYPE COUNT, of two inputs; or "
        "widen|narrow f16|bf16 COUNT, to or from f32\n",
        stderr);
    return 2;
  }
  return 0;
}
