#define ACC_REDUCE_ISA isa_avx2
#include "runtime/shm/reduce_kernels.hpp"
