#pragma once

#include <climits>
#include <cstddef>

/// NCCL's entry points as this library calls them. They are declared here and not included from
/// nccl.h, so that every build has NCCL support and no build needs the toolkit; a test compares
/// them with nccl.h if there is one (2.28.9). Loaded at run time: library.hpp.
namespace acc::runtime::nccl {

enum class Status : int {
  success = 0,
  cuda = 1,
  system = 2,
  internal = 3,
  invalid_argument = 4,  ///< the call had no effect
  invalid_usage = 5,     ///< the call had no effect
  remote = 6,
  in_progress = 7,
};

using Comm = struct OpaqueComm*;
using Window = struct OpaqueWindow*;
using Stream = void*;  ///< cudaStream_t

struct UniqueId {
  char bytes[128];
};

/// ncclConfig_v22800. Older libraries read the part they know.
struct Config {
  static constexpr int kUnset = INT_MIN;
  std::size_t size = sizeof(Config);
  unsigned int magic = 0xcafebeef;
  unsigned int version = 22809;
  int blocking = kUnset;
  int cga_cluster_size = kUnset;
  int min_ctas = kUnset;
  int max_ctas = kUnset;
  const char* net_name = nullptr;
  int split_share = kUnset;
  int traffic_class = kUnset;
  const char* comm_name = nullptr;
  int collnet_enable = kUnset;
  int cta_policy = kUnset;
  int shrink_share = kUnset;
  int nvls_ctas = kUnset;
  int channels_per_net_peer = kUnset;
  int nvlink_centric_sched = kUnset;
};

inline constexpr int kWindowCollSymmetric = 1;         ///< NCCL_WIN_COLL_SYMMETRIC
inline constexpr std::size_t kWindowAlignment = 4096;  ///< NCCL_WIN_REQUIRED_ALIGNMENT
inline constexpr int kOldestVersion = 21400;           ///< the first with ncclConfig_t: 2.14

struct Api {
  Status (*get_version)(int* version);
  Status (*get_unique_id)(UniqueId* id);
  Status (*comm_init_rank_config)(Comm* comm, int ranks, UniqueId id, int rank, Config* config);
  Status (*comm_finalize)(Comm comm);
  Status (*comm_destroy)(Comm comm);
  Status (*comm_abort)(Comm comm);
  Status (*comm_get_async_error)(Comm comm, Status* error);
  const char* (*get_error_string)(Status status);
  Status (*group_start)();
  Status (*group_end)();
  Status (*all_reduce)(const void* send, void* recv, std::size_t count, int type, int op, Comm comm,
                       Stream stream);
  Status (*reduce)(const void* send, void* recv, std::size_t count, int type, int op, int root,
                   Comm comm, Stream stream);
  Status (*broadcast)(const void* send, void* recv, std::size_t count, int type, int root,
                      Comm comm, Stream stream);
  Status (*reduce_scatter)(const void* send, void* recv, std::size_t count, int type, int op,
                           Comm comm, Stream stream);
  Status (*all_gather)(const void* send, void* recv, std::size_t count, int type, Comm comm,
                       Stream stream);
  Status (*send)(const void* data, std::size_t count, int type, int peer, Comm comm, Stream stream);
  Status (*recv)(void* data, std::size_t count, int type, int peer, Comm comm, Stream stream);
  // nullptr in versions without it.
  const char* (*get_last_error)(Comm comm);                                          ///< 2.13
  Status (*mem_alloc)(void** data, std::size_t bytes);                               ///< 2.19
  Status (*mem_free)(void* data);                                                    ///< 2.19
  Status (*comm_register)(Comm comm, void* data, std::size_t bytes, void** handle);  ///< 2.19
  Status (*comm_deregister)(Comm comm, void* handle);                                ///< 2.19
  Status (*window_register)(Comm comm, void* data, std::size_t bytes, Window* window,
                            int flags);                   ///< 2.27
  Status (*window_deregister)(Comm comm, Window window);  ///< 2.27
};

}  // namespace acc::runtime::nccl
