#pragma once

#include "runtime/backend.hpp"
#include "runtime/bootstrap/store.hpp"
#include "runtime/group/group.hpp"

#include <memory>
#include <optional>
#include <span>

namespace acc::runtime {

struct NcclOptions {
  /// Of the CUDA device, as this process sees it. Default: LOCAL_RANK of the job where several are
  /// visible, else 0.
  std::optional<int> device;
  std::optional<Millis> init_timeout;  ///< default 300 s; 0: for ever
  /// Compare what the ranks call, before each call. It makes every call wait for all ranks, as
  /// torch's TORCH_DISTRIBUTED_DEBUG=DETAIL does: for finding mistakes.
  bool check = false;
  Millis abort_limit{10'000};  ///< of ncclCommAbort; past it the process ends with status 74
  Millis close_limit{5'000};   ///< of ncclCommFinalize, which waits for the peers; then: abort
};

/// A backend over NCCL, for the CUDA device of this rank. Calls are enqueued on a stream of its
/// own, ordered behind the caller's stream before and in front of it after. Two groups that are in
/// use at once must be called in the same order on all ranks, as NCCL demands.
///
/// A buffer in ordinary host memory works too: it is copied to the device and back, and the call
/// waits (so that objects can be sent through any group).
///
/// A call that doesn't end within its limit, an error that NCCL finds by itself, a lost rank and
/// abort() break the group on every rank within about a second: the cause goes through the store,
/// after a timeout with who is behind and where the ranks differ.
///
/// Collective. @throws Error the same one on all ranks: nccl, cuda, system, timed_out
[[nodiscard]] std::unique_ptr<Backend> make_nccl_backend(std::shared_ptr<Store> store,
                                                         GroupFacts facts,
                                                         NcclOptions options = {});

/// Would make_nccl_backend find what it needs on this machine? Empty, or one line with the remedy.
[[nodiscard]] std::string why_no_nccl();

}  // namespace acc::runtime
