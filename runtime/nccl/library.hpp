#pragma once

#include "runtime/nccl/nccl_api.hpp"

#include <acc/error.hpp>
#include <string>

/// libnccl.so.2, loaded when it is first asked for.
namespace acc::runtime::nccl {

/// @throws Error nccl, system: it isn't there, or too old; one line with the remedy. Each call
/// after a failure tries again, as the cause may be gone.
[[nodiscard]] const Api& library();
/// Where it was found; empty: it isn't loaded.
[[nodiscard]] std::string library_path();
/// As ncclGetVersion: 22809.
[[nodiscard]] int version();
/// "2.28.9".
[[nodiscard]] std::string describe_version(int version);

/// "ncclAllReduce: unhandled cuda error (1): Cuda failure 'invalid argument'", with the text of
/// ncclGetLastError where there is one. (It ignores the communicator it is given, up to 2.28.)
[[nodiscard]] std::string explain(const Api& api, const char* call, Status status);
/// invalid_argument where the call had no effect, else nccl.
[[nodiscard]] ErrorCode code_of(Status status) noexcept;

}  // namespace acc::runtime::nccl
