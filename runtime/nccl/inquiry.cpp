#include "runtime/nccl/inquiry.hpp"

#include "runtime/nccl/assembly.hpp"

#include <algorithm>
#include <thread>

namespace acc::runtime::nccl {
namespace {

using namespace std::chrono_literals;

/// While an inquiry runs, the store is asked so often for what is still missing.
constexpr auto kStep = 25ms;
/// What a rank that isn't the first to raise the alarm waits longer than that one.
constexpr auto kForVerdict = 150ms;

}  // namespace

Inquiry::Inquiry(std::shared_ptr<Store> store, const GroupFacts& facts)
    : store_{std::move(store)},
      rank_{facts.rank},
      size_{facts.size},
      prefix_{facts.key + "/nccl/"},
      period_{std::clamp<Millis>(Millis{4} * facts.size, 100ms, 2000ms)},
      window_{3 * period_ + 200ms} {}

std::string Inquiry::key(const char* name) const { return prefix_ + name; }
std::string Inquiry::position_key(int rank) const {
  return prefix_ + "position/" + std::to_string(rank);
}

void Inquiry::open(const Stuck& stuck, Clock::time_point now) {
  const std::lock_guard lock{mutex_};
  if (stuck_) return;
  stuck_ = stuck;
  give_up_ = now + window_ + 2 * kForVerdict;
}

bool Inquiry::is_open() const {
  const std::lock_guard lock{mutex_};
  return stuck_.has_value();
}

std::optional<Error> Inquiry::answer(Clock::time_point now) const {
  const std::lock_guard lock{mutex_};
  if (answer_) return answer_;
  if (!stuck_ || now < give_up_) return std::nullopt;
  // The talker hangs in the store: no word of the others to be had.
  std::vector<std::optional<Position>> nobody(static_cast<std::size_t>(size_));
  nobody[static_cast<std::size_t>(rank_)] = Position{.rank = rank_, .enqueued = stuck_->what};
  return diagnose(*stuck_, nobody);
}

void Inquiry::deliver(Error error) {
  const std::lock_guard lock{mutex_};
  if (!answer_) answer_ = std::move(error);
}

void Inquiry::investigate(const Whereabouts& whereabouts) noexcept {
  std::optional<Stuck> stuck;
  {
    const std::lock_guard lock{mutex_};
    if (taken_up_ || !stuck_) return;
    taken_up_ = true;
    stuck = stuck_;
  }
  heard_ = true;  // the others' alarms are this one's
  const auto begun = Clock::now();
  try {
    const auto own = whereabouts();
    store_->set(position_key(rank_), to_text(own));
    const bool first = store_->add(key("alarms"), 1) == 1;
    if (!first) {
      if (auto told = await_verdict(begun + window_ + kForVerdict)) return deliver(*told);
    }
    store_->set(key("alarm"), std::to_string(rank_));
    auto found = diagnose(*stuck, collect(own, first ? begun + window_ : Clock::now()));
    store_->set(key("verdict"), to_text(found));
    deliver(std::move(found));
  } catch (const std::exception&) {
    // The store is gone. What this rank knows by itself is the answer when the time is over.
  }
}

std::vector<std::optional<Position>> Inquiry::collect(const Position& own,
                                                      Clock::time_point deadline) {
  std::vector<std::optional<Position>> positions(static_cast<std::size_t>(size_));
  positions[static_cast<std::size_t>(rank_)] = own;
  for (;;) {
    bool all = true;
    for (int rank = 0; rank < size_; ++rank) {
      auto& position = positions[static_cast<std::size_t>(rank)];
      if (position) continue;
      if (const auto text = store_->peek(position_key(rank))) position = parse_position(*text);
      if (position && position->rank != rank) position.reset();
      all = all && position.has_value();
    }
    if (all || Clock::now() >= deadline) return positions;
    std::this_thread::sleep_for(kStep);
  }
}

std::optional<Error> Inquiry::await_verdict(Clock::time_point deadline) {
  for (;;) {
    if (auto told = verdict()) return told;
    if (Clock::now() >= deadline) return std::nullopt;
    std::this_thread::sleep_for(kStep);
  }
}

std::optional<Error> Inquiry::verdict() {
  const auto text = store_->peek(key("verdict"));
  return text ? parse_error(*text) : std::nullopt;
}

std::optional<Error> Inquiry::hear(const Whereabouts& whereabouts) noexcept {
  const auto now = Clock::now();
  if (now < next_look_) return std::nullopt;
  next_look_ = now + period_;
  try {
    if (!heard_) {
      if (!store_->peek(key("alarm"))) return std::nullopt;
      heard_ = true;
      store_->set(position_key(rank_), to_text(whereabouts()));
      return await_verdict(now + window_ + kForVerdict);
    }
    return verdict();  // who raised the alarm died of it; perhaps another one takes it up
  } catch (const std::exception&) {
    return std::nullopt;  // the store is gone: there's nobody to be heard
  }
}

void Inquiry::tell(const Error& cause, const Position& position) noexcept {
  try {
    if (heard_ && verdict()) return;  // they know
    store_->set(position_key(rank_), to_text(position));
    store_->set(key("verdict"), to_text(cause));
    store_->set(key("alarm"), std::to_string(rank_));
  } catch (const std::exception&) {
    // The store is gone, and with it the way to the others; their own deadlines remain.
  }
}

}  // namespace acc::runtime::nccl
