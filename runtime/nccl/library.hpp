#pragma once

#include "runtime/nccl/nccl_api.hpp"

#include <acc/error.hpp>
#include <string>

/// libnccl.so.2, loaded on first use.
namespace acc::runtime::nccl {

/// @throws Error nccl, system: not found, or too old; one line with the remedy. After a failure
///   each call tries again, as the cause may be gone.
[[nodiscard]] const Api& library();
/// Its path; empty: not loaded.
[[nodiscard]] std::string library_path();
/// As ncclGetVersion: 22809.
[[nodiscard]] int version();
/// "2.28.9".
[[nodiscard]] std::string describe_version(int version);

/// "ncclAllReduce: unhandled cuda error (1): Cuda failure 'invalid argument'", with the text of
/// ncclGetLastError if there is one. (Up to 2.28 it ignores its communicator.)
[[nodiscard]] std::string explain(const Api& api, const char* call, Status status);
/// invalid_argument if the call had no effect, else nccl.
[[nodiscard]] ErrorCode code_of(Status status) noexcept;

}  // namespace acc::runtime::nccl
