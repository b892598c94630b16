#pragma once

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

/// What a group asks of the thing that moves the bytes. The group (runtime/group) checks arguments,
/// counts calls, keeps the record and the queue; a backend carries out one call at a time.
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

/// What is compared between the ranks before data moves: 32 bytes.
struct Descriptor {
  std::uint64_t sequence = 0;  ///< of collectives, from 1; send and recv have a count per pair
  /// Elements, as the call gives them; of the _v forms: all together, of all_to_all_v, where each
  /// rank has counts of its own: 0.
  std::uint64_t count = 0;
  std::uint64_t digest = 0;  ///< of the counts of the _v forms; of all_to_all_v: 1; else 0
  std::int32_t root = -1;
  Operation operation = Operation::none;
  DType dtype = DType::u8;
  ReduceOp reduce = ReduceOp::sum;
  std::uint8_t unused = 0;
  friend bool operator==(const Descriptor&, const Descriptor&) = default;
};
static_assert(sizeof(Descriptor) == 32);
/// "all_reduce f32 x1000 sum #17"; what doesn't apply is left out.
[[nodiscard]] std::string to_string(const Descriptor& what);
/// "rank 1: all_reduce f32 x900 sum #17, ranks 0,2: x1000": one for each rank, in their order; the
/// Error's ranks are those unlike the most common one.
[[nodiscard]] Error mismatch(std::span<const Descriptor> of_ranks, std::string_view group);
/// Of all_to_all_v: what `from` sends isn't what `to` expects of it. Elements.
[[nodiscard]] Error pair_mismatch(std::string_view title, int from, std::size_t sent, int to,
                                  std::size_t expected);
/// "ranks 0-2,5": for messages.
[[nodiscard]] std::string describe_ranks(std::span<const int> ranks);

struct Call {
  Descriptor what;
  const void* send = nullptr;
  void* recv = nullptr;
  /// Of the _v forms, by rank; empty: all are what.count. Of all_to_all_v: of what this rank sends.
  std::span<const std::size_t> counts;
  std::span<const std::size_t> recv_counts;  ///< of all_to_all_v alone: of what it receives
  int peer = -1;                             ///< send, recv
  /// How long it may take; 0: for ever. The backend makes the deadline itself, once a call, when it
  /// first has to wait for real (cpu: after its pauses, when it begins to yield): a call whose
  /// peers are there reads no clock.
  std::chrono::milliseconds limit{0};
  void* stream = nullptr;

  [[nodiscard]] std::size_t bytes() const { return what.count * size_of(what.dtype); }
  /// all_to_all_v: each pair of ranks has a count that nobody else knows.
  [[nodiscard]] bool by_pairs() const { return !recv_counts.empty(); }
};

/// Where a rank is, for messages that name it.
struct RankFacts {
  int rank = 0;
  std::string host;
  std::int64_t pid = 0;
  int local_rank = 0;
};

/// A call that an asynchronous backend has enqueued. Any thread may ask.
class Pending {
 public:
  virtual ~Pending() = default;
  [[nodiscard]] virtual bool done() = 0;  ///< also when it failed
  /// @throws Error what it failed with, or timed_out after `limit` (it goes on then).
  virtual void wait(std::optional<Millis> limit) = 0;
  [[nodiscard]] virtual std::exception_ptr error() = 0;  ///< nullptr: not done yet, or well
};

/// One thread at a time calls `run`, `begin` and `allocate`, with one exception: a second thread
/// may be in a `run` of Operation::send, so that two ranks can send each other more than is
/// buffered (send_async has a thread of its own). `abort`, `lost` and `waits_for` come from any
/// thread. The Error of a failed call carries its operation's name and sequence number.
class Backend {
 public:
  virtual ~Backend() = default;
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;
  /// Blocks until the call is done (cpu) or enqueued (nccl).
  /// @throws Error; after it (but invalid_argument) the backend is broken and fails at once.
  virtual void run(const Call& call) = 0;
  /// Collective. Memory that the local peers can reach.
  virtual SharedBuffer allocate(std::size_t bytes, const Call& call) = 0;
  /// Wakes all local waiters in at most 10 ms and tells the peers. Idempotent.
  virtual void abort(const Error& cause) noexcept = 0;
  /// Somebody saw this rank die (the agent, a pidfd): as abort with peer_lost.
  virtual void lost(int rank, const std::string& how) noexcept = 0;
  /// Do calls return when they are enqueued (nccl)? Then `begin` gives the handles, in place of a
  /// thread of the group.
  [[nodiscard]] virtual bool asynchronous() const noexcept { return false; }
  [[nodiscard]] virtual std::shared_ptr<Pending> begin(const Call&) { return nullptr; }
  /// All of them as one launch, ordered with the stream of the first. Asynchronous backends only.
  /// @throws Error also invalid_argument: a call that can't be a part of it
  [[nodiscard]] virtual std::shared_ptr<Pending> begin_as_one(std::span<const Call>) {
    return nullptr;
  }
  /// The ranks that the running call waits for; empty: it waits for none, or it isn't known.
  [[nodiscard]] virtual std::vector<int> waits_for() const { return {}; }
  /// Whose memory its calls take.
  [[nodiscard]] virtual Device device() const noexcept { return {}; }
};

}  // namespace acc::runtime
