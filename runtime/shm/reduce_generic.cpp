#define ACC_REDUCE_ISA isa_generic
#include "runtime/shm/reduce_kernels.hpp"
