#include "agent/stalled_nodes.hpp"

#include <chrono>
#include <string>
#include <utility>

namespace acc::agent {

using rendezvous::KvReply;
using rendezvous::KvRequest;

namespace {

constexpr Millis kUntilStalled = std::chrono::hours{24};
constexpr Millis kNow{0};
// Another coordinator begins with an empty store, or there is none.
constexpr Millis kPause{5'000};

std::string key_of(std::uint32_t node) { return "acc/stalled/" + std::to_string(node); }

}  // namespace

void StalledNodes::round_started(NodeRank own, std::uint32_t nodes) {
  own_ = own;
  nodes_ = nodes;
  is_told_ = is_asking_ = false;  // in another store
  on_all_ = nullptr;
  ++rounds_;
}

void StalledNodes::round_ended(bool tells) {
  on_all_ = nullptr;
  ++rounds_;
  if (tells && nodes_ > 1) tell(true);
}

void StalledNodes::stalled(std::function<void()> on_all) {
  on_all_ = std::move(on_all);
  ++turn_;
  tell(true);
  if (!is_asking_) wait_for(0, kUntilStalled);
}

void StalledNodes::go_on() {
  on_all_ = nullptr;
  if (is_told_) tell(false);
}

void StalledNodes::tell(bool is_stalled) {
  is_told_ = is_stalled;
  KvRequest request;
  request.op = is_stalled ? KvRequest::Op::set : KvRequest::Op::remove;
  request.key = key_of(own_.value());
  ask_(std::move(request), [](const KvReply&) {});
}

// What was waited for may be over when the last one stalls: all of them are looked at once more,
// without waiting.
void StalledNodes::wait_for(std::uint32_t node, Millis patience) {
  if (node == own_.value()) ++node;
  if (node >= nodes_) {
    if (patience > kNow) return wait_for(0, kNow);
    return std::exchange(on_all_, nullptr)();
  }
  KvRequest next;
  next.op = KvRequest::Op::get;
  next.key = key_of(node);
  next.timeout = patience;
  is_asking_ = true;
  ask_(std::move(next),
       alive_.bind([this, node, patience, turn = turn_, rounds = rounds_](const KvReply& reply) {
         if (rounds != rounds_) return;
         is_asking_ = false;
         if (!on_all_) return;
         turn == turn_ ? on_answer(node, patience, reply) : wait_for(0, kUntilStalled);
       }));
}

void StalledNodes::on_answer(std::uint32_t node, Millis patience, const KvReply& reply) {
  using Status = KvReply::Status;
  if (reply.status == Status::ok) return wait_for(node + 1, patience);
  if (reply.status == Status::missing || reply.status == Status::timed_out)
    return wait_for(0, kUntilStalled);
  pause_.expires_after(kPause);
  pause_.async_wait(alive_.bind([this, rounds = rounds_](boost::system::error_code cancelled) {
    if (cancelled || rounds != rounds_ || !on_all_ || is_asking_) return;
    tell(true);
    wait_for(0, kUntilStalled);
  }));
}

}  // namespace acc::agent
