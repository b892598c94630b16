#include "runtime/capi/handles.hpp"

#include <span>

using namespace acc::capi;
using acc::runtime::ProcessGroup;

namespace {

template <class Body>
acc_status on(acc_comm* comm, Body&& body) noexcept {
  return guarded([&] { body(given(comm, "comm").group); });
}

template <class Body>
acc_status begun(acc_comm* comm, acc_work** work, Body&& body) noexcept {
  // made() catches what it throws.  NOLINTNEXTLINE(bugprone-unhandled-exception-at-new)
  return made(work, [&] { return new acc_work{body(given(comm, "comm").group)}; });
}

std::span<const std::size_t> counts_of(const ProcessGroup& group, const size_t* counts) {
  return {&given(counts, "counts"), static_cast<std::size_t>(group.size())};
}

}  // namespace

extern "C" {

// ---- blocking on cpu, enqueued on nccl ----

acc_status acc_all_reduce(acc_comm* comm, const void* send, void* recv, size_t count,
                          acc_dtype dtype, acc_op op, const acc_call* how) {
  return on(comm, [&](ProcessGroup& group) {
    group.all_reduce(send, recv, count, to_dtype(dtype), to_op(op), to_call(how));
  });
}

acc_status acc_reduce(acc_comm* comm, const void* send, void* recv, size_t count, acc_dtype dtype,
                      acc_op op, int32_t root, const acc_call* how) {
  return on(comm, [&](ProcessGroup& group) {
    group.reduce(send, recv, count, to_dtype(dtype), to_op(op), root, to_call(how));
  });
}

acc_status acc_broadcast(acc_comm* comm, void* data, size_t count, acc_dtype dtype, int32_t root,
                         const acc_call* how) {
  return on(comm, [&](ProcessGroup& group) {
    group.broadcast(data, count, to_dtype(dtype), root, to_call(how));
  });
}

acc_status acc_all_gather(acc_comm* comm, const void* send, void* recv, size_t count,
                          acc_dtype dtype, const acc_call* how) {
  return on(comm, [&](ProcessGroup& group) {
    group.all_gather(send, recv, count, to_dtype(dtype), to_call(how));
  });
}

acc_status acc_all_gather_v(acc_comm* comm, const void* send, void* recv, const size_t* counts,
                            acc_dtype dtype, const acc_call* how) {
  return on(comm, [&](ProcessGroup& group) {
    group.all_gather_v(send, recv, counts_of(group, counts), to_dtype(dtype), to_call(how));
  });
}

acc_status acc_gather(acc_comm* comm, const void* send, void* recv, size_t count, acc_dtype dtype,
                      int32_t root, const acc_call* how) {
  return on(comm, [&](ProcessGroup& group) {
    group.gather(send, recv, count, to_dtype(dtype), root, to_call(how));
  });
}

acc_status acc_gather_v(acc_comm* comm, const void* send, void* recv, const size_t* counts,
                        acc_dtype dtype, int32_t root, const acc_call* how) {
  return on(comm, [&](ProcessGroup& group) {
    group.gather_v(send, recv, counts_of(group, counts), to_dtype(dtype), root, to_call(how));
  });
}

acc_status acc_scatter(acc_comm* comm, const void* send, void* recv, size_t count, acc_dtype dtype,
                       int32_t root, const acc_call* how) {
  return on(comm, [&](ProcessGroup& group) {
    group.scatter(send, recv, count, to_dtype(dtype), root, to_call(how));
  });
}

acc_status acc_scatter_v(acc_comm* comm, const void* send, void* recv, const size_t* counts,
                         acc_dtype dtype, int32_t root, const acc_call* how) {
  return on(comm, [&](ProcessGroup& group) {
    group.scatter_v(send, recv, counts_of(group, counts), to_dtype(dtype), root, to_call(how));
  });
}

acc_status acc_reduce_scatter(acc_comm* comm, const void* send, void* recv, size_t count,
                              acc_dtype dtype, acc_op op, const acc_call* how) {
  return on(comm, [&](ProcessGroup& group) {
    group.reduce_scatter(send, recv, count, to_dtype(dtype), to_op(op), to_call(how));
  });
}

acc_status acc_reduce_scatter_v(acc_comm* comm, const void* send, void* recv, const size_t* counts,
                                acc_dtype dtype, acc_op op, const acc_call* how) {
  return on(comm, [&](ProcessGroup& group) {
    group.reduce_scatter_v(send, recv, counts_of(group, counts), to_dtype(dtype), to_op(op),
                           to_call(how));
  });
}

acc_status acc_all_to_all(acc_comm* comm, const void* send, void* recv, size_t count,
                          acc_dtype dtype, const acc_call* how) {
  return on(comm, [&](ProcessGroup& group) {
    group.all_to_all(send, recv, count, to_dtype(dtype), to_call(how));
  });
}

acc_status acc_all_to_all_v(acc_comm* comm, const void* send, const size_t* send_counts, void* recv,
                            const size_t* recv_counts, acc_dtype dtype, const acc_call* how) {
  return on(comm, [&](ProcessGroup& group) {
    group.all_to_all_v(send, counts_of(group, send_counts), recv, counts_of(group, recv_counts),
                       to_dtype(dtype), to_call(how));
  });
}

acc_status acc_barrier(acc_comm* comm, const acc_call* how) {
  return on(comm, [&](ProcessGroup& group) { group.barrier(to_call(how)); });
}

acc_status acc_send(acc_comm* comm, const void* data, size_t count, acc_dtype dtype, int32_t to,
                    const acc_call* how) {
  return on(comm, [&](ProcessGroup& group) {
    group.send(data, count, to_dtype(dtype), to, to_call(how));
  });
}

acc_status acc_recv(acc_comm* comm, void* data, size_t count, acc_dtype dtype, int32_t from,
                    const acc_call* how) {
  return on(comm, [&](ProcessGroup& group) {
    group.recv(data, count, to_dtype(dtype), from, to_call(how));
  });
}

acc_status acc_sendrecv(acc_comm* comm, const void* send, size_t send_count, int32_t to, void* recv,
                        size_t recv_count, int32_t from, acc_dtype dtype, const acc_call* how) {
  return on(comm, [&](ProcessGroup& group) {
    using acc::runtime::Message;
    group.sendrecv(Message::send(send, send_count, to_dtype(dtype), to),
                   Message::recv(recv, recv_count, to_dtype(dtype), from), to_call(how));
  });
}

// ---- begun ----

acc_status acc_all_reduce_async(acc_comm* comm, const void* send, void* recv, size_t count,
                                acc_dtype dtype, acc_op op, const acc_call* how, acc_work** work) {
  return begun(comm, work, [&](ProcessGroup& group) {
    return group.all_reduce_async(send, recv, count, to_dtype(dtype), to_op(op), to_call(how));
  });
}

acc_status acc_reduce_async(acc_comm* comm, const void* send, void* recv, size_t count,
                            acc_dtype dtype, acc_op op, int32_t root, const acc_call* how,
                            acc_work** work) {
  return begun(comm, work, [&](ProcessGroup& group) {
    return group.reduce_async(send, recv, count, to_dtype(dtype), to_op(op), root, to_call(how));
  });
}

acc_status acc_broadcast_async(acc_comm* comm, void* data, size_t count, acc_dtype dtype,
                               int32_t root, const acc_call* how, acc_work** work) {
  return begun(comm, work, [&](ProcessGroup& group) {
    return group.broadcast_async(data, count, to_dtype(dtype), root, to_call(how));
  });
}

acc_status acc_all_gather_async(acc_comm* comm, const void* send, void* recv, size_t count,
                                acc_dtype dtype, const acc_call* how, acc_work** work) {
  return begun(comm, work, [&](ProcessGroup& group) {
    return group.all_gather_async(send, recv, count, to_dtype(dtype), to_call(how));
  });
}

acc_status acc_gather_async(acc_comm* comm, const void* send, void* recv, size_t count,
                            acc_dtype dtype, int32_t root, const acc_call* how, acc_work** work) {
  return begun(comm, work, [&](ProcessGroup& group) {
    return group.gather_async(send, recv, count, to_dtype(dtype), root, to_call(how));
  });
}

acc_status acc_scatter_async(acc_comm* comm, const void* send, void* recv, size_t count,
                             acc_dtype dtype, int32_t root, const acc_call* how, acc_work** work) {
  return begun(comm, work, [&](ProcessGroup& group) {
    return group.scatter_async(send, recv, count, to_dtype(dtype), root, to_call(how));
  });
}

acc_status acc_reduce_scatter_async(acc_comm* comm, const void* send, void* recv, size_t count,
                                    acc_dtype dtype, acc_op op, const acc_call* how,
                                    acc_work** work) {
  return begun(comm, work, [&](ProcessGroup& group) {
    return group.reduce_scatter_async(send, recv, count, to_dtype(dtype), to_op(op), to_call(how));
  });
}

acc_status acc_all_to_all_async(acc_comm* comm, const void* send, void* recv, size_t count,
                                acc_dtype dtype, const acc_call* how, acc_work** work) {
  return begun(comm, work, [&](ProcessGroup& group) {
    return group.all_to_all_async(send, recv, count, to_dtype(dtype), to_call(how));
  });
}

acc_status acc_barrier_async(acc_comm* comm, const acc_call* how, acc_work** work) {
  return begun(comm, work, [&](ProcessGroup& group) { return group.barrier_async(to_call(how)); });
}

acc_status acc_send_async(acc_comm* comm, const void* data, size_t count, acc_dtype dtype,
                          int32_t to, const acc_call* how, acc_work** work) {
  return begun(comm, work, [&](ProcessGroup& group) {
    return group.send_async(data, count, to_dtype(dtype), to, to_call(how));
  });
}

acc_status acc_recv_async(acc_comm* comm, void* data, size_t count, acc_dtype dtype, int32_t from,
                          const acc_call* how, acc_work** work) {
  return begun(comm, work, [&](ProcessGroup& group) {
    return group.recv_async(data, count, to_dtype(dtype), from, to_call(how));
  });
}

acc_status acc_work_wait(acc_work* work, int64_t timeout_ms) {
  return guarded([&] {
    const auto& handle = given(work, "work").work;
    if (timeout_ms < ACC_DEFAULT) refuse("timeout_ms is negative");
    if (timeout_ms == ACC_DEFAULT)
      handle.wait();
    else
      handle.wait(acc::runtime::Millis{timeout_ms});
  });
}

acc_status acc_work_done(acc_work* work, int32_t* done) {
  return guarded([&] { given(done, "done") = given(work, "work").work.done() ? 1 : 0; });
}

void acc_work_free(acc_work* work) { delete work; }

}  // extern "C"
