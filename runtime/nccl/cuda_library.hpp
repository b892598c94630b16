#pragma once

#include "runtime/nccl/cuda_api.hpp"

#include <acc/error.hpp>
#include <string>

/// libcudart, loaded when it is first asked for.
namespace acc::runtime::cuda {

/// @throws Error cuda, system: it isn't there; one line with the remedy.
[[nodiscard]] const Api& library();
/// Where it was found; empty: it isn't loaded.
[[nodiscard]] std::string library_path();

/// "cudaEventQuery: an illegal memory access was encountered (cudaErrorIllegalAddress, 700)".
[[nodiscard]] std::string explain(const Api& api, const char* call, Status status);
/// @throws Error cuda unless it went well.
void check(const Api& api, const char* call, Status status);

}  // namespace acc::runtime::cuda
