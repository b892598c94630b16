#include "runtime/shm/reduce.hpp"

namespace acc::runtime {

#define ACC_REDUCE_FOR(isa)                                     \
  namespace isa {                                               \
  const Reduction& reduction(DType type, ReduceOp op) noexcept; \
  }
ACC_REDUCE_FOR(isa_generic)
#if defined(__x86_64__)
ACC_REDUCE_FOR(isa_avx2)
ACC_REDUCE_FOR(isa_avx512)
#endif

namespace {

using Pick = const Reduction& (*)(DType, ReduceOp) noexcept;

Pick pick() noexcept {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
  if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
    return &isa_avx512::reduction;
  if (avx2) return &isa_avx2::reduction;
#endif
  return &isa_generic::reduction;
}

}  // namespace

const Reduction& reduction(DType type, ReduceOp op) noexcept {
  static const Pick best = pick();
  return best(type, op);
}

}  // namespace acc::runtime
