#include "runtime/group/arguments.hpp"
#include "runtime/group/group.hpp"

#include <acc/process_group.hpp>
#include <utility>

namespace acc::runtime {

namespace {

Call call_of(Operation operation, const void* send, void* recv, std::size_t count, DType type) {
  Call call;
  call.what.operation = operation;
  call.what.count = count;
  call.what.dtype = type;
  call.send = send;
  call.recv = recv;
  return call;
}

Call rooted(Call call, int root) {
  call.what.root = root;
  return call;
}

Call reducing(Call call, ReduceOp op) {
  call.what.reduce = op;
  return call;
}

Call with_peer(Call call, int peer) {
  call.peer = peer;
  return call;
}

Call with_counts(Call call, std::span<const std::size_t> counts) {
  call.counts = counts;
  for (const auto count : counts) call.what.count += count;
  call.what.digest = digest_of(counts);
  return call;
}

}  // namespace

Group& ProcessGroup::impl() const {
  if (!group_)
    throw Error{ErrorCode::invalid_argument,
                "an empty ProcessGroup was used: this rank is in no such group"};
  return *group_;
}

int ProcessGroup::rank() const { return impl().facts().rank; }
int ProcessGroup::size() const { return impl().facts().size; }
int ProcessGroup::local_rank() const { return impl().facts().local_rank; }
int ProcessGroup::local_size() const { return impl().facts().local_size; }
const std::string& ProcessGroup::name() const { return impl().facts().name; }
std::string_view ProcessGroup::backend() const { return impl().backend().name(); }
Device ProcessGroup::device() const { return impl().backend().device(); }
bool ProcessGroup::broken() const { return impl().broken(); }

void ProcessGroup::require_parts(std::string_view whole_name, std::size_t whole,
                                 std::string_view part_name, std::size_t part) const {
  const auto ranks = static_cast<std::size_t>(size());
  if (whole % ranks == 0 && whole / ranks == part) return;  // part * ranks might overflow
  throw Error{ErrorCode::invalid_argument,
              std::string{whole_name} + " has " + std::to_string(whole) + " elements, where " +
                  std::string{part_name} + "'s " + std::to_string(part) + " from each of " +
                  std::to_string(ranks) + " ranks are needed (group '" + name() + "')"};
}

// ---- blocking forms ----

void ProcessGroup::all_reduce(const void* send, void* recv, std::size_t count, DType type,
                              ReduceOp op, CallOptions how) {
  impl().run(reducing(call_of(Operation::all_reduce, send, recv, count, type), op), how);
}
void ProcessGroup::reduce(const void* send, void* recv, std::size_t count, DType type, ReduceOp op,
                          int root, CallOptions how) {
  impl().run(rooted(reducing(call_of(Operation::reduce, send, recv, count, type), op), root), how);
}
void ProcessGroup::broadcast(void* data, std::size_t count, DType type, int root, CallOptions how) {
  impl().run(rooted(call_of(Operation::broadcast, data, data, count, type), root), how);
}
void ProcessGroup::all_gather(const void* send, void* recv, std::size_t count, DType type,
                              CallOptions how) {
  impl().run(call_of(Operation::all_gather, send, recv, count, type), how);
}
void ProcessGroup::all_gather_v(const void* send, void* recv, std::span<const std::size_t> counts,
                                DType type, CallOptions how) {
  impl().run(with_counts(call_of(Operation::all_gather, send, recv, 0, type), counts), how);
}
void ProcessGroup::gather(const void* send, void* recv, std::size_t count, DType type, int root,
                          CallOptions how) {
  impl().run(rooted(call_of(Operation::gather, send, recv, count, type), root), how);
}
void ProcessGroup::gather_v(const void* send, void* recv, std::span<const std::size_t> counts,
                            DType type, int root, CallOptions how) {
  impl().run(rooted(with_counts(call_of(Operation::gather, send, recv, 0, type), counts), root),
             how);
}
void ProcessGroup::scatter(const void* send, void* recv, std::size_t count, DType type, int root,
                           CallOptions how) {
  impl().run(rooted(call_of(Operation::scatter, send, recv, count, type), root), how);
}
void ProcessGroup::reduce_scatter(const void* send, void* recv, std::size_t count, DType type,
                                  ReduceOp op, CallOptions how) {
  impl().run(reducing(call_of(Operation::reduce_scatter, send, recv, count, type), op), how);
}
void ProcessGroup::all_to_all(const void* send, void* recv, std::size_t count, DType type,
                              CallOptions how) {
  impl().run(call_of(Operation::all_to_all, send, recv, count, type), how);
}
void ProcessGroup::barrier(CallOptions how) {
  impl().run(call_of(Operation::barrier, nullptr, nullptr, 0, DType::u8), how);
}
void ProcessGroup::send(const void* data, std::size_t count, DType type, int to, CallOptions how) {
  impl().run(with_peer(call_of(Operation::send, data, nullptr, count, type), to), how);
}
void ProcessGroup::recv(void* data, std::size_t count, DType type, int from, CallOptions how) {
  impl().run(with_peer(call_of(Operation::recv, nullptr, data, count, type), from), how);
}

// ---- forms that return a handle ----

Work ProcessGroup::all_reduce_async(const void* send, void* recv, std::size_t count, DType type,
                                    ReduceOp op, CallOptions how) {
  return impl().start(reducing(call_of(Operation::all_reduce, send, recv, count, type), op), how);
}
Work ProcessGroup::reduce_async(const void* send, void* recv, std::size_t count, DType type,
                                ReduceOp op, int root, CallOptions how) {
  return impl().start(
      rooted(reducing(call_of(Operation::reduce, send, recv, count, type), op), root), how);
}
Work ProcessGroup::broadcast_async(void* data, std::size_t count, DType type, int root,
                                   CallOptions how) {
  return impl().start(rooted(call_of(Operation::broadcast, data, data, count, type), root), how);
}
Work ProcessGroup::all_gather_async(const void* send, void* recv, std::size_t count, DType type,
                                    CallOptions how) {
  return impl().start(call_of(Operation::all_gather, send, recv, count, type), how);
}
Work ProcessGroup::gather_async(const void* send, void* recv, std::size_t count, DType type,
                                int root, CallOptions how) {
  return impl().start(rooted(call_of(Operation::gather, send, recv, count, type), root), how);
}
Work ProcessGroup::scatter_async(const void* send, void* recv, std::size_t count, DType type,
                                 int root, CallOptions how) {
  return impl().start(rooted(call_of(Operation::scatter, send, recv, count, type), root), how);
}
Work ProcessGroup::reduce_scatter_async(const void* send, void* recv, std::size_t count, DType type,
                                        ReduceOp op, CallOptions how) {
  return impl().start(reducing(call_of(Operation::reduce_scatter, send, recv, count, type), op),
                      how);
}
Work ProcessGroup::all_to_all_async(const void* send, void* recv, std::size_t count, DType type,
                                    CallOptions how) {
  return impl().start(call_of(Operation::all_to_all, send, recv, count, type), how);
}
Work ProcessGroup::barrier_async(CallOptions how) {
  return impl().start(call_of(Operation::barrier, nullptr, nullptr, 0, DType::u8), how);
}
Work ProcessGroup::send_async(const void* data, std::size_t count, DType type, int to,
                              CallOptions how) {
  return impl().start(with_peer(call_of(Operation::send, data, nullptr, count, type), to), how);
}
Work ProcessGroup::recv_async(void* data, std::size_t count, DType type, int from,
                              CallOptions how) {
  return impl().start(with_peer(call_of(Operation::recv, nullptr, data, count, type), from), how);
}

// ---- the rest ----

ProcessGroup ProcessGroup::split(int color, int key, std::string name) {
  return ProcessGroup{impl().split(color, key, std::move(name))};
}
ProcessGroup ProcessGroup::sub_group(std::span<const int> ranks, std::string name) {
  return ProcessGroup{impl().sub_group(ranks, std::move(name))};
}
SharedBuffer ProcessGroup::allocate_shared(std::size_t bytes) { return impl().allocate(bytes); }

void ProcessGroup::abort(std::string_view why) noexcept {
  if (group_) group_->abort(why);
}
std::string ProcessGroup::flight_record() const { return impl().flight_record(); }

}  // namespace acc::runtime
