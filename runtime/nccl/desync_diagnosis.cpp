#include "runtime/nccl/desync_diagnosis.hpp"

#include "runtime/net/error_text.hpp"

#include <algorithm>
#include <thread>

namespace acc::runtime::nccl {
namespace {

using namespace std::chrono_literals;

/// How often the store is polled during a diagnosis.
constexpr auto kStep = 25ms;
/// How much longer the ranks wait for the verdict than the collector does for their progress.
constexpr auto kForVerdict = 250ms;
/// How long a broken group waits for ranks that have yet to read the cause, beyond their polling
/// period.
constexpr auto kForReaders = 100ms;

}  // namespace

DesyncDiagnosis::DesyncDiagnosis(std::shared_ptr<Store> store, const GroupFacts& facts)
    : store_{std::move(store)},
      rank_{facts.rank},
      size_{facts.size},
      prefix_{facts.key + "/nccl/"},
      period_{std::clamp<Millis>(Millis{4} * facts.size, 100ms, 2000ms)},
      window_{3 * period_ + 150ms} {}

std::string DesyncDiagnosis::key(const char* name) const { return prefix_ + name; }
std::string DesyncDiagnosis::progress_key(int rank) const {
  return prefix_ + "position/" + std::to_string(rank);
}

void DesyncDiagnosis::open(const OverdueCall& overdue, Clock::time_point now) {
  const std::lock_guard lock{mutex_};
  if (overdue_) return;
  overdue_ = overdue;
  give_up_ = now + window_ + kForVerdict;
}

bool DesyncDiagnosis::is_open() const {
  const std::lock_guard lock{mutex_};
  return overdue_.has_value();
}

std::optional<OverdueCall> DesyncDiagnosis::overdue() const {
  const std::lock_guard lock{mutex_};
  return overdue_;
}

std::optional<Error> DesyncDiagnosis::answer(Clock::time_point now) const {
  const std::lock_guard lock{mutex_};
  if (!overdue_ || now < give_up_) return std::nullopt;
  // The collector has died, or the talker hangs in the store: nothing is known of the others.
  std::vector<std::optional<RankProgress>> none(static_cast<std::size_t>(size_));
  none[static_cast<std::size_t>(rank_)] = RankProgress{.rank = rank_, .enqueued = overdue_->what};
  return diagnose(*overdue_, none);
}

std::optional<Error> DesyncDiagnosis::step(const OwnProgress& own_progress) noexcept {
  const auto now = Clock::now();
  const auto overdue = this->overdue();
  if (now < next_step_ && !(overdue && part_ == Part::bystander)) return std::nullopt;
  next_step_ = now + (part_ == Part::bystander ? Clock::duration{period_} : kStep);
  try {
    if (part_ == Part::bystander) {
      if (overdue) {
        raise_alarm(*overdue, own_progress());
      } else {
        look_for_alarm(own_progress);
      }
      return std::nullopt;
    }
    return part_ == Part::collector ? collect() : verdict();
  } catch (const std::exception&) {
    return std::nullopt;  // the store is gone: only what this rank knows remains
  }
}

void DesyncDiagnosis::raise_alarm(const OverdueCall&, const RankProgress& own) {
  store_->set(progress_key(rank_), to_text(own));
  part_ = store_->add(key("alarms"), 1) == 1 ? Part::collector : Part::contributor;
  next_step_ = Clock::now() + kStep;
  if (part_ == Part::contributor) return;
  progress_of_.resize(static_cast<std::size_t>(size_));
  progress_of_[static_cast<std::size_t>(rank_)] = own;
  collect_until_ = Clock::now() + window_;
  store_->set(key("alarm"), std::to_string(rank_));
}

void DesyncDiagnosis::look_for_alarm(const OwnProgress& own_progress) {
  if (!store_->peek(key("alarm"))) return;
  store_->set(progress_key(rank_), to_text(own_progress()));
  part_ = Part::contributor;
  next_step_ = Clock::now() + kStep;
}

std::optional<Error> DesyncDiagnosis::collect() {
  // An error of another kind may have been reported meanwhile; it says more than a timeout.
  if (auto reported = verdict()) return reported;
  bool all = true;
  for (int rank = 0; rank < size_; ++rank) {
    auto& progress = progress_of_[static_cast<std::size_t>(rank)];
    if (progress) continue;
    if (const auto text = store_->peek(progress_key(rank))) progress = parse_progress(*text);
    if (progress && progress->rank != rank) progress.reset();
    all = all && progress.has_value();
  }
  if (!all && Clock::now() < collect_until_) return std::nullopt;
  auto found = diagnose(*overdue(), progress_of_);
  store_->set(key("verdict"), to_text(found));
  return found;
}

std::optional<Error> DesyncDiagnosis::verdict() {
  const auto text = store_->peek(key("verdict"));
  return text ? parse_error(*text) : std::nullopt;
}

void DesyncDiagnosis::tell(const Error& cause, const RankProgress& progress) noexcept {
  try {
    if (verdict()) return;  // the others know already
    store_->set(progress_key(rank_), to_text(progress));
    store_->set(key("verdict"), to_text(cause));
    store_->set(key("alarm"), std::to_string(rank_));
  } catch (const std::exception&) {
    // The store is gone, and with it the way to the others; their own deadlines remain.
  }
}

void DesyncDiagnosis::acknowledge() noexcept {
  try {
    (void)store_->add(key("heard"), 1);
  } catch (const std::exception&) {  // the store is gone
  }
}

void DesyncDiagnosis::linger() const noexcept {
  const auto deadline = Clock::now() + period_ + kForReaders;
  try {
    while (store_->add(key("heard"), 0) < size_ && Clock::now() < deadline) {
      std::this_thread::sleep_for(kStep);
    }
  } catch (const std::exception&) {  // the store is gone
  }
}

}  // namespace acc::runtime::nccl
