#include "agent/event_log.hpp"

#include "agent/output/event_file_queue.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include <utility>

namespace acc::agent {

namespace {

constexpr std::size_t kEventQueueBytes = std::size_t{4} << 20U;
constexpr Millis kEventStop{200};
constexpr Millis kEventLetGo{100};

}  // namespace

EventLog::EventLog(boost::asio::io_context& io, const std::string& path, std::uint64_t largest,
                   Millis patience, std::function<void(const Losses&)> on_degraded)
    : on_degraded_{std::move(on_degraded)} {
  // Called on the writer thread.
  auto wake = [&io, on_wake = alive_.bind([this] { tell_news(); })]() mutable {
    boost::asio::post(io, on_wake);
  };
  queue_ = std::make_shared<EventFileQueue>(
      path, largest, DropPolicy::Limits{kEventQueueBytes, patience}, std::move(wake));
}

EventLog::~EventLog() { queue_->stop(kEventStop); }

// Admitted as a worker's output is, not as a line of our own: those may fill twice the queue.
void EventLog::write(std::string_view line) {
  std::string& batch = queue_->batch();
  const std::size_t mark = batch.size();
  batch.append(line).push_back('\n');
  queue_->ask(clock_now());
  queue_->commit(mark, {this, false}, DropPolicy::Origin::worker);
  queue_->flush();
  tell_news();
}

void EventLog::tell_news() {
  if (queue_->news(clock_now()) != OutputQueue::News::degraded) return;
  if (const auto lost = queue_->losses(); lost && on_degraded_) on_degraded_(*lost);
}

bool EventLog::finish(FlushLimits limits) {
  const Instant from = clock_now();
  if (queue_->wait_written(from, limits.patience, from + limits.cap)) return true;
  queue_->abandon(kEventLetGo, true);
  return false;
}

std::optional<Losses> EventLog::losses() const { return queue_->losses(); }

}  // namespace acc::agent
