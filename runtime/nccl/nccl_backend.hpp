#pragma once

#include "runtime/backend.hpp"
#include "runtime/group/group.hpp"
#include "runtime/net/store.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <span>

namespace acc::runtime {

struct NcclOptions {
  /// CUDA device, as numbered in this process. Default: LOCAL_RANK if several are visible, else 0.
  std::optional<int> device;
  std::optional<Millis> init_timeout;  ///< default 300 s; 0: for ever
  /// Compare the calls of the ranks before each call. For debugging, as torch's
  /// TORCH_DISTRIBUTED_DEBUG=DETAIL: every call waits for all ranks.
  bool check = false;
  std::function<void()> check_parties = {};  ///< as Gather::Options::check_parties
  Millis abort_limit{10'000};  ///< of ncclCommAbort; past it the process ends with status 74
  Millis close_limit{5'000};   ///< of ncclCommFinalize, which waits for the peers; then: abort
};

/// A backend over NCCL, for the CUDA device of this rank. Calls are enqueued on its own stream,
/// after the work on the caller's stream and before later work there. Two groups that are in use at
/// once must be called in the same order on all ranks, as NCCL demands.
///
/// A buffer in ordinary host memory works too: it is copied to the device and back, and the call
/// waits (so that objects can be sent through any group).
///
/// A timeout, an error that NCCL detects, a lost rank and abort() break the group on every rank
/// within about a second: the cause is passed on through the store, after a timeout with the ranks
/// that are behind and where their calls differ.
///
/// Collective. @throws Error the same on all ranks: nccl, cuda, system, timed_out
[[nodiscard]] std::unique_ptr<Backend> make_nccl_backend(std::shared_ptr<Store> store,
                                                         GroupFacts facts,
                                                         NcclOptions options = {});

/// Why make_nccl_backend would fail on this machine, in one line with the remedy; empty: it would
/// not.
[[nodiscard]] std::string why_no_nccl();

}  // namespace acc::runtime
