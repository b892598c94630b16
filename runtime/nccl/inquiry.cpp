#include "runtime/nccl/inquiry.hpp"

#include "runtime/nccl/assembly.hpp"

#include <algorithm>
#include <thread>

namespace acc::runtime::nccl {
namespace {

using namespace std::chrono_literals;

/// While an inquiry runs, the store is asked so often for what is still missing.
constexpr auto kStep = 25ms;
/// What the ranks wait longer for the verdict than the collector does for their positions.
constexpr auto kForVerdict = 250ms;
/// And the end of a broken group for those who have yet to read why, beyond the time after which
/// they look.
constexpr auto kForReaders = 100ms;

}  // namespace

Inquiry::Inquiry(std::shared_ptr<Store> store, const GroupFacts& facts)
    : store_{std::move(store)},
      rank_{facts.rank},
      size_{facts.size},
      prefix_{facts.key + "/nccl/"},
      period_{std::clamp<Millis>(Millis{4} * facts.size, 100ms, 2000ms)},
      window_{3 * period_ + 150ms} {}

std::string Inquiry::key(const char* name) const { return prefix_ + name; }
std::string Inquiry::position_key(int rank) const {
  return prefix_ + "position/" + std::to_string(rank);
}

void Inquiry::open(const Stuck& stuck, Clock::time_point now) {
  const std::lock_guard lock{mutex_};
  if (stuck_) return;
  stuck_ = stuck;
  give_up_ = now + window_ + kForVerdict;
}

bool Inquiry::is_open() const {
  const std::lock_guard lock{mutex_};
  return stuck_.has_value();
}

std::optional<Stuck> Inquiry::stuck() const {
  const std::lock_guard lock{mutex_};
  return stuck_;
}

std::optional<Error> Inquiry::answer(Clock::time_point now) const {
  const std::lock_guard lock{mutex_};
  if (!stuck_ || now < give_up_) return std::nullopt;
  // Who collects has died, or the talker hangs in the store: no word of the others to be had.
  std::vector<std::optional<Position>> nobody(static_cast<std::size_t>(size_));
  nobody[static_cast<std::size_t>(rank_)] = Position{.rank = rank_, .enqueued = stuck_->what};
  return diagnose(*stuck_, nobody);
}

std::optional<Error> Inquiry::turn(const Whereabouts& whereabouts) noexcept {
  const auto now = Clock::now();
  const auto stuck = this->stuck();
  if (now < next_turn_ && !(stuck && part_ == Part::bystander)) return std::nullopt;
  next_turn_ = now + (part_ == Part::bystander ? Clock::duration{period_} : kStep);
  try {
    if (part_ == Part::bystander) {
      if (stuck) {
        raise_alarm(*stuck, whereabouts());
      } else {
        look_for_alarm(whereabouts);
      }
      return std::nullopt;
    }
    return part_ == Part::collector ? collect() : verdict();
  } catch (const std::exception&) {
    return std::nullopt;  // the store is gone: what this rank knows by itself has to do
  }
}

void Inquiry::raise_alarm(const Stuck&, const Position& own) {
  store_->set(position_key(rank_), to_text(own));
  part_ = store_->add(key("alarms"), 1) == 1 ? Part::collector : Part::witness;
  next_turn_ = Clock::now() + kStep;
  if (part_ == Part::witness) return;
  positions_.resize(static_cast<std::size_t>(size_));
  positions_[static_cast<std::size_t>(rank_)] = own;
  collect_until_ = Clock::now() + window_;
  store_->set(key("alarm"), std::to_string(rank_));
}

void Inquiry::look_for_alarm(const Whereabouts& whereabouts) {
  if (!store_->peek(key("alarm"))) return;
  store_->set(position_key(rank_), to_text(whereabouts()));
  part_ = Part::witness;
  next_turn_ = Clock::now() + kStep;
}

std::optional<Error> Inquiry::collect() {
  // An error of another kind may have been told meanwhile; it says more than a timeout.
  if (auto told = verdict()) return told;
  bool all = true;
  for (int rank = 0; rank < size_; ++rank) {
    auto& position = positions_[static_cast<std::size_t>(rank)];
    if (position) continue;
    if (const auto text = store_->peek(position_key(rank))) position = parse_position(*text);
    if (position && position->rank != rank) position.reset();
    all = all && position.has_value();
  }
  if (!all && Clock::now() < collect_until_) return std::nullopt;
  auto found = diagnose(*stuck(), positions_);
  store_->set(key("verdict"), to_text(found));
  return found;
}

std::optional<Error> Inquiry::verdict() {
  const auto text = store_->peek(key("verdict"));
  return text ? parse_error(*text) : std::nullopt;
}

void Inquiry::tell(const Error& cause, const Position& position) noexcept {
  try {
    if (verdict()) return;  // they know
    store_->set(position_key(rank_), to_text(position));
    store_->set(key("verdict"), to_text(cause));
    store_->set(key("alarm"), std::to_string(rank_));
  } catch (const std::exception&) {
    // The store is gone, and with it the way to the others; their own deadlines remain.
  }
}

void Inquiry::acknowledge() noexcept {
  try {
    (void)store_->add(key("heard"), 1);
  } catch (const std::exception&) {  // the store is gone
  }
}

void Inquiry::linger() const noexcept {
  const auto deadline = Clock::now() + period_ + kForReaders;
  try {
    while (store_->add(key("heard"), 0) < size_ && Clock::now() < deadline) {
      std::this_thread::sleep_for(kStep);
    }
  } catch (const std::exception&) {  // the store is gone
  }
}

}  // namespace acc::runtime::nccl
