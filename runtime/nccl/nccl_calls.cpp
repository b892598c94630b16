#include "runtime/nccl/nccl_calls.hpp"

#include "runtime/nccl/cuda_library.hpp"

#include <numeric>

namespace acc::runtime::nccl {
namespace {

/// Offsets of the ranks' parts in a buffer of all, in elements.
class Parts {
 public:
  Parts(const Call& call, int size) : Parts{call, call.counts, size} {}
  /// @param counts  of the side in question
  Parts(const Call& call, std::span<const std::size_t> counts, int size)
      : call_{call}, counts_{counts}, width_{size_of(call.what.dtype)} {
    if (counts.empty()) return;
    starts_.resize(static_cast<std::size_t>(size));
    std::exclusive_scan(counts.begin(), counts.end(), starts_.begin(), std::size_t{0});
  }
  [[nodiscard]] std::size_t count(int rank) const {
    return counts_.empty() ? call_.what.count : counts_[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] std::size_t bytes(int rank) const { return count(rank) * width_; }
  [[nodiscard]] std::size_t offset(int rank) const {
    const auto at = static_cast<std::size_t>(rank);
    return width_ * (counts_.empty() ? at * call_.what.count : starts_[at]);
  }
  [[nodiscard]] const std::byte* in_send(int rank) const {
    return static_cast<const std::byte*>(call_.send) + offset(rank);
  }
  [[nodiscard]] std::byte* in_recv(int rank) const {
    return static_cast<std::byte*>(call_.recv) + offset(rank);
  }

 private:
  const Call& call_;
  std::span<const std::size_t> counts_;
  std::size_t width_;
  std::vector<std::size_t> starts_;
};

int type_of(const Call& call) { return static_cast<int>(call.what.dtype); }
int op_of(const Call& call) { return static_cast<int>(call.what.reduce); }

/// Copies this rank's own part locally.
void keep(const Lane& lane, void* to, const void* from, std::size_t bytes) {
  if (bytes == 0 || to == from) return;
  cuda::check(lane.cuda, "cudaMemcpyAsync",
              lane.cuda.memcpy_async(to, from, bytes, cuda::kCopyByAddress, lane.stream));
}

Status send_to(const Lane& lane, const Call& call, int peer, const void* from, std::size_t count) {
  if (count == 0) return Status::success;
  return lane.nccl.send(from, count, type_of(call), peer, lane.comm, lane.stream);
}
Status recv_from(const Lane& lane, const Call& call, int peer, void* to, std::size_t count) {
  if (count == 0) return Status::success;
  return lane.nccl.recv(to, count, type_of(call), peer, lane.comm, lane.stream);
}

/// Sends the same part to all and receives theirs, each with its own size.
Status all_gather_v(const Lane& lane, const Call& call) {
  const Parts parts{call, lane.size};
  keep(lane, parts.in_recv(lane.rank), call.send, parts.bytes(lane.rank));
  GroupScope group{lane.nccl};
  for (int step = 1; step < lane.size; ++step) {
    // Each rank starts with another peer, so that no rank is first for all.
    const int to = (lane.rank + step) % lane.size;
    const int from = (lane.rank + lane.size - step) % lane.size;
    group.add([&] { return send_to(lane, call, to, call.send, parts.count(lane.rank)); });
    group.add([&] { return recv_from(lane, call, from, parts.in_recv(from), parts.count(from)); });
  }
  return group.end();
}

Status gather(const Lane& lane, const Call& call) {
  const Parts parts{call, lane.size};
  const int root = call.what.root;
  if (lane.rank == root) keep(lane, parts.in_recv(root), call.send, parts.bytes(root));
  GroupScope group{lane.nccl};
  if (lane.rank != root) {
    group.add([&] { return send_to(lane, call, root, call.send, parts.count(lane.rank)); });
  } else {
    for (int peer = 0; peer < lane.size; ++peer) {
      if (peer == root) continue;
      group.add(
          [&] { return recv_from(lane, call, peer, parts.in_recv(peer), parts.count(peer)); });
    }
  }
  return group.end();
}

Status scatter(const Lane& lane, const Call& call) {
  const Parts parts{call, lane.size};
  const int root = call.what.root;
  if (lane.rank == root) keep(lane, call.recv, parts.in_send(root), parts.bytes(root));
  GroupScope group{lane.nccl};
  if (lane.rank != root) {
    group.add([&] { return recv_from(lane, call, root, call.recv, parts.count(lane.rank)); });
  } else {
    for (int peer = 0; peer < lane.size; ++peer) {
      if (peer == root) continue;
      group.add([&] { return send_to(lane, call, peer, parts.in_send(peer), parts.count(peer)); });
    }
  }
  return group.end();
}

Status all_to_all(const Lane& lane, const Call& call) {
  const Parts sent{call, lane.size};
  const Parts received{call, call.by_pairs() ? call.recv_counts : call.counts, lane.size};
  keep(lane, received.in_recv(lane.rank), sent.in_send(lane.rank), sent.bytes(lane.rank));
  GroupScope group{lane.nccl};
  for (int step = 1; step < lane.size; ++step) {
    const int to = (lane.rank + step) % lane.size;
    const int from = (lane.rank + lane.size - step) % lane.size;
    group.add([&] { return send_to(lane, call, to, sent.in_send(to), sent.count(to)); });
    group.add(
        [&] { return recv_from(lane, call, from, received.in_recv(from), received.count(from)); });
  }
  return group.end();
}

/// Reduces each rank's part to that rank, all concurrently.
Status reduce_scatter_v(const Lane& lane, const Call& call) {
  const Parts parts{call, lane.size};
  GroupScope group{lane.nccl};
  for (int root = 0; root < lane.size; ++root) {
    const auto* from = parts.in_send(root);
    // NCCL wants a receive buffer on every rank; it is written on root only.
    void* to = root == lane.rank ? call.recv : const_cast<std::byte*>(from);
    if (parts.count(root) == 0) continue;
    group.add([&] {
      return lane.nccl.reduce(from, to, parts.count(root), type_of(call), op_of(call), root,
                              lane.comm, lane.stream);
    });
  }
  return group.end();
}

/// NCCL wants a receive buffer on every rank, even where it isn't used.
void* recv_or_send(const Call& call) {
  return call.recv != nullptr ? call.recv : const_cast<void*>(call.send);
}

std::size_t sum_of(std::span<const std::size_t> counts) noexcept {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

}  // namespace

Status move(const Lane& lane, const Call& call) {
  const auto& [nccl, cuda, comm, stream, rank, size, token] = lane;
  const auto count = call.what.count;
  // No bytes: nothing is launched, on any rank. (A count of 0 is the same on all of them.)
  if (count == 0 && call.what.operation != Operation::barrier && !call.by_pairs())
    return Status::success;
  switch (call.what.operation) {
    case Operation::all_reduce:
      return nccl.all_reduce(call.send, call.recv, count, type_of(call), op_of(call), comm, stream);
    case Operation::reduce:
      return nccl.reduce(call.send, recv_or_send(call), count, type_of(call), op_of(call),
                         call.what.root, comm, stream);
    case Operation::broadcast:
      return nccl.broadcast(call.send != nullptr ? call.send : call.recv, recv_or_send(call), count,
                            type_of(call), call.what.root, comm, stream);
    case Operation::all_gather:
      if (!call.counts.empty()) return all_gather_v(lane, call);
      return nccl.all_gather(call.send, call.recv, count, type_of(call), comm, stream);
    case Operation::gather:
      return gather(lane, call);
    case Operation::scatter:
      return scatter(lane, call);
    case Operation::reduce_scatter:
      if (!call.counts.empty()) return reduce_scatter_v(lane, call);
      return nccl.reduce_scatter(call.send, call.recv, count, type_of(call), op_of(call), comm,
                                 stream);
    case Operation::all_to_all:
      return all_to_all(lane, call);
    case Operation::barrier:
      return nccl.all_reduce(token, token, 1, static_cast<int>(DType::i32),
                             static_cast<int>(ReduceOp::sum), comm, stream);
    case Operation::send:
      return nccl.send(call.send, count, type_of(call), call.peer, comm, stream);
    case Operation::recv:
      return nccl.recv(call.recv, count, type_of(call), call.peer, comm, stream);
    case Operation::none:
    case Operation::split:
    case Operation::allocate:
      return Status::success;
  }
  return Status::invalid_argument;
}

const char* name_of(Operation operation) noexcept {
  switch (operation) {
    case Operation::all_reduce:
    case Operation::barrier:
      return "ncclAllReduce";
    case Operation::reduce:
      return "ncclReduce";
    case Operation::broadcast:
      return "ncclBroadcast";
    case Operation::all_gather:
      return "ncclAllGather";
    case Operation::reduce_scatter:
      return "ncclReduceScatter";
    case Operation::send:
      return "ncclSend";
    case Operation::recv:
      return "ncclRecv";
    default:
      return "ncclGroupEnd";
  }
}

Extent extent(const Call& call, int rank, int size) noexcept {
  const auto width = size_of(call.what.dtype);
  const auto one = call.what.count * width;
  const auto all = one * static_cast<std::size_t>(size);
  const bool root = call.what.root == rank;
  const auto own = call.counts.empty() ? one : call.counts[static_cast<std::size_t>(rank)] * width;
  const auto whole = call.counts.empty() ? all : one;  // in the _v forms the count is the total
  switch (call.what.operation) {
    case Operation::all_reduce:
      return {one, one};
    case Operation::reduce:
      return {one, root ? one : 0};
    case Operation::broadcast:
      return {root ? one : 0, one};
    case Operation::all_gather:
      return {own, whole};
    case Operation::gather:
      return {own, root ? whole : 0};
    case Operation::scatter:
      return {root ? whole : 0, own};
    case Operation::reduce_scatter:
      return {whole, own};
    case Operation::all_to_all:
      if (call.by_pairs()) return {sum_of(call.counts) * width, sum_of(call.recv_counts) * width};
      return {all, all};
    case Operation::send:
      return {one, 0};
    case Operation::recv:
      return {0, one};
    default:
      return {};
  }
}

}  // namespace acc::runtime::nccl
