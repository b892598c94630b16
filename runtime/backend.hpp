#pragma once

#include "runtime/user_call.hpp"

#include <acc/error.hpp>
#include <acc/process_group.hpp>
#include <acc/types.hpp>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

/// The interface of what moves the bytes of a group. The group (runtime/group) checks arguments,
/// numbers calls, keeps the record and the queue; a backend carries out one call at a time.
namespace acc::runtime {

using Clock = std::chrono::steady_clock;

enum class Operation : std::uint8_t {
  none,
  all_reduce,
  reduce,
  broadcast,
  all_gather,
  gather,
  scatter,
  reduce_scatter,
  all_to_all,
  barrier,
  send,
  recv,
  split,
  allocate,
};
[[nodiscard]] std::string_view to_string(Operation operation) noexcept;

/// Description of a call, compared between the ranks before data moves: 32 bytes.
struct Descriptor {
  std::uint64_t sequence = 0;  ///< of collectives, from 1; send and recv have a count per pair
  /// Elements, as given in the call; in the _v forms the total, in all_to_all_v, where each rank
  /// has its own counts, 0.
  std::uint64_t count = 0;
  std::uint64_t digest = 0;  ///< digest of the counts of the _v forms; all_to_all_v: 1; else 0
  std::int32_t root = -1;
  Operation operation = Operation::none;
  DType dtype = DType::u8;
  ReduceOp reduce = ReduceOp::sum;
  UserCall within = UserCall::none;  ///< compared by may_meet()
  friend bool operator==(const Descriptor& a, const Descriptor& b) noexcept {
    return a.sequence == b.sequence && a.count == b.count && a.digest == b.digest &&
           a.root == b.root && a.operation == b.operation && a.dtype == b.dtype &&
           a.reduce == b.reduce && may_meet(a.within, b.within);
  }
};
static_assert(sizeof(Descriptor) == 32);
/// "all_gather f32 x1000 #17 (in gather_for_metrics)"; inapplicable parts are left out.
[[nodiscard]] std::string to_string(const Descriptor& what);
/// "rank 1: all_reduce f32 x900 sum #17, ranks 0,2: x1000": one for each rank, ascending; the
/// Error's ranks are those that differ from the most common call.
[[nodiscard]] Error mismatch(std::span<const Descriptor> of_ranks, std::string_view group);
/// In an all_to_all_v `from` sends another number of elements than `to` expects.
[[nodiscard]] Error pair_mismatch(std::string_view title, int from, std::size_t sent, int to,
                                  std::size_t expected);
/// "ranks 0-2,5": for messages.
[[nodiscard]] std::string describe_ranks(std::span<const int> ranks);
/// "has" or "have", to follow describe_ranks().
[[nodiscard]] std::string have(std::span<const int> ranks);

struct Call {
  Descriptor what;
  const void* send = nullptr;
  void* recv = nullptr;
  /// Counts by rank of the _v forms; empty: what.count for all. In all_to_all_v of what this rank
  /// sends.
  std::span<const std::size_t> counts;
  std::span<const std::size_t> recv_counts;  ///< all_to_all_v only: of what it receives
  int peer = -1;                             ///< send, recv
  /// Time limit; 0: none. The backend computes the deadline when the call first has to wait (cpu:
  /// when it begins to yield), so a call whose peers have arrived reads no clock.
  std::chrono::milliseconds limit{0};
  void* stream = nullptr;

  [[nodiscard]] std::size_t bytes() const { return what.count * size_of(what.dtype); }
  /// all_to_all_v: each pair of ranks has a count known to these two only.
  [[nodiscard]] bool by_pairs() const { return !recv_counts.empty(); }
};

/// Location of a rank, for messages.
struct RankFacts {
  int rank = 0;
  std::string host;
  std::int64_t pid = 0;
  int local_rank = 0;
};

/// A call that an asynchronous backend has enqueued. Any thread may call its methods.
class Pending {
 public:
  virtual ~Pending() = default;
  [[nodiscard]] virtual bool done() = 0;  ///< true also after a failure
  /// @throws Error its failure, or timed_out after `limit` (the call continues).
  virtual void wait(std::optional<Millis> limit) = 0;
  [[nodiscard]] virtual std::exception_ptr error() = 0;  ///< nullptr: not done, or succeeded
};

/// One thread at a time calls `run`, `begin` and `allocate`, with one exception: a second thread
/// may be in a `run` of Operation::send, so that two ranks can send each other more than is
/// buffered (send_async has its own thread). `abort`, `lost` and `waits_for` may be called from any
/// thread. The Error of a failed call carries its operation's name and sequence number.
class Backend {
 public:
  virtual ~Backend() = default;
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;
  /// Blocks until the call is done (cpu) or enqueued (nccl).
  /// @throws Error; after any but invalid_argument the backend is broken and fails immediately.
  virtual void run(const Call& call) = 0;
  /// Collective: memory that the local peers can access.
  virtual SharedBuffer allocate(std::size_t bytes, const Call& call) = 0;
  /// Wakes all local waiters within 10 ms and notifies the peers. Idempotent.
  virtual void abort(const Error& cause) noexcept = 0;
  /// The first cause of the failure, possibly another rank's, and earlier than the one given to
  /// abort(). nothing: healthy, or the cause is unknown.
  [[nodiscard]] virtual std::optional<Error> cause() const { return std::nullopt; }
  /// The agent reports that this rank died: as abort with peer_lost. `how`: "killed by SIGKILL",
  /// "exit code 3"; messages append it after a colon.
  virtual void lost(int rank, const std::string& how) noexcept = 0;
  /// Do calls return when enqueued (nccl)? Then `begin` returns handles, in place of a thread of
  /// the group.
  [[nodiscard]] virtual bool asynchronous() const noexcept { return false; }
  [[nodiscard]] virtual std::shared_ptr<Pending> begin(const Call&) { return nullptr; }
  /// Launches all of them as one, ordered with the stream of the first. Asynchronous backends only.
  /// @throws Error also invalid_argument: a call that can't be part of a launch
  [[nodiscard]] virtual std::shared_ptr<Pending> begin_as_one(std::span<const Call>) {
    return nullptr;
  }
  /// The ranks that the running call waits for; empty: none, or unknown.
  [[nodiscard]] virtual std::vector<int> waits_for() const { return {}; }
  /// The device whose memory calls use.
  [[nodiscard]] virtual Device device() const noexcept { return {}; }
};

}  // namespace acc::runtime
