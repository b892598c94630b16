#include "agent/orphan_reaper.hpp"

#include "agent/containment.hpp"

#include <sys/wait.h>

#include <utility>

namespace acc::agent {

OrphanReaper::OrphanReaper(boost::asio::io_context& io, IsOther is_other, Pace pace)
    : is_other_{std::move(is_other)}, pace_{pace}, turn_{io} {}

void OrphanReaper::reap_beside_dead() {
  is_due_ = true;
  if (!is_busy_) begin_walk();
}

void OrphanReaper::begin_walk() {
  is_busy_ = true;
  is_due_ = false;
  children_ = children_of_this_process();
  next_ = 0;
  go_on();
}

void OrphanReaper::go_on() {
  const auto end = std::chrono::steady_clock::now() + pace_.slice;
  while (next_ < children_.size()) {
    const pid_t pid = children_[next_++];
    if (!is_other_(pid)) ::waitpid(pid, nullptr, WNOHANG);
    if (std::chrono::steady_clock::now() >= end) break;
  }
  const bool is_over = next_ >= children_.size();
  turn_.expires_after(is_over ? pace_.pause : std::chrono::milliseconds{0});
  turn_.async_wait([this, is_over](boost::system::error_code error) {
    if (error) return;
    if (!is_over) return go_on();
    is_busy_ = false;
    if (is_due_) begin_walk();
  });
}

}  // namespace acc::agent
