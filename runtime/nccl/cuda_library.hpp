#pragma once

#include "runtime/nccl/cuda_api.hpp"

#include <acc/error.hpp>
#include <string>

/// libcudart, loaded on first use.
namespace acc::runtime::cuda {

/// @throws Error cuda, system: not found; one line with the remedy.
[[nodiscard]] const Api& library();
/// Its path; empty: not loaded.
[[nodiscard]] std::string library_path();

/// "cudaEventQuery: an illegal memory access was encountered (cudaErrorIllegalAddress, 700)".
[[nodiscard]] std::string explain(const Api& api, const char* call, Status status);
/// @throws Error cuda unless the call succeeded.
void check(const Api& api, const char* call, Status status);

}  // namespace acc::runtime::cuda
