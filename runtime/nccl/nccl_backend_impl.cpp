#include "runtime/nccl/nccl_backend_impl.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <thread>

namespace acc::runtime::nccl {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kTokenBytes =
    256;  ///< so that what follows the token is aligned for any copy
/// How long a rank with a broken group waits until the cause is reported.
constexpr auto kForTelling = 1s;

/// A handle of one call.
class Handle final : public Pending {
 public:
  Handle(std::shared_ptr<NcclGroup> group, std::uint64_t ticket)
      : group_{std::move(group)}, ticket_{ticket} {}
  [[nodiscard]] bool done() override { return group_->done(ticket_); }
  void wait(std::optional<Millis> limit) override { group_->wait(ticket_, limit); }
  [[nodiscard]] std::exception_ptr error() override {
    if (!group_->comm().broken() || group_->succeeded(ticket_)) return nullptr;
    return std::make_exception_ptr(*group_->comm().cause());
  }

 private:
  std::shared_ptr<NcclGroup> group_;
  std::uint64_t ticket_;
};

bool is_collective(Operation operation) {
  return operation != Operation::send && operation != Operation::recv;
}

}  // namespace

NcclBackend::NcclBackend(std::shared_ptr<NcclGroup> group, bool check, Millis close_limit)
    : group_{std::move(group)}, check_{check}, close_limit_{close_limit} {
  const auto descriptors = sizeof(Descriptor) * static_cast<std::size_t>(group_->facts().size);
  scratch_ = acc::cuda::DeviceBuffer{kTokenBytes + descriptors};
  if (check_) compared_ = acc::cuda::PinnedBuffer{descriptors};
  cuda::check(
      group_->cuda(), "cudaMemsetAsync",
      group_->cuda().memset_async(scratch_.data(), 0, scratch_.bytes(), group_->stream().get()));
  Watchdog::instance().add(group_);
}

NcclBackend::~NcclBackend() {
  auto& ring = group_->ring();
  try {
    const cuda::DeviceScope here{group_->cuda(), group_->device()};
    const auto last = ring.last();
    if (!group_->done(last)) {
      if (std::uncaught_exceptions() > 0) {
        group_->break_with(Error{ErrorCode::aborted, "group '" + group_->facts().name + "': rank " +
                                                         std::to_string(group_->facts().rank) +
                                                         " left by an exception"},
                           NcclGroup::Origin::here);
      }
      // With a deadline the watchdog ends this wait.
      const auto newest = ring.entry(last);
      group_->wait(last, newest && newest->deadline ? std::nullopt : std::optional{close_limit_});
    }
  } catch (const std::exception&) {  // broken, or it doesn't end: it is aborted below
  }
  if (group_->comm().broken()) group_->await_telling(kForTelling);
  Watchdog::instance().remove(*group_);
  for (const auto& kept : registrations_) {
    if (const auto registration = kept.lock()) registration->deregister();
  }
  group_->comm().close(close_limit_);
}

// ---- calls ----

void NcclBackend::run(const Call& call) {
  const auto ticket = enqueue(call);
  if (call.what.operation == Operation::barrier) group_->wait(ticket, std::nullopt);
}

std::shared_ptr<Pending> NcclBackend::begin(const Call& call) {
  return std::make_shared<Handle>(group_, enqueue(call));
}

std::shared_ptr<Pending> NcclBackend::begin_as_one(std::span<const Call> calls) {
  if (calls.empty()) return nullptr;
  const std::lock_guard lock{enqueuing_};
  const auto& first = calls.front();
  try {
    group_->comm().throw_if_broken();
    const cuda::DeviceScope here{group_->cuda(), group_->device()};
    for (const auto& call : calls) {
      if (in_host_memory(call))
        throw Error{ErrorCode::invalid_argument,
                    to_string(call.what) + " on group '" + group_->facts().name +
                        "': calls that are launched together need device memory, this is the "
                        "host's"};
    }
    const auto ticket = enqueue(first, [&] {  // from here on the watchdog knows of it
      if (check_) {
        for (const auto& call : calls)
          if (is_collective(call.what.operation)) compare(call);
      }
      group_->comm().call("ncclGroupEnd", [&](Comm comm) {
        const auto where = lane(comm);
        GroupScope group{where.nccl};
        for (const auto& call : calls) group.add([&] { return move(where, call); });
        return group.end();
      });
    });
    return std::make_shared<Handle>(group_, ticket);
  } catch (const Error& error) {
    rethrow(error, first);
  }
}

std::uint64_t NcclBackend::enqueue(const Call& call) {
  const std::lock_guard lock{enqueuing_};
  try {
    group_->comm().throw_if_broken();
    if (in_host_memory(call)) [[unlikely]]
      return run_staged(call);
    return enqueue(call, [&] {
      if (check_ && is_collective(call.what.operation)) compare(call);
      group_->comm().call(name_of(call.what.operation),
                          [&](Comm comm) { return move(lane(comm), call); });
    });
  } catch (const Error& error) {
    rethrow(error, call);
  }
}

std::uint64_t NcclBackend::enqueue(const Call& call, const std::function<void()>& work) {
  const cuda::DeviceScope here{group_->cuda(), group_->device()};
  auto& ring = group_->ring();
  if (ring.full()) [[unlikely]]
    await_room();
  const bool captured = is_captured(call.stream);
  WorkRing::Entry entry{.what = call.what, .peer = call.peer, .limit = call.limit};
  if (call.limit.count() > 0 && !captured) entry.deadline = Clock::now() + call.limit;
  const auto events = ring.begin(entry, captured);
  try {
    order_behind(call, events);
    work();
    order_before(call, events);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::invalid_argument) ring.withdraw();
    throw;
  }
  ring.enqueued();
  return ring.last();
}

void NcclBackend::order_behind(const Call& call, const WorkRing::Events& events) {
  const auto& cuda = group_->cuda();
  cuda::check(cuda, "cudaEventRecord", cuda.event_record(events.ready, call.stream));
  cuda::check(cuda, "cudaStreamWaitEvent",
              cuda.stream_wait_event(group_->stream().get(), events.ready, 0));
}

void NcclBackend::order_before(const Call& call, const WorkRing::Events& events) {
  const auto& cuda = group_->cuda();
  cuda::check(cuda, "cudaEventRecord", cuda.event_record(events.end, group_->stream().get()));
  cuda::check(cuda, "cudaStreamWaitEvent", cuda.stream_wait_event(call.stream, events.end, 0));
}

void NcclBackend::await_room() {
  // The device is thousands of calls behind: the host waits here, or in the driver.
  auto& ring = group_->ring();
  while (ring.full()) {
    group_->wait(ring.last_done() + 1, std::nullopt);
    (void)ring.advance();
  }
}

bool NcclBackend::is_captured(cuda::Stream stream) const {
  if (stream == nullptr)
    return false;  // the legacy stream can't be captured, and the query would invalidate a capture
  int status = 0;
  cuda::check(group_->cuda(), "cudaStreamIsCapturing",
              group_->cuda().stream_is_capturing(stream, &status));
  return status != 0;
}

Lane NcclBackend::lane(Comm comm) const {
  return {.nccl = group_->comm().api(),
          .cuda = group_->cuda(),
          .comm = comm,
          .stream = group_->stream().get(),
          .rank = group_->facts().rank,
          .size = group_->facts().size,
          .token = scratch_.data()};
}

void NcclBackend::rethrow(const Error& error, const Call& call) {
  if (error.code() != ErrorCode::invalid_argument)
    group_->break_with(error, NcclGroup::Origin::here);
  if (!error.operation().empty()) throw Error{error};
  throw Error{error.code(), error.what(), error.ranks(),
              std::string{to_string(call.what.operation)}, call.what.sequence};
}

// ---- what not every call has ----

void NcclBackend::compare(const Call& call) {
  const auto& facts = group_->facts();
  const auto& cuda = group_->cuda();
  const auto stream = group_->stream().get();
  if (is_captured(call.stream)) return;
  auto* const all = static_cast<std::byte*>(scratch_.data()) + kTokenBytes;
  auto* const own = all + sizeof(Descriptor) * static_cast<std::size_t>(facts.rank);
  auto* const on_host = static_cast<std::byte*>(compared_.data());
  const auto bytes = compared_.bytes();
  std::memcpy(on_host, &call.what, sizeof call.what);
  cuda::check(cuda, "cudaMemcpyAsync",
              cuda.memcpy_async(own, on_host, sizeof call.what, cuda::kCopyByAddress, stream));
  group_->comm().call("ncclAllGather", [&](Comm comm) {
    return group_->comm().api().all_gather(own, all, sizeof(Descriptor),
                                           static_cast<int>(DType::u8), comm, stream);
  });
  cuda::check(cuda, "cudaMemcpyAsync",
              cuda.memcpy_async(on_host, all, bytes, cuda::kCopyByAddress, stream));
  group_->wait_for_stream();
  std::vector<Descriptor> of_ranks(static_cast<std::size_t>(facts.size));
  std::memcpy(of_ranks.data(), on_host, bytes);
  const bool same = std::all_of(of_ranks.begin(), of_ranks.end(),
                                [&](const Descriptor& what) { return what == call.what; });
  if (!same) throw mismatch(of_ranks, facts.name);
}

bool NcclBackend::in_host_memory(const Call& call) const noexcept {
  if (call.what.count == 0 && !call.by_pairs()) return false;
  // One buffer is representative; the send buffer is nullptr where only the root's is used, and so
  // on.
  const auto* buffer = call.send != nullptr ? call.send : call.recv;
  return buffer != nullptr && cuda::is_plain_host_memory(group_->cuda(), buffer);
}

std::uint64_t NcclBackend::run_staged(const Call& call) {
  const cuda::DeviceScope here{group_->cuda(), group_->device()};
  const auto& facts = group_->facts();
  const auto sizes = extent(call, facts.rank, facts.size);
  const auto gap = (sizes.send + kTokenBytes - 1) / kTokenBytes * kTokenBytes;
  if (staged_.bytes() < gap + sizes.recv) staged_ = acc::cuda::DeviceBuffer{gap + sizes.recv};
  Call moved = call;
  // The caller's stream has no part in it; the device's own orders the copies with the call.
  moved.stream = group_->stream().get();
  moved.send = sizes.send > 0 ? staged_.data() : nullptr;
  moved.recv = sizes.recv > 0 ? static_cast<std::byte*>(staged_.data()) + gap : nullptr;
  const auto copy = [&](void* to, const void* from, std::size_t bytes) {
    if (bytes == 0) return;
    cuda::check(group_->cuda(), "cudaMemcpyAsync",
                group_->cuda().memcpy_async(to, from, bytes, cuda::kCopyByAddress, moved.stream));
  };
  const auto ticket = enqueue(moved, [&] {
    if (check_ && is_collective(call.what.operation)) compare(moved);
    copy(staged_.data(), call.send, sizes.send);
    group_->comm().call(name_of(call.what.operation),
                        [&](Comm comm) { return move(lane(comm), moved); });
  });
  group_->wait(ticket, std::nullopt);
  copy(call.recv, moved.recv, sizes.recv);
  group_->wait_for_stream();
  return ticket;
}

SharedBuffer NcclBackend::allocate(std::size_t bytes, const Call& call) {
  const std::lock_guard lock{enqueuing_};
  try {
    group_->comm().throw_if_broken();
    const cuda::DeviceScope here{group_->cuda(), group_->device()};
    const auto deadline =
        call.limit.count() > 0 ? Clock::now() + call.limit : Clock::time_point::max();
    auto registration = std::make_shared<Registration>(group_, bytes, deadline);
    std::erase_if(registrations_, [](const auto& kept) { return kept.expired(); });
    registrations_.push_back(registration);
    return SharedBuffer{registration->data(), bytes, registration};
  } catch (const Error& error) {
    rethrow(error, call);
  }
}

// ---- the end ----

void NcclBackend::abort(const Error& cause) noexcept {
  group_->break_with(cause, NcclGroup::Origin::here);
}

std::optional<Error> NcclBackend::cause() const { return group_->comm().cause(); }

void NcclBackend::lost(int rank, const std::string& how) noexcept {
  try {
    const auto& facts = group_->facts();
    const auto at = static_cast<std::size_t>(rank);
    std::string text = "group '" + facts.name + "': lost rank " + std::to_string(rank);
    if (at < facts.ranks.size()) {
      text +=
          " (host " + facts.ranks[at].host + ", pid " + std::to_string(facts.ranks[at].pid) + ")";
    }
    const auto entry = group_->ring().entry(group_->ring().last());
    if (entry) text += " during " + to_string(entry->what);
    group_->break_with(Error{ErrorCode::peer_lost,
                             text + ": " + how,
                             {rank},
                             entry ? std::string{to_string(entry->what.operation)} : std::string{},
                             entry ? entry->what.sequence : 0},
                       NcclGroup::Origin::here);
  } catch (...) {
    group_->break_with(Error{ErrorCode::peer_lost, "a rank was lost", {rank}},
                       NcclGroup::Origin::here);
  }
}

}  // namespace acc::runtime::nccl
