#define ACC_REDUCE_ISA isa_avx512
#include "runtime/shm/reduce_kernels.hpp"
