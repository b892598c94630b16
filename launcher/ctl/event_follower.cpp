#include "launcher/ctl/event_follower.hpp"

#include "agent/fanout/event_mark.hpp"
#include "common/text.hpp"
#include "launcher/ctl/bridge_requests.hpp"

#include <cstddef>
#include <string_view>
#include <utility>

namespace acc::ctl {

namespace {

constexpr Millis kEventsPause{1'000};  // no events are there yet, or the stream broke

}  // namespace

std::string take_event_marks(std::string& held, const std::string& token) {
  std::string marks;
  std::size_t from = 0;
  for (auto end = held.find('\n'); end != std::string::npos; end = held.find('\n', from)) {
    const auto line = std::string_view{held}.substr(from, end - from);
    const bool is_of_file = line.find(R"("event":"file_continued")") != std::string_view::npos;
    if (!is_of_file) marks += agent::event_mark(line, token);
    from = end + 1;
  }
  held.erase(0, from);
  return marks;
}

void EventFollower::follow(const std::string& socket, const BridgeWish& wish,
                           const std::string& job, bool is_over, Instant now) {
  if (is_over) again_.reset();
  if (!is_wanted_ || is_over || exchange_ || is_whole_ || job.empty()) return;
  if (again_ && now < *again_) return;
  again_.reset();
  has_begun_ = false;
  auto exchange = NonblockingExchange::begin(socket, {.target = events_target(wish, job, offset_)});
  if (exchange) {
    exchange_ = std::move(*exchange);
  } else {
    again_ = now + kEventsPause;
  }
}

std::string EventFollower::read(const std::string& token, Instant now) {
  std::string piece;
  const auto got = exchange_->receive(piece);
  const bool is_stream = exchange_->status() == kHttpOk;
  if (is_stream && !std::exchange(has_begun_, true)) {
    // Above what was asked for, if the oldest events are kept no longer.
    const auto from =
        parse_number<std::uint64_t>(exchange_->header("x-acc-from")).value_or(offset_);
    if (std::exchange(offset_, from) != from) held_.clear();
  }
  if (is_stream) {
    held_ += piece;
    offset_ += piece.size();
  }
  if (got == Received::end || got == Received::lost) {
    is_whole_ = is_stream && got == Received::end;
    exchange_.reset();
    if (!is_whole_) again_ = now + kEventsPause;
  }
  return take_event_marks(held_, token);
}

}  // namespace acc::ctl
