#pragma once

#include <acc/call.hpp>
#include <acc/detail/typed_call.hpp>
#include <acc/error.hpp>
#include <acc/types.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace acc::runtime {

class Group;       // runtime/group/group.hpp
class Backend;     // runtime/backend.hpp
class GroupStore;  // runtime/bootstrap

/// One message of ProcessGroup::batch. Its buffer is the caller's, and must stay until the batch is
/// done.
struct Message {
  bool sends = false;
  void* data = nullptr;  ///< only read when it sends
  std::size_t count = 0;
  DType type = DType::u8;
  int peer = -1;

  static Message send(const void* data, std::size_t count, DType type, int to) {
    return {true, const_cast<void*>(data), count, type, to};
  }
  static Message recv(void* data, std::size_t count, DType type, int from) {
    return {false, data, count, type, from};
  }
  template <class Data>
  static Message send(Data&& data, int to) {
    const auto what = detail::elements<detail::Use::read_later, Data>(data);
    return {true, what.data, what.count, what.type, to};
  }
  template <class Data>
  static Message recv(Data&& data, int from) {
    const auto what = detail::elements<detail::Use::write_later, Data>(data);
    return {false, what.data, what.count, what.type, from};
  }
};

/// A group of processes (ranks) for collective communication. All ranks call the same operations in
/// the same order with the same count, type, reduction and root. As torch.distributed's process
/// groups and NCCL's communicators.
///
/// On cpu a call blocks until it is done; the `_async` forms return immediately and are carried out
/// in order by a thread of the group. On nccl every call is enqueued on CallOptions::stream and
/// returns immediately. `count`s are elements; bytes, ranks and counts of 0 are legal. In place:
/// all_reduce, broadcast, reduce with send == recv; all_gather with send == recv + rank * count;
/// reduce_scatter with recv == send + rank * count; any other overlap
/// is invalid_argument, also between the messages of one sendrecv or batch. One
/// thread at a time may call (abort: any thread, any time); concurrent calls of two threads have
/// another order on every rank, and are reported as a mismatch at best.
///
/// The typed forms take any contiguous range of elements (a vector, an array, a std::span; const
/// where it is only read) or a TensorView; the raw ones pointers, a count and a DType.
///
/// On cpu: every rank gets the same bits. Sums are taken in the order of the ranks, f16 and bf16 in
/// float with one rounding at the end, so an element depends on its n inputs alone and never on the
/// size of the message, on chunks, timing or cores. (Except that the sign and payload of a NaN from
/// several NaNs, the same on every rank, may depend on the length.) max and min are NaN where any
/// input is; of +0 and -0 they give the lowest rank's. Sums and products of integers wrap around,
/// and avg divides what wrapped: the avg of four i8 of 100 is
/// -28.
///
/// @throws Error from every operation: timed_out, peer_lost, mismatch, aborted, invalid_argument,
///   system. See Error for what remains usable. invalid_argument concerns this rank's arguments:
///   the other ranks are in the call and wait for this one to repeat it correctly.
class ProcessGroup {
 public:
  using Options = GroupOptions;

  /// By the worker contract: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT as acc-launch and torchrun
  /// set them, or the variables of Open MPI, MPICH and Slurm; through the agent's key-value store
  /// if ACC_AGENT_SOCKET is set, which is faster. Without any of them: a group of one.
  /// Collective: all ranks form their groups in the same order, and so do two threads of a process
  /// only if something orders them alike on all ranks.
  /// @throws Error timed_out naming who has joined; mismatch: another name or `check` on some rank
  static ProcessGroup from_environment(Options options = {});
  /// A group of this process alone.
  static ProcessGroup single(Options options = {});
  /// `size` groups for as many threads of this process, for tests and programs with threads as
  /// ranks. Same code as between processes.
  static std::vector<ProcessGroup> threads(int size, Options options = {});

  ProcessGroup() = default;  ///< empty: any call throws invalid_argument
  explicit ProcessGroup(std::shared_ptr<Group> group) : group_{std::move(group)} {}

  [[nodiscard]] int rank() const;
  [[nodiscard]] int size() const;
  [[nodiscard]] int local_rank() const;  ///< among the ranks of this group on this node
  [[nodiscard]] int local_size() const;
  [[nodiscard]] const std::string& name() const;
  [[nodiscard]] std::string_view backend() const;  ///< "cpu", "nccl"
  [[nodiscard]] Device device() const;  ///< whose memory is reduced: host, or this rank's
  [[nodiscard]] bool broken() const;
  [[nodiscard]] Millis timeout() const;  ///< of a call that has none of its own; 0: none
  explicit operator bool() const noexcept { return group_ != nullptr; }

  // -- typed forms. Those of vectors check the lengths: invalid_argument --
  template <class Data>
  void all_reduce(Data&& data, ReduceOp op = ReduceOp::sum, CallOptions how = {}) {
    const auto all = written<Data>(data);
    all_reduce(all.data, all.data, all.count, all.type, op, how);
  }
  template <class Data>
  void reduce(Data&& data, ReduceOp op, int root, CallOptions how = {}) {  ///< written on root
    const auto all = written<Data>(data);
    reduce(all.data, all.data, all.count, all.type, op, root, how);
  }
  template <class Data>
  void broadcast(Data&& data, int root, CallOptions how = {}) {
    const auto all = written<Data>(data);
    broadcast(all.data, all.count, all.type, root, how);
  }
  /// recv: as many elements as send for each rank.
  template <class Send, class Recv>
  void all_gather(Send&& send, Recv&& recv, CallOptions how = {}) {
    const auto both = pair<Send, Recv>(send, recv);
    require_parts("all_gather: recv", both.to_count, "send", both.from_count);
    all_gather(both.from, both.to, both.from_count, both.type, how);
  }
  /// counts[r]: elements of rank r, the same on every rank; recv: one behind the other.
  template <class Send, class Recv>
  void all_gather_v(Send&& send, Recv&& recv, std::span<const std::size_t> counts,
                    CallOptions how = {}) {
    const auto both = pair<Send, Recv>(send, recv);
    require_counts("all_gather_v: recv", both.to_count, "send", both.from_count, counts);
    all_gather_v(both.from, both.to, counts, both.type, how);
  }
  /// recv: on root as many elements as send for each rank; ignored on the others.
  template <class Send, class Recv>
  void gather(Send&& send, Recv&& recv, int root, CallOptions how = {}) {
    const auto both = pair<Send, Recv>(send, recv);
    if (rank() == root) require_parts("gather: recv", both.to_count, "send", both.from_count);
    gather(both.from, both.to, both.from_count, both.type, root, how);
  }
  template <class Send, class Recv>
  void gather_v(Send&& send, Recv&& recv, std::span<const std::size_t> counts, int root,
                CallOptions how = {}) {
    const auto both = pair<Send, Recv>(send, recv);
    require_counts("gather_v: recv", rank() == root ? both.to_count : kNotLookedAt, "send",
                   both.from_count, counts);
    gather_v(both.from, both.to, counts, both.type, root, how);
  }
  /// send: on root as many elements as recv for each rank; ignored on the others.
  template <class Send, class Recv>
  void scatter(Send&& send, Recv&& recv, int root, CallOptions how = {}) {
    const auto both = pair<Send, Recv>(send, recv);
    if (rank() == root) require_parts("scatter: send", both.from_count, "recv", both.to_count);
    scatter(both.from, both.to, both.to_count, both.type, root, how);
  }
  template <class Send, class Recv>
  void scatter_v(Send&& send, Recv&& recv, std::span<const std::size_t> counts, int root,
                 CallOptions how = {}) {
    const auto both = pair<Send, Recv>(send, recv);
    require_counts("scatter_v: send", rank() == root ? both.from_count : kNotLookedAt, "recv",
                   both.to_count, counts);
    scatter_v(both.from, both.to, counts, both.type, root, how);
  }
  /// send: as many elements as recv for each rank.
  template <class Send, class Recv>
  void reduce_scatter(Send&& send, Recv&& recv, ReduceOp op = ReduceOp::sum, CallOptions how = {}) {
    const auto both = pair<Send, Recv>(send, recv);
    require_parts("reduce_scatter: send", both.from_count, "recv", both.to_count);
    reduce_scatter(both.from, both.to, both.to_count, both.type, op, how);
  }
  template <class Send, class Recv>
  void reduce_scatter_v(Send&& send, Recv&& recv, std::span<const std::size_t> counts,
                        ReduceOp op = ReduceOp::sum, CallOptions how = {}) {
    const auto both = pair<Send, Recv>(send, recv);
    require_counts("reduce_scatter_v: send", both.from_count, "recv", both.to_count, counts);
    reduce_scatter_v(both.from, both.to, counts, both.type, op, how);
  }
  /// Equally many elements, an equal part for each rank.
  template <class Send, class Recv>
  void all_to_all(Send&& send, Recv&& recv, CallOptions how = {}) {
    const auto both = pair<Send, Recv>(send, recv);
    all_to_all(both.from, both.to, share_of(both.from_count, both.to_count), both.type, how);
  }
  /// send_counts[r] elements go to rank r, recv_counts[r] come from it; parts are ordered by rank.
  /// On cpu the counts of each pair are compared.
  template <class Send, class Recv>
  void all_to_all_v(Send&& send, std::span<const std::size_t> send_counts, Recv&& recv,
                    std::span<const std::size_t> recv_counts, CallOptions how = {}) {
    const auto both = pair<Send, Recv>(send, recv);
    require_sum("all_to_all_v: send", both.from_count, send_counts);
    require_sum("all_to_all_v: recv", both.to_count, recv_counts);
    all_to_all_v(both.from, send_counts, both.to, recv_counts, both.type, how);
  }
  template <class Data>
  void send(Data&& data, int to, CallOptions how = {}) {
    const auto all = detail::elements<detail::Use::read, Data>(data);
    send(all.data, all.count, all.type, to, how);
  }
  template <class Data>
  void recv(Data&& data, int from, CallOptions how = {}) {
    const auto all = written<Data>(data);
    recv(all.data, all.count, all.type, from, how);
  }
  /// Both concurrently, so a ring of ranks that all call it can't deadlock.
  template <class Send, class Recv>
  void sendrecv(Send&& send, int to, Recv&& recv, int from, CallOptions how = {}) {
    const auto data = detail::elements<detail::Use::read, Send>(send);
    const auto into = written<Recv>(recv);
    sendrecv(Message::send(data.data, data.count, data.type, to),
             Message::recv(into.data, into.count, into.type, from), how);
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
  void scatter_v(const void* send, void* recv, std::span<const std::size_t> counts, DType type,
                 int root, CallOptions how = {});
  void reduce_scatter(const void* send, void* recv, std::size_t count, DType type, ReduceOp op,
                      CallOptions how = {});  ///< count: of what a rank receives
  void reduce_scatter_v(const void* send, void* recv, std::span<const std::size_t> counts,
                        DType type, ReduceOp op, CallOptions how = {});
  void all_to_all(const void* send, void* recv, std::size_t count, DType type,
                  CallOptions how = {});  ///< count: for each peer
  void all_to_all_v(const void* send, std::span<const std::size_t> send_counts, void* recv,
                    std::span<const std::size_t> recv_counts, DType type, CallOptions how = {});
  void barrier(CallOptions how = {});
  /// Point-to-point messages; those of a pair stay in order. A blocking send of more than 15 KiB
  /// (on cpu, including 32 bytes per message) may wait until it is received: a ring of ranks that
  /// all send before they receive works with less and may time out with more. sendrecv, batch and
  /// the _async forms have no such limit.
  void send(const void* data, std::size_t count, DType type, int to, CallOptions how = {});
  void recv(void* data, std::size_t count, DType type, int from, CallOptions how = {});
  void sendrecv(const Message& send, const Message& recv, CallOptions how = {});
  /// Runs messages concurrently, so that none waits for another, in whatever order the ranks list
  /// theirs. nccl: one launch (ncclGroupStart … End), device memory only. As
  /// torch.distributed.batch_isend_irecv.
  void batch(const std::vector<Message>& messages, CallOptions how = {});
  [[nodiscard]] std::vector<Work> batch_async(const std::vector<Message>& messages,
                                              CallOptions how = {});
  /// Launches the calls that `body` makes on this group as one, which on nccl saves most of the
  /// cost of many small ones; on cpu they are carried out one by one. They use device memory and
  /// the same stream; no barrier, objects or split. As they may run at the same time, what one of
  /// them writes no other one may use: refused (invalid_argument), also on cpu. Handles returned by
  /// _async forms in it can be waited for afterwards.
  void coalesce(const std::function<void()>& body);

  // -- forms that return a handle; buffers belong to the group until it is done --
  template <class Data>
  Work all_reduce_async(Data&& data, ReduceOp op = ReduceOp::sum, CallOptions how = {}) {
    const auto all = kept<Data>(data);
    return all_reduce_async(all.data, all.data, all.count, all.type, op, how);
  }
  template <class Data>
  Work reduce_async(Data&& data, ReduceOp op, int root, CallOptions how = {}) {
    const auto all = kept<Data>(data);
    return reduce_async(all.data, all.data, all.count, all.type, op, root, how);
  }
  template <class Data>
  Work broadcast_async(Data&& data, int root, CallOptions how = {}) {
    const auto all = kept<Data>(data);
    return broadcast_async(all.data, all.count, all.type, root, how);
  }
  template <class Send, class Recv>
  Work all_gather_async(Send&& send, Recv&& recv, CallOptions how = {}) {
    const auto both = kept<Send, Recv>(send, recv);
    require_parts("all_gather: recv", both.to_count, "send", both.from_count);
    return all_gather_async(both.from, both.to, both.from_count, both.type, how);
  }
  template <class Send, class Recv>
  Work all_gather_v_async(Send&& send, Recv&& recv, std::span<const std::size_t> counts,
                          CallOptions how = {}) {
    const auto both = kept<Send, Recv>(send, recv);
    require_counts("all_gather_v: recv", both.to_count, "send", both.from_count, counts);
    return all_gather_v_async(both.from, both.to, counts, both.type, how);
  }
  template <class Send, class Recv>
  Work gather_async(Send&& send, Recv&& recv, int root, CallOptions how = {}) {
    const auto both = kept<Send, Recv>(send, recv);
    if (rank() == root) require_parts("gather: recv", both.to_count, "send", both.from_count);
    return gather_async(both.from, both.to, both.from_count, both.type, root, how);
  }
  template <class Send, class Recv>
  Work gather_v_async(Send&& send, Recv&& recv, std::span<const std::size_t> counts, int root,
                      CallOptions how = {}) {
    const auto both = kept<Send, Recv>(send, recv);
    require_counts("gather_v: recv", rank() == root ? both.to_count : kNotLookedAt, "send",
                   both.from_count, counts);
    return gather_v_async(both.from, both.to, counts, both.type, root, how);
  }
  template <class Send, class Recv>
  Work scatter_async(Send&& send, Recv&& recv, int root, CallOptions how = {}) {
    const auto both = kept<Send, Recv>(send, recv);
    if (rank() == root) require_parts("scatter: send", both.from_count, "recv", both.to_count);
    return scatter_async(both.from, both.to, both.to_count, both.type, root, how);
  }
  template <class Send, class Recv>
  Work scatter_v_async(Send&& send, Recv&& recv, std::span<const std::size_t> counts, int root,
                       CallOptions how = {}) {
    const auto both = kept<Send, Recv>(send, recv);
    require_counts("scatter_v: send", rank() == root ? both.from_count : kNotLookedAt, "recv",
                   both.to_count, counts);
    return scatter_v_async(both.from, both.to, counts, both.type, root, how);
  }
  template <class Send, class Recv>
  Work reduce_scatter_async(Send&& send, Recv&& recv, ReduceOp op = ReduceOp::sum,
                            CallOptions how = {}) {
    const auto both = kept<Send, Recv>(send, recv);
    require_parts("reduce_scatter: send", both.from_count, "recv", both.to_count);
    return reduce_scatter_async(both.from, both.to, both.to_count, both.type, op, how);
  }
  template <class Send, class Recv>
  Work reduce_scatter_v_async(Send&& send, Recv&& recv, std::span<const std::size_t> counts,
                              ReduceOp op = ReduceOp::sum, CallOptions how = {}) {
    const auto both = kept<Send, Recv>(send, recv);
    require_counts("reduce_scatter_v: send", both.from_count, "recv", both.to_count, counts);
    return reduce_scatter_v_async(both.from, both.to, counts, both.type, op, how);
  }
  template <class Send, class Recv>
  Work all_to_all_async(Send&& send, Recv&& recv, CallOptions how = {}) {
    const auto both = kept<Send, Recv>(send, recv);
    return all_to_all_async(both.from, both.to, share_of(both.from_count, both.to_count), both.type,
                            how);
  }
  template <class Send, class Recv>
  Work all_to_all_v_async(Send&& send, std::span<const std::size_t> send_counts, Recv&& recv,
                          std::span<const std::size_t> recv_counts, CallOptions how = {}) {
    const auto both = kept<Send, Recv>(send, recv);
    require_sum("all_to_all_v: send", both.from_count, send_counts);
    require_sum("all_to_all_v: recv", both.to_count, recv_counts);
    return all_to_all_v_async(both.from, send_counts, both.to, recv_counts, both.type, how);
  }
  template <class Data>
  Work send_async(Data&& data, int to, CallOptions how = {}) {
    const auto all = detail::elements<detail::Use::read_later, Data>(data);
    return send_async(all.data, all.count, all.type, to, how);
  }
  template <class Data>
  Work recv_async(Data&& data, int from, CallOptions how = {}) {
    const auto all = kept<Data>(data);
    return recv_async(all.data, all.count, all.type, from, how);
  }

  Work all_reduce_async(const void* send, void* recv, std::size_t count, DType type,
                        ReduceOp op = ReduceOp::sum, CallOptions how = {});
  Work reduce_async(const void* send, void* recv, std::size_t count, DType type, ReduceOp op,
                    int root, CallOptions how = {});
  Work broadcast_async(void* data, std::size_t count, DType type, int root, CallOptions how = {});
  Work all_gather_async(const void* send, void* recv, std::size_t count, DType type,
                        CallOptions how = {});
  Work all_gather_v_async(const void* send, void* recv, std::span<const std::size_t> counts,
                          DType type,
                          CallOptions how = {});  ///< counts are copied, in all of these
  Work gather_async(const void* send, void* recv, std::size_t count, DType type, int root,
                    CallOptions how = {});
  Work gather_v_async(const void* send, void* recv, std::span<const std::size_t> counts, DType type,
                      int root, CallOptions how = {});
  Work scatter_async(const void* send, void* recv, std::size_t count, DType type, int root,
                     CallOptions how = {});
  Work scatter_v_async(const void* send, void* recv, std::span<const std::size_t> counts,
                       DType type, int root, CallOptions how = {});
  Work reduce_scatter_async(const void* send, void* recv, std::size_t count, DType type,
                            ReduceOp op, CallOptions how = {});
  Work reduce_scatter_v_async(const void* send, void* recv, std::span<const std::size_t> counts,
                              DType type, ReduceOp op, CallOptions how = {});
  Work all_to_all_async(const void* send, void* recv, std::size_t count, DType type,
                        CallOptions how = {});
  Work all_to_all_v_async(const void* send, std::span<const std::size_t> send_counts, void* recv,
                          std::span<const std::size_t> recv_counts, DType type,
                          CallOptions how = {});
  Work barrier_async(CallOptions how = {});
  Work send_async(const void* data, std::size_t count, DType type, int to, CallOptions how = {});
  Work recv_async(void* data, std::size_t count, DType type, int from, CallOptions how = {});

  // -- objects: strings of any bytes and any length (JSON: acc/json.hpp). The time-out applies to
  // each of the two underlying calls --
  [[nodiscard]] std::vector<std::string> all_gather_object(std::string_view mine,
                                                           CallOptions how = {});
  /// Empty on all ranks but root.
  [[nodiscard]] std::vector<std::string> gather_object(std::string_view mine, int root,
                                                       CallOptions how = {});
  /// @return root's, on every rank.
  [[nodiscard]] std::string broadcast_object(std::string_view roots, int root,
                                             CallOptions how = {});
  /// @return this rank's element of `roots` (one per rank, read on root only).
  [[nodiscard]] std::string scatter_object(std::span<const std::string> roots, int root,
                                           CallOptions how = {});

  /// Groups of the ranks with the same `color`, in the order of (key, rank), as MPI_Comm_split.
  /// Collective. color < 0: no group; returns an empty one. The time-out applies to the exchange,
  /// and then to joining the new group (default: GroupOptions::init_timeout).
  [[nodiscard]] ProcessGroup split(int color, int key, std::string name = {}, CallOptions how = {});
  /// The group of these ranks, in this order; empty on the others. Collective over all.
  [[nodiscard]] ProcessGroup sub_group(std::span<const int> ranks, std::string name = {},
                                       CallOptions how = {});

  /// Memory for calls without staging copies (cpu: shared between the node's ranks; nccl:
  /// registered). Collective, same size on every rank.
  [[nodiscard]] SharedBuffer allocate_shared(std::size_t bytes, CallOptions how = {});

  /// Breaks the group and notifies the peers: every waiter wakes within 10 ms with `aborted`. Any
  /// thread; idempotent.
  void abort(std::string_view why = "abort() was called") noexcept;

  /// The last calls as JSON lines, newest last (the flight recorder); for bug reports.
  [[nodiscard]] std::string flight_record() const;

  [[nodiscard]] Group& impl() const;  ///< for the other parts of the runtime

 private:
  static constexpr std::size_t kNotLookedAt = SIZE_MAX;
  template <class Data>
  static detail::Elements written(std::remove_reference_t<Data>& data) {
    return detail::elements<detail::Use::write, Data>(data);
  }
  template <class Data>
  static detail::Elements kept(std::remove_reference_t<Data>& data) {
    return detail::elements<detail::Use::write_later, Data>(data);
  }
  template <class Send, class Recv>
  static detail::Pair pair(std::remove_reference_t<Send>& send,
                           std::remove_reference_t<Recv>& recv) {
    return detail::pair<false, Send, Recv>(send, recv);
  }
  template <class Send, class Recv>
  static detail::Pair kept(std::remove_reference_t<Send>& send,
                           std::remove_reference_t<Recv>& recv) {
    return detail::pair<true, Send, Recv>(send, recv);
  }
  void require_parts(std::string_view whole_name, std::size_t whole, std::string_view part_name,
                     std::size_t part) const;
  void require_counts(std::string_view whole_name, std::size_t whole, std::string_view part_name,
                      std::size_t part, std::span<const std::size_t> counts) const;
  void require_sum(std::string_view name, std::size_t whole,
                   std::span<const std::size_t> counts) const;
  [[nodiscard]] std::size_t share_of(std::size_t send, std::size_t recv) const;
  std::shared_ptr<Group> group_;
};

}  // namespace acc::runtime

namespace acc {
using runtime::Message;
using runtime::ProcessGroup;
using runtime::ReduceOp;
}  // namespace acc
