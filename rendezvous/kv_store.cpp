#include "rendezvous/kv_store.hpp"

#include "common/text.hpp"

#include <algorithm>
#include <cstdint>

namespace acc::rendezvous {

namespace {

using Op = KvRequest::Op;
using Status = KvReply::Status;

// A value that thousands wait for is copied for each: this much at a time, then other peers have a
// turn.
constexpr std::size_t kWakeBytes = 16 * 1024 * 1024;
constexpr std::size_t kPlacesOfWorker = 4;
constexpr std::size_t kOverhead = 1024;  // of a frame: header, key and numbers
constexpr Millis kLongestWait = std::chrono::hours{24 * 7};

KvReply with(Status status, std::int64_t number = 0) {
  KvReply reply;
  reply.status = status;
  reply.number = number;
  return reply;
}

// The first fault of a request; ok: none.
Status check(const KvRequest& request) {
  if (request.key.empty()) return Status::bad_request;
  if (request.op == Op::barrier && request.count == 0) return Status::bad_request;
  if (request.key.size() > kMaxKey || request.value.size() > kMaxValue) return Status::too_big;
  return Status::ok;
}

bool waits(Op op) { return op == Op::get || op == Op::wait; }

}  // namespace

KvLimits kv_limits_for(std::size_t workers) {
  KvLimits limits;
  limits.waiters = std::max(limits.waiters, kPlacesOfWorker * workers);
  return limits;
}

// Bounded, whatever number of workers a node says it has.
std::size_t kv_bytes_in_flight(std::size_t workers) {
  return std::min(kPlacesOfWorker * workers, KvLimits{}.waiters) * (kMaxValue + kOverhead);
}

void KvStore::allow_workers(std::size_t workers) {
  limits_.waiters = std::max(limits_.waiters, kv_limits_for(workers).waiters);
}

KvStore::Answers KvStore::request(PeerId peer, KvRequest request, Instant now) {
  Answers out;
  const std::uint64_t id = request.id;
  if (const auto status = check(request); status != Status::ok) {
    out.push_back({peer, with(status)});
    out.back().reply.id = id;
  } else if (request.op == Op::barrier) {
    arrive(peer, request, now, out);
  } else if (waits(request.op)) {
    ask(peer, request, now, out);
  } else {
    out.push_back({peer, carry_out(request)});
    out.back().reply.id = id;
    if (request.op != Op::remove && out.back().reply.status == Status::ok) wake(request.key, out);
  }
  return out;
}

KvReply KvStore::carry_out(KvRequest& request) {
  switch (request.op) {
    case Op::set:
      return set(request.key, std::move(request.value));
    case Op::add:
      return add(request);
    case Op::compare_set:
      return compare_set(request);
    case Op::remove:
      return remove(request.key);
    default:
      return with(Status::bad_request);
  }
}

KvReply KvStore::set(std::string key, std::string value) {
  return with(put(std::move(key), std::move(value)) ? Status::ok : Status::full);
}

// A counter is stored as decimal text, as in torch's store: set, get and add mix.
KvReply KvStore::add(const KvRequest& request) {
  std::int64_t sum = request.delta;
  bool only_shares = false;
  if (const auto found = entries_.find(request.key); found != entries_.end()) {
    const auto before = parse_number<std::int64_t>(found->second.value);
    if (!before || __builtin_add_overflow(*before, request.delta, &sum))
      return with(Status::bad_request);
    only_shares = found->second.only_shares;
  }
  if (!put(request.key, std::to_string(sum), only_shares)) return with(Status::full);
  return with(Status::ok, sum);
}

KvReply KvStore::compare_set(KvRequest& request) {
  const auto found = entries_.find(request.key);
  const bool there = found != entries_.end();
  if (!there && !request.expected.empty()) return with(Status::missing);
  if (there && (request.expected.empty() || found->second.value != request.expected)) {
    auto reply = with(Status::differs);
    reply.value = found->second.value;
    return reply;
  }
  return set(request.key, std::move(request.value));
}

KvReply KvStore::remove(const std::string& key) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return with(Status::missing);
  bytes_ -= found->first.size() + found->second.value.size();
  entries_.erase(found);
  half_woken_.erase(key);
  return with(Status::ok);
}

bool KvStore::put(std::string key, std::string value, bool only_shares) {
  const auto found = entries_.find(key);
  const bool there = found != entries_.end();
  const std::size_t freed = there ? found->second.value.size() : 0;
  const std::size_t taken = value.size() + (there ? 0 : key.size());
  if (bytes_ - freed + taken > limits_.bytes) return false;
  if (!there && entries_.size() >= limits_.keys) return false;
  bytes_ = bytes_ - freed + taken;
  if (there) {
    found->second = {std::move(value), only_shares};
  } else {
    entries_.emplace(std::move(key), Entry{std::move(value), only_shares});
  }
  return true;
}

// ---- waits ----

void KvStore::ask(PeerId peer, KvRequest& request, Instant now, Answers& out) {
  const auto id = request.id;
  KvReply reply;
  if (const auto found = entries_.find(request.key); found != entries_.end()) {
    if (request.op == Op::get) reply.value = found->second.value;
  } else if (request.timeout <= Millis{0}) {
    reply.status = Status::missing;
  } else {
    const auto place = request.op == Op::get ? Place::value : Place::presence;
    const auto number = start_waiting(peer, request, place, now);
    if (number) {
      awaited_[waiters_.at(*number).key].insert(*number);
      return;
    }
    reply.status = Status::full;
  }
  reply.id = id;
  out.push_back({peer, std::move(reply)});
}

void KvStore::arrive(PeerId peer, KvRequest& request, Instant now, Answers& out) {
  const auto found = barriers_.find(request.key);
  const std::size_t before = found != barriers_.end() ? found->second.arrived.size() : 0;
  KvReply own;
  own.number = static_cast<std::int64_t>(before);
  if (before > 0 && found->second.count != request.count) {
    own.status = Status::bad_request;  // the requests disagree about the barrier
  } else if (before + 1 == request.count) {
    std::int64_t order = 0;
    const Numbers arrived = before > 0 ? std::move(found->second.arrived) : Numbers{};
    if (before > 0) barriers_.erase(found);  // the name is free for the next generation
    for (const auto number : arrived) {
      const Waiter waiter = take(number);
      out.push_back({waiter.peer, with(Status::ok, order++)});
      out.back().reply.id = waiter.id;
    }
  } else if (request.timeout <= Millis{0}) {
    own.status = Status::timed_out;
  } else if (const auto number = start_waiting(peer, request, Place::barrier, now)) {
    auto& barrier = barriers_[waiters_.at(*number).key];
    barrier.count = request.count;
    barrier.arrived.insert(*number);
    return;
  } else {
    own.status = Status::full;
  }
  own.id = request.id;
  out.push_back({peer, std::move(own)});
}

std::optional<std::uint64_t> KvStore::start_waiting(PeerId peer, KvRequest& request, Place place,
                                                    Instant now) {
  if (waiters_.size() >= limits_.waiters) return std::nullopt;
  const auto number = next_number_++;
  const Instant deadline = now + std::min(request.timeout, kLongestWait);
  deadlines_.emplace(deadline, number);
  by_peer_.emplace(peer, number);
  waiters_.emplace(number, Waiter{peer, request.id, place, std::move(request.key), deadline});
  return number;
}

// Removes the waiter from all indexes except its group.
KvStore::Waiter KvStore::take(std::uint64_t number) {
  auto node = waiters_.extract(number);
  Waiter waiter = std::move(node.mapped());
  deadlines_.erase({waiter.deadline, number});
  by_peer_.erase({waiter.peer, number});
  return waiter;
}

// @return the size of the group, without the leaving waiter.
std::size_t KvStore::leave_group(std::uint64_t number, const Waiter& waiter) {
  if (waiter.place == Place::barrier) {
    const auto barrier = barriers_.find(waiter.key);
    barrier->second.arrived.erase(number);
    const auto others = barrier->second.arrived.size();
    if (others == 0) barriers_.erase(barrier);
    return others;
  }
  const auto waiting = awaited_.find(waiter.key);
  waiting->second.erase(number);
  if (waiting->second.empty()) {
    awaited_.erase(waiting);
    half_woken_.erase(waiter.key);
  }
  return 0;
}

void KvStore::wake(std::string_view key, Answers& out) {
  const auto waiting = awaited_.find(key);
  const auto entry = entries_.find(key);
  if (waiting == awaited_.end() || entry == entries_.end()) return;
  auto& numbers = waiting->second;
  std::size_t copied = 0;
  while (!numbers.empty() && copied < kWakeBytes) {
    const Waiter waiter = take(*numbers.begin());
    numbers.erase(numbers.begin());
    KvReply reply;
    reply.id = waiter.id;
    if (waiter.place == Place::value) reply.value = entry->second.value;
    copied += reply.value.size();
    out.push_back({waiter.peer, std::move(reply)});
  }
  if (!numbers.empty()) {
    half_woken_.emplace(key);
    return;
  }
  half_woken_.erase(waiting->first);
  awaited_.erase(waiting);
}

// ---- time, rounds, peers ----

KvStore::Answers KvStore::tick(Instant now) {
  Answers out;
  if (!half_woken_.empty()) wake(std::string{*half_woken_.begin()}, out);
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const auto number = deadlines_.begin()->second;
    const Waiter waiter = take(number);
    const auto others = leave_group(number, waiter);
    out.push_back({waiter.peer, late_answer(waiter, others)});
    out.back().reply.id = waiter.id;
  }
  return out;
}

// The answer to a wait that timed out.
KvReply KvStore::late_answer(const Waiter& waiter, std::size_t others) const {
  if (waiter.place == Place::barrier) {
    // How many had arrived, this one included.
    return with(Status::timed_out, static_cast<std::int64_t>(others + 1));
  }
  const auto entry = entries_.find(waiter.key);
  if (entry == entries_.end()) return with(Status::timed_out);
  KvReply reply;  // it was in an unfinished wake-up: late because wake-ups are limited
  if (waiter.place == Place::value) reply.value = entry->second.value;
  return reply;
}

KvStore::Answers KvStore::reset(Epoch epoch) {
  Answers out;
  out.reserve(waiters_.size());
  for (const auto& [number, waiter] : waiters_) {
    out.push_back({waiter.peer, with(Status::wrong_round)});
    out.back().reply.id = waiter.id;
  }
  const auto limits = limits_;
  const auto next = next_number_;
  *this = KvStore{limits};
  next_number_ = next;
  epoch_ = epoch;
  return out;
}

void KvStore::peer_gone(PeerId peer) {
  auto own = by_peer_.lower_bound({peer, 0});
  while (own != by_peer_.end() && own->first == peer) {
    const auto number = own->second;
    ++own;  // before it is erased
    leave_group(number, take(number));
  }
}

std::optional<Instant> KvStore::next_deadline() const {
  if (!half_woken_.empty()) return Instant{};
  if (deadlines_.empty()) return std::nullopt;
  return deadlines_.begin()->first;
}

// The agents replay in any order: shares of a counter may arrive before the value that it began
// with.
KvStore::Answers KvStore::restore(const KvRestore& told) {
  Answers out;
  if (told.key.empty() || told.key.size() > kMaxKey || told.value.size() > kMaxValue) return out;
  const auto found = entries_.find(told.key);
  const bool there = found != entries_.end();
  const bool is_share = told.added != 0;
  if (!there) {
    put(told.key, is_share ? std::to_string(told.added) : told.value, is_share);
  } else if (is_share || found->second.only_shares) {
    const auto before = parse_number<std::int64_t>(found->second.value);
    const auto more = is_share ? std::optional{told.added} : parse_number<std::int64_t>(told.value);
    std::int64_t sum = 0;
    if (before && more && !__builtin_add_overflow(*before, *more, &sum))
      put(told.key, std::to_string(sum), is_share && found->second.only_shares);
  }
  wake(told.key, out);
  return out;
}

}  // namespace acc::rendezvous
