#pragma once

#include <acc/error.hpp>
#include <acc/types.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace acc::runtime {

class Group;       // runtime/group/group.hpp
class Backend;     // runtime/backend.hpp
class GroupStore;  // runtime/bootstrap

using Millis = std::chrono::milliseconds;

enum class BackendKind : std::uint8_t {
  automatic,  ///< nccl where ACC_BACKEND says so or a CUDA device is this rank's, else cpu
  cpu,
  nccl,
};

struct GroupOptions {
  BackendKind backend = BackendKind::automatic;
  /// How long all ranks may take to come. 0: for ever. ACC_INIT_TIMEOUT (seconds, or "250ms").
  std::optional<Millis> init_timeout;  ///< default 300 s
  /// How long an operation may take. 0: for ever. ACC_COLLECTIVE_TIMEOUT.
  std::optional<Millis> timeout;  ///< default 1800 s on cpu, 600 s on nccl, as torch
  std::string name = "world";     ///< in messages
  /// Do all ranks call the same thing? By default on cpu, off on nccl. ACC_CHECK=0|1.
  std::optional<bool> check;
};

/// Of one call. cuda: the stream (cudaStream_t) it is ordered with; nullptr is the legacy stream.
struct CallOptions {
  std::optional<Millis> timeout;
  void* stream = nullptr;
};

/// A call that was begun. Its buffers belong to the group until it is done. Destroying an unwaited
/// Work neither waits nor cancels. Copies are handles of the same call.
class Work {
 public:
  Work() = default;
  /// @throws Error what the call failed with, or timed_out after `limit` (the call goes on).
  void wait(std::optional<Millis> limit = std::nullopt) const;
  [[nodiscard]] bool done() const;  ///< also when it failed
  /// What it failed with; nullptr: not done yet, or well.
  [[nodiscard]] std::exception_ptr error() const;
  struct State;
  explicit Work(std::shared_ptr<State> state) : state_{std::move(state)} {}

 private:
  std::shared_ptr<State> state_;
};

/// Memory that the other processes of this node can reach: a reduction of it needs no copy. The
/// same size is to be asked for on every rank (collective). Freed with its last handle.
class SharedBuffer {
 public:
  SharedBuffer() = default;
  SharedBuffer(void* data, std::size_t bytes, std::shared_ptr<void> keep)
      : data_{data}, bytes_{bytes}, keep_{std::move(keep)} {}
  [[nodiscard]] void* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  template <Element T>
  [[nodiscard]] std::span<T> as() const noexcept {
    return {static_cast<T*>(data_), bytes_ / sizeof(T)};
  }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::shared_ptr<void> keep_;
};

/// Processes that call the same operations in the same order with the same count, type, reduction
/// and root, and so reduce, gather and meet. As torch.distributed's and NCCL's communicators.
///
/// On cpu a call blocks until it is done; the forms that end in `_async` return at once and are
/// carried out in their order by a thread of the group. On nccl every call is enqueued on
/// CallOptions::stream and returns at once. `count`s are elements; bytes, ranks and counts of 0 are
/// legal. In place: all_reduce, broadcast, reduce with send == recv; all_gather with
/// send == recv + rank * count; reduce_scatter with recv == send + rank * count; any other overlap
/// is invalid_argument. One thread at a time may call (abort: any thread, any time).
///
/// On cpu: every rank gets the same bits. Sums are taken in the order of the ranks, f16 and bf16 in
/// float with one rounding at the end, so an element depends on its n inputs alone and never on
/// the size of the message, on chunks, timing or cores.
///
/// @throws Error from every operation: timed_out, peer_lost, mismatch, aborted, invalid_argument,
///   system. See Error for what remains usable.
class ProcessGroup {
 public:
  using Options = GroupOptions;

  /// By the worker contract: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT as acc-launch and torchrun
  /// set them, or the variables of Open MPI, MPICH and Slurm; through the agent's key-value store
  /// when ACC_AGENT_SOCKET is there, which is faster. With none of them: a group of one.
  static ProcessGroup from_environment(Options options = {});
  /// This process alone.
  static ProcessGroup single(Options options = {});
  /// `size` groups for as many threads of this process; for tests and for programs with threads as
  /// ranks. Same code as between processes.
  static std::vector<ProcessGroup> threads(int size, Options options = {});

  ProcessGroup() = default;  ///< none: any call throws invalid_argument
  explicit ProcessGroup(std::shared_ptr<Group> group) : group_{std::move(group)} {}

  [[nodiscard]] int rank() const;
  [[nodiscard]] int size() const;
  [[nodiscard]] int local_rank() const;  ///< among the ranks of this group on this node
  [[nodiscard]] int local_size() const;
  [[nodiscard]] const std::string& name() const;
  [[nodiscard]] std::string_view backend() const;  ///< "cpu", "nccl"
  [[nodiscard]] Device device() const;  ///< whose memory is reduced: host, or this rank's
  [[nodiscard]] bool broken() const;
  explicit operator bool() const noexcept { return group_ != nullptr; }

  // -- typed forms --
  template <Element T>
  void all_reduce(std::span<T> data, ReduceOp op = ReduceOp::sum, CallOptions how = {}) {
    all_reduce(data.data(), data.data(), data.size(), dtype_of<T>, op, how);
  }
  template <Element T>
  void broadcast(std::span<T> data, int root, CallOptions how = {}) {
    broadcast(data.data(), data.size(), dtype_of<T>, root, how);
  }
  /// recv: as many elements as send for each rank; else invalid_argument.
  template <Element T>
  void all_gather(std::span<const T> send, std::span<T> recv, CallOptions how = {}) {
    require_parts("all_gather: recv", recv.size(), "send", send.size());
    all_gather(send.data(), recv.data(), send.size(), dtype_of<T>, how);
  }
  /// send: as many elements as recv for each rank; else invalid_argument.
  template <Element T>
  void reduce_scatter(std::span<const T> send, std::span<T> recv, ReduceOp op = ReduceOp::sum,
                      CallOptions how = {}) {
    require_parts("reduce_scatter: send", send.size(), "recv", recv.size());
    reduce_scatter(send.data(), recv.data(), recv.size(), dtype_of<T>, op, how);
  }

  // -- raw forms; counts are per rank for all but all_reduce, reduce and broadcast --
  void all_reduce(const void* send, void* recv, std::size_t count, DType type,
                  ReduceOp op = ReduceOp::sum, CallOptions how = {});
  void reduce(const void* send, void* recv, std::size_t count, DType type, ReduceOp op, int root,
              CallOptions how = {});  ///< recv: touched on root alone
  void broadcast(void* data, std::size_t count, DType type, int root, CallOptions how = {});
  void all_gather(const void* send, void* recv, std::size_t count, DType type,
                  CallOptions how = {});
  /// counts[r]: elements of rank r, the same on every rank; recv: one behind the other.
  void all_gather_v(const void* send, void* recv, std::span<const std::size_t> counts, DType type,
                    CallOptions how = {});
  void gather(const void* send, void* recv, std::size_t count, DType type, int root,
              CallOptions how = {});  ///< recv: touched on root alone, else may be nullptr
  void gather_v(const void* send, void* recv, std::span<const std::size_t> counts, DType type,
                int root, CallOptions how = {});
  void scatter(const void* send, void* recv, std::size_t count, DType type, int root,
               CallOptions how = {});  ///< send: read on root alone
  void reduce_scatter(const void* send, void* recv, std::size_t count, DType type, ReduceOp op,
                      CallOptions how = {});  ///< count: of what a rank receives
  void all_to_all(const void* send, void* recv, std::size_t count, DType type,
                  CallOptions how = {});  ///< count: for each peer
  void barrier(CallOptions how = {});
  /// Between two ranks; others don't take part. Messages of a pair keep their order.
  void send(const void* data, std::size_t count, DType type, int to, CallOptions how = {});
  void recv(void* data, std::size_t count, DType type, int from, CallOptions how = {});

  // -- forms that return a handle --
  Work all_reduce_async(const void* send, void* recv, std::size_t count, DType type,
                        ReduceOp op = ReduceOp::sum, CallOptions how = {});
  Work reduce_async(const void* send, void* recv, std::size_t count, DType type, ReduceOp op,
                    int root, CallOptions how = {});
  Work broadcast_async(void* data, std::size_t count, DType type, int root, CallOptions how = {});
  Work all_gather_async(const void* send, void* recv, std::size_t count, DType type,
                        CallOptions how = {});
  Work gather_async(const void* send, void* recv, std::size_t count, DType type, int root,
                    CallOptions how = {});
  Work scatter_async(const void* send, void* recv, std::size_t count, DType type, int root,
                     CallOptions how = {});
  Work reduce_scatter_async(const void* send, void* recv, std::size_t count, DType type,
                            ReduceOp op, CallOptions how = {});
  Work all_to_all_async(const void* send, void* recv, std::size_t count, DType type,
                        CallOptions how = {});
  Work barrier_async(CallOptions how = {});
  Work send_async(const void* data, std::size_t count, DType type, int to, CallOptions how = {});
  Work recv_async(void* data, std::size_t count, DType type, int from, CallOptions how = {});

  // -- objects: strings of any bytes and any length (JSON: acc/json.hpp) --
  [[nodiscard]] std::vector<std::string> all_gather_object(std::string_view mine);
  /// Empty on all ranks but root.
  [[nodiscard]] std::vector<std::string> gather_object(std::string_view mine, int root);
  /// @return root's, on every rank.
  [[nodiscard]] std::string broadcast_object(std::string_view roots, int root);
  /// @return the element of `roots` (read on root alone, one a rank) that is this rank's.
  [[nodiscard]] std::string scatter_object(std::span<const std::string> roots, int root);

  /// Groups of the ranks with the same `color`, in the order of (key, rank), as MPI_Comm_split.
  /// Collective. color < 0: no group; what returns is empty then.
  [[nodiscard]] ProcessGroup split(int color, int key, std::string name = {});
  /// The group of these ranks, in this order; empty on the others. Collective over all.
  [[nodiscard]] ProcessGroup sub_group(std::span<const int> ranks, std::string name = {});

  /// Memory that needs no copies (cpu: shared between the node's ranks; nccl: registered).
  /// Collective, same size on every rank.
  [[nodiscard]] SharedBuffer allocate_shared(std::size_t bytes);

  /// Breaks the group here and tells the peers: every waiter wakes within 10 ms with `aborted`.
  /// From any thread; more than once is as once.
  void abort(std::string_view why = "abort() was called") noexcept;

  /// The last calls as JSON lines, newest last (the flight recorder); for bug reports.
  [[nodiscard]] std::string flight_record() const;

  [[nodiscard]] Group& impl() const;  ///< for the other parts of the runtime

 private:
  void require_parts(std::string_view whole_name, std::size_t whole, std::string_view part_name,
                     std::size_t part) const;
  std::shared_ptr<Group> group_;
};

}  // namespace acc::runtime

namespace acc {
using runtime::CallOptions;
using runtime::GroupOptions;
using runtime::ProcessGroup;
using runtime::ReduceOp;
using runtime::SharedBuffer;
using runtime::Work;
}  // namespace acc
