#include "agent/daemon/quota_owners.hpp"

#include "common/log.hpp"

#include <boost/asio/post.hpp>

#include <exception>
#include <utility>

namespace acc::agent::daemon {

namespace asio = boost::asio;

QuotaOwners::QuotaOwners(asio::io_context& io, uid_t own, HasAccount has_account,
                         MakePool make_pool)
    : io_{io}, own_{own}, has_account_{std::move(has_account)}, make_pool_{std::move(make_pool)} {}

QuotaOwners::~QuotaOwners() {
  if (!pool_) return;
  pool_->stop();  // but for the one that is under way
  pool_->join();
}

std::unique_ptr<asio::thread_pool> QuotaOwners::one_thread() {
  return std::make_unique<asio::thread_pool>(1);
}

// In a container with a limit of processes a job of anybody's may have used up all of them.
bool QuotaOwners::has_pool() {
  try {
    if (!pool_) pool_ = make_pool_();
  } catch (const std::exception& error) {
    tell_shortage(error.what());
  }
  return pool_ != nullptr;
}

// A user who uses up all threads can also connect without end.
void QuotaOwners::tell_shortage(const char* why) {
  const auto now = clock_now();
  if (now < next_line_) {
    ++not_logged_;
    return;
  }
  next_line_ = now + kQuiet;
  log::error("account_not_looked_up",
             {{"why", why}, {"not_logged", std::exchange(not_logged_, 0)}});
}

void QuotaOwners::find(uid_t uid, std::function<void(bool)> told) {
  if (uid == 0 || uid == own_ || with_.contains(uid)) return told(true);
  if (const auto at = without_.find(uid); at != without_.end() && clock_now() < at->second)
    return told(false);
  const bool has_room = waiting_.size() < kMostUids || waiting_.contains(uid);
  if (!has_room || waiting_count_ >= kMostWaiting || !has_pool()) return told(false);
  auto& waiting = waiting_[uid];
  if (waiting.size() >= kMostWaitingOfOne) return told(false);
  ++waiting_count_;
  waiting.push_back(std::move(told));
  if (waiting.size() > 1) return;
  asio::post(*pool_, [this, uid, &io = io_, look = has_account_,
                      watch = alive_.watch()] {  // the destructor waits for it
    const bool has_account = look(uid);
    asio::post(io, [this, uid, has_account, watch] {
      if (watch.is_alive()) found(uid, has_account);
    });
  });
}

void QuotaOwners::found(uid_t uid, bool has_account) {
  constexpr Millis kForget{10'000};  // until an account that was made meanwhile is seen
  constexpr std::size_t kMostKnown = 4096;
  if (with_.size() >= kMostKnown) with_.clear();
  if (without_.size() >= kMostKnown) without_.clear();
  if (has_account)
    with_.insert(uid);
  else
    without_[uid] = clock_now() + kForget;
  const auto waiting = std::exchange(waiting_[uid], {});
  waiting_.erase(uid);
  waiting_count_ -= waiting.size();
  if (waiting_.empty()) pool_.reset();  // its thread has nothing left to do
  for (const auto& told : waiting) told(has_account);
}

}  // namespace acc::agent::daemon
