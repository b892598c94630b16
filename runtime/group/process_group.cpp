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

Call by_pairs(const void* send, std::span<const std::size_t> send_counts, void* recv,
              std::span<const std::size_t> recv_counts, DType type) {
  Call call = call_of(Operation::all_to_all, send, recv, 0, type);
  call.counts = send_counts;
  call.recv_counts = recv_counts;
  call.what.digest = 1;
  return call;
}

Call call_of(const Message& message) {
  return with_peer(
      message.sends ? call_of(Operation::send, message.data, nullptr, message.count, message.type)
                    : call_of(Operation::recv, nullptr, message.data, message.count, message.type),
      message.peer);
}

std::string elements_of(std::string_view name, std::size_t count) {
  return std::string{name} + " has " + std::to_string(count) + " elements";
}

}  // namespace

Group& ProcessGroup::impl() const {
  if (!group_)
    throw Error{ErrorCode::invalid_argument,
                "an empty ProcessGroup was used: this rank is in no such group"};
  return *group_;
}

Millis ProcessGroup::timeout() const { return impl().limit(); }
int ProcessGroup::rank() const { return impl().facts().rank; }
int ProcessGroup::size() const { return impl().facts().size; }
int ProcessGroup::local_rank() const { return impl().facts().local_rank; }
int ProcessGroup::local_size() const { return impl().facts().local_size; }
const std::string& ProcessGroup::name() const { return impl().facts().name; }
std::string_view ProcessGroup::backend() const { return impl().backend().name(); }
Device ProcessGroup::device() const { return impl().backend().device(); }
bool ProcessGroup::broken() const { return impl().broken(); }

detail::Pair detail::paired(const Elements& from, const Elements& to) {
  if (from.type != to.type)
    throw Error{ErrorCode::invalid_argument,
                "what is sent is " + std::string{to_string(from.type)} + ", what is received " +
                    std::string{to_string(to.type)}};
  return {from.data, from.count, to.data, to.count, from.type};
}

void ProcessGroup::require_parts(std::string_view whole_name, std::size_t whole,
                                 std::string_view part_name, std::size_t part) const {
  const auto ranks = static_cast<std::size_t>(size());
  if (whole % ranks == 0 && whole / ranks == part) return;  // part * ranks might overflow
  throw Error{ErrorCode::invalid_argument,
              elements_of(whole_name, whole) + ", where " + std::string{part_name} + "'s " +
                  std::to_string(part) + " from each of " + std::to_string(ranks) +
                  " ranks are needed (group '" + name() + "')"};
}

void ProcessGroup::require_sum(std::string_view what, std::size_t whole,
                               std::span<const std::size_t> counts) const {
  if (counts.size() != static_cast<std::size_t>(size()))
    throw Error{ErrorCode::invalid_argument,
                std::string{what} + ": " + std::to_string(counts.size()) + " counts for " +
                    std::to_string(size()) + " ranks (group '" + name() + "')"};
  std::size_t sum = 0;
  for (const std::size_t count : counts) sum += count;
  if (sum == whole || whole == kNotLookedAt) return;
  throw Error{ErrorCode::invalid_argument, elements_of(what, whole) +
                                               ", where its counts add up to " +
                                               std::to_string(sum) + " (group '" + name() + "')"};
}

void ProcessGroup::require_counts(std::string_view whole_name, std::size_t whole,
                                  std::string_view part_name, std::size_t part,
                                  std::span<const std::size_t> counts) const {
  require_sum(whole_name, whole, counts);
  const std::size_t own = counts[static_cast<std::size_t>(rank())];
  if (part == own) return;
  throw Error{ErrorCode::invalid_argument,
              elements_of(part_name, part) + ", where the count of rank " + std::to_string(rank()) +
                  " is " + std::to_string(own) + " (group '" + name() + "')"};
}

std::size_t ProcessGroup::share_of(std::size_t send, std::size_t recv) const {
  const auto ranks = static_cast<std::size_t>(size());
  if (send == recv && send % ranks == 0) return send / ranks;
  throw Error{ErrorCode::invalid_argument,
              "all_to_all: " + elements_of("send", send) + ", " + elements_of("recv", recv) +
                  ", where both need equally many for each of " + std::to_string(ranks) +
                  " ranks (group '" + name() + "')"};
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
void ProcessGroup::scatter_v(const void* send, void* recv, std::span<const std::size_t> counts,
                             DType type, int root, CallOptions how) {
  impl().run(rooted(with_counts(call_of(Operation::scatter, send, recv, 0, type), counts), root),
             how);
}
void ProcessGroup::reduce_scatter(const void* send, void* recv, std::size_t count, DType type,
                                  ReduceOp op, CallOptions how) {
  impl().run(reducing(call_of(Operation::reduce_scatter, send, recv, count, type), op), how);
}
void ProcessGroup::reduce_scatter_v(const void* send, void* recv,
                                    std::span<const std::size_t> counts, DType type, ReduceOp op,
                                    CallOptions how) {
  impl().run(
      reducing(with_counts(call_of(Operation::reduce_scatter, send, recv, 0, type), counts), op),
      how);
}
void ProcessGroup::all_to_all(const void* send, void* recv, std::size_t count, DType type,
                              CallOptions how) {
  impl().run(call_of(Operation::all_to_all, send, recv, count, type), how);
}
void ProcessGroup::all_to_all_v(const void* send, std::span<const std::size_t> send_counts,
                                void* recv, std::span<const std::size_t> recv_counts, DType type,
                                CallOptions how) {
  impl().run(by_pairs(send, send_counts, recv, recv_counts, type), how);
}
void ProcessGroup::barrier(CallOptions how) {
  impl().require_no_coalesce("barrier");
  impl().run(call_of(Operation::barrier, nullptr, nullptr, 0, DType::u8), how);
}
void ProcessGroup::send(const void* data, std::size_t count, DType type, int to, CallOptions how) {
  impl().run(with_peer(call_of(Operation::send, data, nullptr, count, type), to), how);
}
void ProcessGroup::recv(void* data, std::size_t count, DType type, int from, CallOptions how) {
  impl().run(with_peer(call_of(Operation::recv, nullptr, data, count, type), from), how);
}

void ProcessGroup::sendrecv(const Message& send, const Message& recv, CallOptions how) {
  batch({send, recv}, how);
}
void ProcessGroup::batch(const std::vector<Message>& messages, CallOptions how) {
  const auto works = batch_async(messages, how);
  if (!impl().asynchronous()) wait_all(works);
}

// ---- forms that return a handle ----

std::vector<Work> ProcessGroup::batch_async(const std::vector<Message>& messages, CallOptions how) {
  std::vector<Call> calls;
  for (const Message& message : messages) calls.push_back(call_of(message));
  return impl().start_messages(std::move(calls), how);
}
void ProcessGroup::coalesce(const std::function<void()>& body) { impl().coalesce(body); }

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
Work ProcessGroup::all_gather_v_async(const void* send, void* recv,
                                      std::span<const std::size_t> counts, DType type,
                                      CallOptions how) {
  return impl().start(with_counts(call_of(Operation::all_gather, send, recv, 0, type), counts),
                      how);
}
Work ProcessGroup::gather_async(const void* send, void* recv, std::size_t count, DType type,
                                int root, CallOptions how) {
  return impl().start(rooted(call_of(Operation::gather, send, recv, count, type), root), how);
}
Work ProcessGroup::gather_v_async(const void* send, void* recv, std::span<const std::size_t> counts,
                                  DType type, int root, CallOptions how) {
  return impl().start(
      rooted(with_counts(call_of(Operation::gather, send, recv, 0, type), counts), root), how);
}
Work ProcessGroup::scatter_v_async(const void* send, void* recv,
                                   std::span<const std::size_t> counts, DType type, int root,
                                   CallOptions how) {
  return impl().start(
      rooted(with_counts(call_of(Operation::scatter, send, recv, 0, type), counts), root), how);
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
Work ProcessGroup::reduce_scatter_v_async(const void* send, void* recv,
                                          std::span<const std::size_t> counts, DType type,
                                          ReduceOp op, CallOptions how) {
  return impl().start(
      reducing(with_counts(call_of(Operation::reduce_scatter, send, recv, 0, type), counts), op),
      how);
}
Work ProcessGroup::all_to_all_v_async(const void* send, std::span<const std::size_t> send_counts,
                                      void* recv, std::span<const std::size_t> recv_counts,
                                      DType type, CallOptions how) {
  return impl().start(by_pairs(send, send_counts, recv, recv_counts, type), how);
}
Work ProcessGroup::all_to_all_async(const void* send, void* recv, std::size_t count, DType type,
                                    CallOptions how) {
  return impl().start(call_of(Operation::all_to_all, send, recv, count, type), how);
}
Work ProcessGroup::barrier_async(CallOptions how) {
  impl().require_no_coalesce("barrier_async");
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

ProcessGroup ProcessGroup::split(int color, int key, std::string name, CallOptions how) {
  return ProcessGroup{impl().split(color, key, std::move(name), how)};
}
ProcessGroup ProcessGroup::sub_group(std::span<const int> ranks, std::string name,
                                     CallOptions how) {
  return ProcessGroup{impl().sub_group(ranks, std::move(name), how)};
}
SharedBuffer ProcessGroup::allocate_shared(std::size_t bytes, CallOptions how) {
  return impl().allocate(bytes, how);
}

void ProcessGroup::abort(std::string_view why) noexcept {
  if (group_) group_->abort(why);
}
std::string ProcessGroup::flight_record() const { return impl().flight_record(); }

}  // namespace acc::runtime
