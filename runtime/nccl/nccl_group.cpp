#include "runtime/nccl/nccl_group.hpp"

#include "common/duration.hpp"
#include "runtime/group/agent_slot.hpp"
#include "runtime/nccl/limited_call.hpp"

#include <unistd.h>

#include <algorithm>
#include <thread>

namespace acc::runtime::nccl {
namespace {

using namespace std::chrono_literals;

/// Age of a probe that is worth reporting.
constexpr auto kSlowProbe = 2s;
/// How long the judge waits for a probe begun after a deadline before it counts the call as
/// overdue: the last result may be a period old.
constexpr auto kForProbe = 300ms;

/// Waits of the host for the device: polls without a pause at first, as most calls are short, then
/// ever less often, so that a long one occupies no core. At most 1 ms apart, well below the time
/// abort() may take to wake a waiter.
class Patience {
 public:
  void pause() {
    if (++looks_ <= 200) {
      std::this_thread::yield();
      return;
    }
    std::this_thread::sleep_for(next_);
    next_ = std::min<std::chrono::microseconds>(next_ * 5 / 4, 1ms);
  }

 private:
  int looks_ = 0;
  std::chrono::microseconds next_{20};
};

void say(const std::string& text) noexcept {
  const auto line = "acc: " + text + "\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

Communicator::Who who(const GroupFacts& facts, int device, Millis abort_limit) {
  return {facts.name, facts.rank, facts.size, device, abort_limit};
}

}  // namespace

NcclGroup::NcclGroup(const Api& nccl, const cuda::Api& cuda, std::shared_ptr<Store> store,
                     GroupFacts facts, int device, Millis abort_limit)
    : cuda_{cuda},
      facts_{std::move(facts)},
      comm_{nccl, who(facts_, device, abort_limit)},
      stream_{cuda},
      ring_{cuda},
      diagnosis_{std::move(store), facts_} {}

NcclGroup::~NcclGroup() {
  if (!comm_.broken()) {
    if (through_ != nullptr) (void)cuda_.event_destroy(through_);
    return;
  }
  // Work on the device may never end: its events and stream are abandoned to the driver.
  ring_.leak_events();
  stream_.leak();
}

void NcclGroup::break_with(const Error& cause, Origin origin) noexcept {
  {
    const std::lock_guard lock{breaking_};
    if (comm_.broken()) return;
    sound_.store(ring_.last_done(), std::memory_order_release);
    if (origin == Origin::here) keep_to_tell(cause);
    if (!comm_.fail(cause)) return;
  }
  comm_.begin_abort();
  try {
    if (origin == Origin::here && cause.code() != ErrorCode::aborted) say(cause.what());
    auto& watchdog = Watchdog::instance();
    if (cause.code() != ErrorCode::aborted) watchdog.spread(*this, cause);
    watchdog.wake();
  } catch (...) {  // no memory for a message; it is broken all the same
  }
}

void NcclGroup::keep_to_tell(const Error& cause) noexcept {
  try {
    const std::lock_guard lock{telling_};
    to_tell_ = cause;
  } catch (...) {  // no memory for a message; it is broken all the same
  }
}

void NcclGroup::neighbour_broke(const Error& cause) noexcept {
  try {
    break_with(Error{ErrorCode::aborted,
                     "group '" + facts_.name +
                         "': another group on the same device broke: " + cause.what(),
                     cause.ranks()},
               Origin::here);
  } catch (...) {
    break_with(cause, Origin::here);
  }
}

// ---- waiting ----

bool NcclGroup::succeeded(std::uint64_t ticket) const noexcept {
  return ticket <= sound_.load(std::memory_order_acquire);
}

bool NcclGroup::done(std::uint64_t ticket) noexcept {
  return comm_.broken() || ring_.ask(ticket) != cuda::Status::not_ready;
}

void NcclGroup::wait(std::uint64_t ticket, std::optional<Millis> limit) {
  const auto deadline = limit ? Clock::now() + *limit : Clock::time_point::max();
  const cuda::DeviceScope here{cuda_, device()};
  Patience patience;
  for (;;) {
    const auto status = ring_.ask(ticket);
    // In this order: an abort makes the events of the calls it ends look completed.
    if (comm_.broken()) {
      if (succeeded(ticket)) return;
      if (const auto cause = comm_.cause()) note_failed_peer(*cause, facts_.rank);
      comm_.throw_if_broken();
    }
    if (status == cuda::Status::success) return;
    if (status != cuda::Status::not_ready) {
      break_by("cudaEventQuery", status);
      continue;
    }
    if (limit && Clock::now() >= deadline) {
      const auto entry = ring_.entry(ticket);
      throw Error{ErrorCode::timed_out,
                  "group '" + facts_.name + "', rank " + std::to_string(facts_.rank) + ": " +
                      (entry ? to_string(entry->what) : "a call") + " was not done after " +
                      describe(*limit) + " of waiting for it; it goes on",
                  {},
                  entry ? std::string{to_string(entry->what.operation)} : std::string{},
                  entry ? entry->what.sequence : 0};
    }
    patience.pause();
  }
}

void NcclGroup::break_by(const char* call, cuda::Status status) noexcept {
  try {
    break_with(
        Error{ErrorCode::cuda, "group '" + facts_.name + "', rank " + std::to_string(facts_.rank) +
                                   ": " + cuda::explain(cuda_, call, status)},
        Origin::here);
  } catch (...) {  // no memory for the text; waiters try again
  }
}

void NcclGroup::wait_for_stream() {
  if (through_ == nullptr) {
    cuda::check(cuda_, "cudaEventCreateWithFlags",
                cuda_.event_create_with_flags(&through_, cuda::kEventDisableTiming));
  }
  cuda::check(cuda_, "cudaEventRecord", cuda_.event_record(through_, stream_.get()));
  Patience patience;
  for (;;) {
    const auto status = cuda_.event_query(through_);
    comm_.throw_if_broken();
    if (status == cuda::Status::success) return;
    if (status != cuda::Status::not_ready) break_by("cudaEventQuery", status);
    patience.pause();
  }
}

void NcclGroup::await_telling(Millis limit) noexcept {
  {
    std::unique_lock lock{telling_};
    if (!told_.wait_for(lock, limit, [&] { return acknowledged_; })) return;
  }
  diagnosis_.linger();
}

// ---- what the watchdog's threads do ----

void NcclGroup::probe() noexcept {
  if (comm_.phase() != Phase::ready) return;
  // Querying an event while device 0 is current makes CUDA initialise that device for this process,
  // too: hundreds of MiB on another rank's GPU.
  (void)cuda_.set_device(device());
  const auto began = Clock::now().time_since_epoch().count();
  probe_began_.store(began, std::memory_order_release);
  const auto status = ring_.advance();
  auto found = comm_.async_error();
  try {
    if (!found && status != cuda::Status::success) {
      found = Error{ErrorCode::cuda, "group '" + facts_.name + "', rank " +
                                         std::to_string(facts_.rank) + ": " +
                                         cuda::explain(cuda_, "cudaEventQuery", status)};
    }
    if (found) {
      const std::lock_guard lock{found_mutex_};
      if (!found_) found_ = *found;
      Watchdog::instance().wake();
    }
  } catch (...) {  // the next probe detects it again
  }
  probed_.store(began, std::memory_order_release);
  probe_began_.store(0, std::memory_order_release);
}

bool NcclGroup::probed_since(Clock::time_point moment) const noexcept {
  return probed_.load(std::memory_order_acquire) >= moment.time_since_epoch().count();
}

std::string NcclGroup::trouble(Clock::time_point now) const {
  const auto began = probe_began_.load(std::memory_order_acquire);
  if (began == 0) return {};
  const auto since = now.time_since_epoch() - Clock::duration{began};
  if (since < std::min<Clock::duration>(kSlowProbe, comm_.who().abort_limit)) return {};
  return "the CUDA driver has not answered for " +
         describe(std::chrono::duration_cast<Millis>(since));
}

RankProgress NcclGroup::progress() const {
  RankProgress here{.rank = facts_.rank};
  const auto what = [&](std::uint64_t ticket) {
    const auto entry = ring_.entry(ticket);
    return entry ? entry->what : Descriptor{};
  };
  const auto last = ring_.last();
  const auto done = ring_.last_done();
  here.enqueued = what(last);
  here.started = what(std::max(ring_.last_started(), done));
  here.completed = what(done);
  const auto before = std::min<std::uint64_t>(done, kRecent / 2);
  for (auto ticket = done - before + 1; ticket <= last && here.recent.size() < kRecent; ++ticket) {
    here.recent.push_back(what(ticket));
  }
  here.trouble = trouble(Clock::now());
  return here;
}

Clock::time_point NcclGroup::talk() noexcept {
  const auto later = Clock::now() + Watchdog::kPeriod;
  if (comm_.broken()) {
    tell_peers();
    return later;
  }
  if (comm_.phase() != Phase::ready) return later;
  if (const auto origin = diagnosis_.step([this] { return progress(); })) {
    // Found by a peer, which has reported it.
    break_with(*origin, Origin::peer);
  }
  return std::min(later, diagnosis_.next_step());
}

void NcclGroup::tell_peers() noexcept {
  std::optional<Error> cause;
  {
    const std::lock_guard lock{telling_};
    if (acknowledged_) return;
    cause = to_tell_;
  }
  try {
    if (cause) diagnosis_.tell(*cause, progress());
  } catch (...) {  // no memory: their own deadlines remain
  }
  diagnosis_.acknowledge();
  const std::lock_guard lock{telling_};
  acknowledged_ = true;
  told_.notify_all();
}

std::optional<WorkRing::Entry> NcclGroup::overdue(Clock::time_point now,
                                                  Clock::time_point& next) const {
  // All calls in progress, as each may have its own limit.
  for (auto ticket = ring_.last_done() + 1; ticket <= ring_.last(); ++ticket) {
    auto entry = ring_.entry(ticket);
    if (!entry || !entry->deadline) continue;
    if (*entry->deadline <= now) return entry;
    next = std::min(next, *entry->deadline);
  }
  return std::nullopt;
}

void NcclGroup::judge_calls(Clock::time_point now, Clock::time_point& next) {
  if (!diagnosis_.is_open()) {
    const auto late = overdue(now, next);
    if (!late) return;
    if (!probed_since(*late->deadline) && now < *late->deadline + kForProbe) {
      next = now + 10ms;
      return;
    }
    // The oldest is to blame: the overdue one waits for it.
    const auto oldest = ring_.entry(ring_.last_done() + 1).value_or(*late);
    diagnosis_.open({.group = facts_.name,
                     .what = oldest.what,
                     .peer = oldest.peer,
                     .waited = late->limit,
                     .rank = facts_.rank,
                     .ranks = facts_.ranks},
                    now);
    Watchdog::instance().wake();
  }
  if (const auto verdict = diagnosis_.answer(now)) break_with(*verdict, Origin::here);
  next = std::min(next, now + 10ms);
}

void NcclGroup::judge_driver(Clock::time_point now) const {
  const auto began = probe_began_.load(std::memory_order_acquire);
  if (began == 0) return;
  const auto since = now.time_since_epoch() - Clock::duration{began};
  if (since < comm_.who().abort_limit) return;
  // Broken and aborted, and still no response: the threads that wait for the device hang in the
  // driver as well, and no error would ever be reported.
  exit_stuck("group '" + facts_.name + "', rank " + std::to_string(facts_.rank) + ": " +
             trouble(now));
}

Clock::time_point NcclGroup::judge() noexcept {
  const auto now = Clock::now();
  auto next = now + Watchdog::kPeriod;
  try {
    if (comm_.broken()) {
      comm_.begin_abort();  // if no thread could be started before
      judge_driver(now);
      return next;
    }
    if (comm_.phase() != Phase::ready) return next;
    std::optional<Error> found;
    {
      const std::lock_guard lock{found_mutex_};
      found = found_;
    }
    if (found) {
      break_with(*found, Origin::here);
    } else {
      judge_calls(now, next);
    }
  } catch (...) {  // no memory; judged again shortly
  }
  return next;
}

}  // namespace acc::runtime::nccl
