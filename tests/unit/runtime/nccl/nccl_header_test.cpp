// Our own declarations against NVIDIA's headers, where these are: what differs doesn't compile.

#include "runtime/backend.hpp"
#include "runtime/nccl/cuda_api.hpp"
#include "runtime/nccl/nccl_api.hpp"

#include <catch2/catch.hpp>

#if __has_include(<nccl.h>) && __has_include(<cuda_runtime_api.h>)

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstddef>
#include <type_traits>

namespace {

namespace ours = acc::runtime::nccl;
namespace cuda = acc::runtime::cuda;

/// Passed in the same way: both pointers, or of the same size and kind (an enumeration is its int).
template <class A, class B>
constexpr bool same_word() {
  if constexpr (std::is_pointer_v<A> && std::is_pointer_v<B>) {
    return true;
  } else if constexpr (std::is_void_v<A> || std::is_void_v<B>) {
    return std::is_void_v<A> && std::is_void_v<B>;
  } else {
    constexpr bool whole =
        (std::is_enum_v<A> || std::is_integral_v<A>)&&(std::is_enum_v<B> || std::is_integral_v<B>);
    return sizeof(A) == sizeof(B) && alignof(A) == alignof(B) &&
           (whole || (std::is_class_v<A> && std::is_class_v<B>));
  }
}

template <class A, class B>
struct SameShape : std::false_type {};
template <class A, class... As, class B, class... Bs>
struct SameShape<A (*)(As...), B (*)(Bs...)> {
  static constexpr bool value = [] {
    if constexpr (sizeof...(As) == sizeof...(Bs)) {
      return same_word<A, B>() && (same_word<As, Bs>() && ...);
    } else {
      return false;
    }
  }();
};
// With CUDA 13 the runtime's functions are declared noexcept in C++ in some headers.
template <class A, class... As, class B, class... Bs>
struct SameShape<A (*)(As...), B (*)(Bs...) noexcept> : SameShape<A (*)(As...), B (*)(Bs...)> {};

#define ACC_SAME(table, member, real) \
  static_assert(SameShape<decltype(table::member), decltype(&real)>::value, #real)

ACC_SAME(ours::Api, get_version, ncclGetVersion);
ACC_SAME(ours::Api, get_unique_id, ncclGetUniqueId);
ACC_SAME(ours::Api, comm_init_rank_config, ncclCommInitRankConfig);
ACC_SAME(ours::Api, comm_finalize, ncclCommFinalize);
ACC_SAME(ours::Api, comm_destroy, ncclCommDestroy);
ACC_SAME(ours::Api, comm_abort, ncclCommAbort);
ACC_SAME(ours::Api, comm_get_async_error, ncclCommGetAsyncError);
ACC_SAME(ours::Api, get_error_string, ncclGetErrorString);
ACC_SAME(ours::Api, group_start, ncclGroupStart);
ACC_SAME(ours::Api, group_end, ncclGroupEnd);
ACC_SAME(ours::Api, all_reduce, ncclAllReduce);
ACC_SAME(ours::Api, reduce, ncclReduce);
ACC_SAME(ours::Api, broadcast, ncclBroadcast);
ACC_SAME(ours::Api, reduce_scatter, ncclReduceScatter);
ACC_SAME(ours::Api, all_gather, ncclAllGather);
ACC_SAME(ours::Api, send, ncclSend);
ACC_SAME(ours::Api, recv, ncclRecv);
ACC_SAME(ours::Api, get_last_error, ncclGetLastError);
ACC_SAME(ours::Api, mem_alloc, ncclMemAlloc);
ACC_SAME(ours::Api, mem_free, ncclMemFree);
ACC_SAME(ours::Api, comm_register, ncclCommRegister);
ACC_SAME(ours::Api, comm_deregister, ncclCommDeregister);
ACC_SAME(ours::Api, window_register, ncclCommWindowRegister);
ACC_SAME(ours::Api, window_deregister, ncclCommWindowDeregister);

// These two have templates of the same name beside them.
using Malloc = decltype(static_cast<cudaError_t (*)(void**, std::size_t)>(&cudaMalloc));
using HostAlloc =
    decltype(static_cast<cudaError_t (*)(void**, std::size_t, unsigned)>(&cudaHostAlloc));
static_assert(SameShape<decltype(cuda::Api::malloc), Malloc>::value);
static_assert(SameShape<decltype(cuda::Api::host_alloc), HostAlloc>::value);

ACC_SAME(cuda::Api, get_device_count, cudaGetDeviceCount);
ACC_SAME(cuda::Api, set_device, cudaSetDevice);
ACC_SAME(cuda::Api, get_device, cudaGetDevice);
ACC_SAME(cuda::Api, device_get_pci_bus_id, cudaDeviceGetPCIBusId);
ACC_SAME(cuda::Api, device_get_attribute, cudaDeviceGetAttribute);
ACC_SAME(cuda::Api, get_device_properties, cudaGetDeviceProperties);
ACC_SAME(cuda::Api, driver_get_version, cudaDriverGetVersion);
ACC_SAME(cuda::Api, runtime_get_version, cudaRuntimeGetVersion);
ACC_SAME(cuda::Api, mem_get_info, cudaMemGetInfo);
ACC_SAME(cuda::Api, device_synchronize, cudaDeviceSynchronize);
ACC_SAME(cuda::Api, device_get_stream_priority_range, cudaDeviceGetStreamPriorityRange);
ACC_SAME(cuda::Api, stream_create_with_priority, cudaStreamCreateWithPriority);
ACC_SAME(cuda::Api, stream_destroy, cudaStreamDestroy);
ACC_SAME(cuda::Api, stream_synchronize, cudaStreamSynchronize);
ACC_SAME(cuda::Api, stream_wait_event, cudaStreamWaitEvent);
ACC_SAME(cuda::Api, stream_is_capturing, cudaStreamIsCapturing);
ACC_SAME(cuda::Api, thread_exchange_stream_capture_mode, cudaThreadExchangeStreamCaptureMode);
ACC_SAME(cuda::Api, event_create_with_flags, cudaEventCreateWithFlags);
ACC_SAME(cuda::Api, event_destroy, cudaEventDestroy);
ACC_SAME(cuda::Api, event_record, cudaEventRecord);
ACC_SAME(cuda::Api, event_query, cudaEventQuery);
ACC_SAME(cuda::Api, event_elapsed_time, cudaEventElapsedTime);
ACC_SAME(cuda::Api, free, cudaFree);
ACC_SAME(cuda::Api, free_host, cudaFreeHost);
ACC_SAME(cuda::Api, memcpy, cudaMemcpy);
ACC_SAME(cuda::Api, memcpy_async, cudaMemcpyAsync);
ACC_SAME(cuda::Api, memset_async, cudaMemsetAsync);
ACC_SAME(cuda::Api, pointer_get_attributes, cudaPointerGetAttributes);
ACC_SAME(cuda::Api, get_error_string, cudaGetErrorString);
ACC_SAME(cuda::Api, get_error_name, cudaGetErrorName);
ACC_SAME(cuda::Api, get_last_error, cudaGetLastError);

#undef ACC_SAME

}  // namespace

TEST_CASE("our numbers and layouts are NVIDIA's", "[runtime][nccl]") {
  using ours::Status;
  CHECK(static_cast<int>(Status::success) == ncclSuccess);
  CHECK(static_cast<int>(Status::cuda) == ncclUnhandledCudaError);
  CHECK(static_cast<int>(Status::system) == ncclSystemError);
  CHECK(static_cast<int>(Status::internal) == ncclInternalError);
  CHECK(static_cast<int>(Status::invalid_argument) == ncclInvalidArgument);
  CHECK(static_cast<int>(Status::invalid_usage) == ncclInvalidUsage);
  CHECK(static_cast<int>(Status::remote) == ncclRemoteError);
  CHECK(static_cast<int>(Status::in_progress) == ncclInProgress);

  CHECK(sizeof(ours::UniqueId) == sizeof(ncclUniqueId));
  CHECK(sizeof(ours::Config) == sizeof(ncclConfig_t));
  CHECK(offsetof(ours::Config, blocking) == offsetof(ncclConfig_t, blocking));
  CHECK(offsetof(ours::Config, net_name) == offsetof(ncclConfig_t, netName));
  CHECK(offsetof(ours::Config, split_share) == offsetof(ncclConfig_t, splitShare));
  CHECK(offsetof(ours::Config, comm_name) == offsetof(ncclConfig_t, commName));
  CHECK(offsetof(ours::Config, nvlink_centric_sched) == offsetof(ncclConfig_t, nvlinkCentricSched));
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  const ours::Config mine;
  CHECK(mine.size == theirs.size);
  CHECK(mine.magic == theirs.magic);
  CHECK(mine.blocking == theirs.blocking);
  CHECK(ours::kWindowCollSymmetric == NCCL_WIN_COLL_SYMMETRIC);
  CHECK(ours::kWindowAlignment == NCCL_WIN_REQUIRED_ALIGNMENT);

  using acc::runtime::DType;
  using acc::runtime::ReduceOp;
  CHECK(static_cast<int>(DType::i8) == ncclInt8);
  CHECK(static_cast<int>(DType::u8) == ncclUint8);
  CHECK(static_cast<int>(DType::i32) == ncclInt32);
  CHECK(static_cast<int>(DType::u32) == ncclUint32);
  CHECK(static_cast<int>(DType::i64) == ncclInt64);
  CHECK(static_cast<int>(DType::u64) == ncclUint64);
  CHECK(static_cast<int>(DType::f16) == ncclFloat16);
  CHECK(static_cast<int>(DType::f32) == ncclFloat32);
  CHECK(static_cast<int>(DType::f64) == ncclFloat64);
  CHECK(static_cast<int>(DType::bf16) == ncclBfloat16);
  CHECK(static_cast<int>(ReduceOp::sum) == ncclSum);
  CHECK(static_cast<int>(ReduceOp::prod) == ncclProd);
  CHECK(static_cast<int>(ReduceOp::max) == ncclMax);
  CHECK(static_cast<int>(ReduceOp::min) == ncclMin);
  CHECK(static_cast<int>(ReduceOp::avg) == ncclAvg);

  CHECK(static_cast<int>(cuda::Status::no_memory) == cudaErrorMemoryAllocation);
  CHECK(static_cast<int>(cuda::Status::stub_library) == cudaErrorStubLibrary);
  CHECK(static_cast<int>(cuda::Status::insufficient_driver) == cudaErrorInsufficientDriver);
  CHECK(static_cast<int>(cuda::Status::no_device) == cudaErrorNoDevice);
  CHECK(static_cast<int>(cuda::Status::invalid_device) == cudaErrorInvalidDevice);
  CHECK(static_cast<int>(cuda::Status::not_ready) == cudaErrorNotReady);
  CHECK(static_cast<int>(cuda::Status::captured_event) == cudaErrorCapturedEvent);
  CHECK(cuda::kEventDisableTiming == cudaEventDisableTiming);
  CHECK(cuda::kStreamNonBlocking == cudaStreamNonBlocking);
  CHECK(cuda::kCopyByAddress == cudaMemcpyDefault);
  CHECK(cuda::kAttributeMajor == cudaDevAttrComputeCapabilityMajor);
  CHECK(cuda::kAttributeMinor == cudaDevAttrComputeCapabilityMinor);
  CHECK(cuda::kCaptureRelaxed == cudaStreamCaptureModeRelaxed);
  CHECK(cuda::kMemoryUnregistered == cudaMemoryTypeUnregistered);
  CHECK(offsetof(cudaDeviceProp, name) == 0);
  CHECK(sizeof(cudaDeviceProp) < 8192);
  CHECK(offsetof(cudaPointerAttributes, type) == 0);
  CHECK(sizeof(cudaPointerAttributes) <= 256);
}

#else

TEST_CASE("our declarations of NCCL are not compared: this machine has no toolkit",
          "[runtime][nccl]") {
  WARN("no nccl.h and cuda_runtime_api.h: skipped");
}

#endif
