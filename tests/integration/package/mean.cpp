#include <acc/process_group.hpp>

#include <cstdio>
#include <exception>
#include <vector>

int main() {
  try {
    auto group = acc::ProcessGroup::from_environment();
    std::vector<float> x(1000, static_cast<float>(group.rank()));
    group.all_reduce(std::span{x}, acc::ReduceOp::avg);
    std::printf("C++: rank %d of %d: mean %.1f\n", group.rank(), group.size(), static_cast<double>(x[999]));
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
