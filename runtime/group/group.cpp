#include "runtime/group/group.hpp"

#include "runtime/fork.hpp"
#include "runtime/group/agent_slot.hpp"
#include "runtime/group/arguments.hpp"
#include "runtime/timeout.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <new>
#include <numeric>
#include <utility>

namespace acc::runtime {

namespace {

constexpr Millis kLimitCpu = std::chrono::seconds{1800};  // as torch's gloo
constexpr Millis kLimitGpu = std::chrono::seconds{600};   // as torch's nccl

// Of the groups of all ranks the first is shown to the agent: their numbers can be compared.
std::atomic<bool> g_is_slot_claimed{false};

heartbeat::Slot* claim_slot(int size) {
  const char* world = std::getenv("WORLD_SIZE");
  if (size < 2 || world == nullptr || std::to_string(size) != world) return nullptr;
  auto* const slot = agent_slot();
  return slot != nullptr && !g_is_slot_claimed.exchange(true) ? slot : nullptr;
}

/// Shows the agent that this rank is inside of a collective. Two stores.
class ShownCall {
 public:
  ShownCall(heartbeat::Slot* slot, const Descriptor& what) noexcept
      : slot_{is_of_all(what.operation) ? slot : nullptr},
        word_{heartbeat::pack({what.sequence, static_cast<std::uint8_t>(what.operation), false})} {
    if (slot_ != nullptr) slot_->collective.store(word_ | 1U, std::memory_order_relaxed);
  }
  ~ShownCall() {
    if (slot_ != nullptr) slot_->collective.store(word_, std::memory_order_relaxed);
  }
  ShownCall(const ShownCall&) = delete;
  ShownCall& operator=(const ShownCall&) = delete;

 private:
  static bool is_of_all(Operation operation) noexcept {
    return operation != Operation::send && operation != Operation::recv;
  }
  heartbeat::Slot* slot_;
  std::uint64_t word_;
};

}  // namespace

Group::Group(GroupFacts facts, std::unique_ptr<Backend> backend, std::shared_ptr<Store> store,
             GroupOptions options, GroupMaker maker)
    : facts_{std::move(facts)},
      options_{std::move(options)},
      limit_{options_.timeout.value_or(backend->asynchronous() ? kLimitGpu : kLimitCpu)},
      backend_{std::move(backend)},
      asynchronous_{backend_->asynchronous()},
      store_{std::move(store)},
      maker_{std::move(maker)},
      watched_{facts_, record_, *backend_},
      numbers_{0, std::vector<std::uint64_t>(static_cast<std::size_t>(facts_.size)),
               std::vector<std::uint64_t>(static_cast<std::size_t>(facts_.size))},
      made_in_{fork_generation()},
      slot_{claim_slot(facts_.size)},
      calls_{std::make_unique<CallQueue>("acc-" + facts_.name,
                                         [this](Work::State& work) { carry_out(work); })},
      sends_{
          std::make_unique<CallQueue>("acc-send", [this](Work::State& work) { carry_out(work); })} {
  monitor::watch(watched_);
}

Group::~Group() {
  if (slot_ != nullptr) g_is_slot_claimed = false;
  if (made_in_ != fork_generation()) {
    (void)backend_.release();  // its destructor would tell the peers that this rank left
    (void)calls_.release();    // their threads don't exist here, their locks may be held for ever
    (void)sends_.release();
    return;
  }
  monitor::forget(watched_);
  const bool begun = !calls_->idle() || !sends_->idle();
  if (begun && std::uncaught_exceptions() > 0)
    abort("rank " + std::to_string(facts_.rank) + " left by an exception");
}

// ---- calls ----

void Group::check(const Call& call, bool waits) const {
  if (const char* fault = fault_of(call, facts_.rank, facts_.size, waits)) refuse(call, fault);
  if (made_in_ != fork_generation())
    refuse(call, "this process was forked after the group was made, which belongs to its parent");
  if (broken()) refuse_broken();
}

void Group::prepare(Call& call, const CallOptions& how, bool waits) {
  call.what.within = InUserCall::current();
  check(call, waits);
  if (how.timeout && *how.timeout < Millis{0}) refuse(call, "its timeout is negative");
  if (coalesced_ != nullptr) [[unlikely]]
    if (const char* fault = coalesced_->add(call, facts_.rank, facts_.size)) refuse(call, fault);
  const auto peer = static_cast<std::size_t>(call.peer);
  switch (call.what.operation) {
    case Operation::send:
      call.what.sequence = ++numbers_.sent[peer];
      break;
    case Operation::recv:
      call.what.sequence = ++numbers_.received[peer];
      break;
    default:
      call.what.sequence = ++numbers_.sequence;
  }
  call.limit = std::min(how.timeout.value_or(limit_), kLongestTimeout);
  call.stream = how.stream;
}

void Group::run(Call call, const CallOptions& how, SharedBuffer* buffer) {
  if (collected_ != nullptr) [[unlikely]]
    return (void)collect(call, how);
  prepare(call, how, true);
  CallQueue& queue = queue_of(call);
  if (!queue.idle()) return queue_up(queue, call, buffer).wait();  // after the calls started before
  const auto ticket = record_.begin(call.what, call.peer, FlightRecorder::State::running);
  hand_over(call, buffer, ticket);
}

void Group::hand_over(const Call& call, SharedBuffer* buffer, FlightRecorder::Ticket ticket) {
  const ShownCall shown{slot_, call.what};
  try {
    if (buffer == nullptr)
      backend_->run(call);
    else
      *buffer = backend_->allocate(call.what.count, call);
  } catch (...) {
    fail(call, ticket);
  }
  record_.end(ticket,
              asynchronous_ ? FlightRecorder::State::enqueued : FlightRecorder::State::done);
}

Work Group::queue_up(CallQueue& queue, const Call& call, SharedBuffer* buffer) {
  auto state = std::make_shared<Work::State>();
  state->take(call);
  state->buffer = buffer;
  state->ticket = record_.begin(call.what, call.peer, FlightRecorder::State::queued);
  try {
    queue.push(state);
  } catch (...) {  // the queue's thread can't be started, and the peers wait for this call
    fail(call, state->ticket);
  }
  return Work{std::move(state)};
}

Work Group::start(Call call, const CallOptions& how) {
  if (collected_ != nullptr) return collect(call, how);
  prepare(call, how, false);
  if (!asynchronous_) return queue_up(queue_of(call), call, nullptr);
  auto state = std::make_shared<Work::State>();
  state->take(call);
  state->ticket = record_.begin(call.what, call.peer, FlightRecorder::State::running);
  try {
    state->pending = backend_->begin(state->call);
  } catch (...) {
    fail(call, state->ticket);
  }
  record_.end(state->ticket, FlightRecorder::State::enqueued);
  if (!state->pending) state->finish(nullptr);
  return Work{std::move(state)};
}

// On a queue's thread.
void Group::carry_out(Work::State& work) {
  if (broken()) {
    record_.end(work.ticket, FlightRecorder::State::failed);
    refuse_broken();
  }
  record_.run(work.ticket);
  hand_over(work.call, work.buffer, work.ticket);
}

SharedBuffer Group::allocate(std::size_t bytes, const CallOptions& how) {
  Call call;
  call.what.operation = Operation::allocate;
  call.what.count = bytes;
  SharedBuffer buffer;
  run(call, how, &buffer);
  return buffer;
}

// ---- several at once ----

std::vector<Work> Group::start_messages(std::vector<Call> calls, const CallOptions& how) {
  for (const Call& call : calls) check(call, false);
  if (const char* fault = fault_between(calls)) refuse(calls.front(), fault);
  if (collected_ != nullptr) {
    std::vector<Work> works;
    for (Call& call : calls) works.push_back(collect(call, how));
    return works;
  }
  if (asynchronous_) {
    std::vector<std::shared_ptr<Work::State>> states;
    for (Call& call : calls) {
      prepare(call, how, false);
      states.push_back(std::make_shared<Work::State>());
      states.back()->take(call);
    }
    launch(states);
    return {states.begin(), states.end()};
  }
  // Two queues carry them out in order, one for sends. If all ranks start with the nearest peers
  // (after them for sends, before them for receives), the messages of the smallest remaining
  // distance are first in the queues of both of their ranks.
  std::vector<std::size_t> order(calls.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto distance = [&](std::size_t i) {
    const int ahead = calls[i].what.operation == Operation::send ? calls[i].peer - facts_.rank
                                                                 : facts_.rank - calls[i].peer;
    return (ahead + facts_.size) % facts_.size;
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return distance(a) < distance(b); });
  std::vector<Work> works(calls.size());
  for (const std::size_t i : order) works[i] = start(calls[i], how);
  return works;
}

Work Group::collect(Call call, const CallOptions& how) {
  if (const char* fault = fault_in_launch(call)) refuse(call, fault);
  prepare(call, how, false);
  auto state = std::make_shared<Work::State>();
  state->take(call);
  state->collected = true;
  collected_->push_back(state);
  return Work{std::move(state)};
}

void Group::require_no_coalesce(std::string_view what) const {
  if (coalesced_ != nullptr)
    throw Error{ErrorCode::invalid_argument,
                std::string{what} + " within coalesce, on group '" + facts_.name + "'"};
}

void Group::coalesce(const std::function<void()>& body) {
  require_no_coalesce("coalesce");
  UsedMemory memory;
  struct Within {
    explicit Within(UsedMemory*& place, UsedMemory& used) : place_{place} { place_ = &used; }
    ~Within() { place_ = nullptr; }
    UsedMemory*& place_;
  } const within{coalesced_, memory};
  if (!asynchronous_) return body();
  const Numbers before = numbers_;
  std::vector<std::shared_ptr<Work::State>> states;
  collected_ = &states;
  try {
    body();
  } catch (...) {
    // Nothing was launched: the calls take no numbers, and their handles report it.
    collected_ = nullptr;
    numbers_ = before;
    for (const auto& state : states) {
      state->collected = false;
      state->finish(std::current_exception());
    }
    throw;
  }
  collected_ = nullptr;
  for (const auto& state : states) state->collected = false;
  launch(states);
}

void Group::launch(std::span<const std::shared_ptr<Work::State>> states) {
  if (states.empty()) return;
  std::vector<Call> calls;
  for (const auto& state : states) {
    calls.push_back(state->call);
    state->ticket =
        record_.begin(state->call.what, state->call.peer, FlightRecorder::State::running);
  }
  std::shared_ptr<Pending> pending;
  try {
    pending = backend_->begin_as_one(calls);
  } catch (...) {
    for (const auto& state : states) {
      record_.end(state->ticket, FlightRecorder::State::failed);
      state->finish(std::current_exception());
    }
    fail(calls.front(), states.front()->ticket);
  }
  for (const auto& state : states) {
    record_.end(state->ticket, FlightRecorder::State::enqueued);
    state->pending = pending;
    if (!pending) state->finish(nullptr);
  }
}

// ---- errors ----

void Group::refuse(const Call& call, const char* fault) const {
  std::string said{to_string(call.what.operation)};
  if (const auto user = to_string(call.what.within); !user.empty())
    said += " (in " + std::string{user} + ")";
  if (call.what.root >= 0) said += " root " + std::to_string(call.what.root);
  if (call.what.operation == Operation::send) said += " to " + std::to_string(call.peer);
  if (call.what.operation == Operation::recv) said += " from " + std::to_string(call.peer);
  throw Error{ErrorCode::invalid_argument,
              said + " on group '" + facts_.name + "', rank " + std::to_string(facts_.rank) +
                  " of " + std::to_string(facts_.size) + ": " + fault,
              {},
              std::string{to_string(call.what.operation)}};
}

void Group::refuse_broken() const {
  const std::lock_guard lock{cause_mutex_};
  throw Error{cause_->code(), "group '" + facts_.name + "' is broken: " + cause_->what(),
              cause_->ranks(), cause_->operation(), cause_->sequence()};
}

// Called inside a catch: records the failure and rethrows it as an Error.
void Group::fail(const Call& call, FlightRecorder::Ticket ticket) {
  record_.end(ticket, FlightRecorder::State::failed);
  const std::string operation{to_string(call.what.operation)};
  try {
    throw;
  } catch (const Error& e) {
    if (e.code() == ErrorCode::invalid_argument) throw;
    note_failed_peer(e, facts_.rank);
    const Error cause = e.operation().empty()
                            ? Error{e.code(), e.what(), e.ranks(), operation, call.what.sequence}
                            : e;
    break_with(cause);
    throw cause;
  } catch (const std::exception& e) {
    const Error cause{ErrorCode::system,
                      to_string(call.what) + " on group '" + facts_.name + "': " + e.what(),
                      {},
                      operation,
                      call.what.sequence};
    backend_->abort(cause);  // neither it nor the peers know yet
    break_with(cause);
    throw cause;
  }
}

void Group::break_with(const Error& cause) noexcept {
  {
    const std::lock_guard lock{cause_mutex_};
    if (cause_) return;
    cause_.emplace(cause);
    broken_.store(true, std::memory_order_release);
  }
  monitor::dump(watched_, cause.what());
}

void Group::abort(std::string_view why) noexcept {
  try {
    const Error cause{ErrorCode::aborted,
                      "group '" + facts_.name + "' was aborted by rank " +
                          std::to_string(facts_.rank) + ": " + std::string{why},
                      {facts_.rank}};
    backend_->abort(cause);
    break_with(backend_->cause().value_or(cause));  // another rank may have been first
  } catch (const std::bad_alloc&) {
    backend_->abort(Error{ErrorCode::aborted, "aborted"});
  }
}

}  // namespace acc::runtime
