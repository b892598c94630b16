#include "agent/daemon/event_log.hpp"

#include "agent/daemon/on_pool.hpp"
#include "common/log.hpp"
#include "common/text.hpp"

#include <boost/asio/post.hpp>

#include <unistd.h>

#include <algorithm>
#include <utility>

namespace acc::agent::daemon {

namespace asio = boost::asio;

namespace {

/// So many are set aside with one write.
constexpr std::uint64_t kNumbers = 65536;

/// Of one length, so that a full disk has room for the next one.
std::string events_note(std::uint64_t next) {
  constexpr std::size_t kDigits = 20;
  const auto digits = std::to_string(next);
  return std::string(kDigits - std::min(kDigits, digits.size()), '0') + digits;
}

}  // namespace

asio::awaitable<Result<void>> EventLog::open(StateFolder& folder) {
  folder_ = &folder;
  const auto first = folder_->read_note("events");
  // From 1 again, readers that go on behind a higher number would see nothing.
  if (first.has_error()) co_return first.error();
  ring_ =
      EventRing{std::max<std::uint64_t>(1, parse_number<std::uint64_t>(trim(*first)).value_or(1))};
  reserved_ = ring_.next() + kNumbers;
  std::function<Result<void>()> reserve = [this, number = reserved_] {
    return folder_->write_note("events", events_note(number));
  };
  // A node whose disk is full needs its daemon: to stop jobs, and to remove ended ones.
  if (auto written = co_await on_pool(files_, std::move(reserve)); written.has_error())
    log::error("events_not_reserved", {{"why", written.error().what}});
  co_return Result<void>{};
}

void EventLog::report(const std::string& kind, const Job* job, const std::string& text) {
  JobEvent event;
  event.time_ms = wall_ms();
  event.kind = kind;
  event.text = text;
  if (job != nullptr) {
    event.job = job->id();
    event.uid = job->stored.uid;
  } else {
    event.uid = ::geteuid();
  }
  log::info("job_event", {{"kind", kind}, {"job", event.job}, {"text", text}});
  const JobEvent added = ring_.add(std::move(event));
  reserve_numbers();
  for (const auto& [number, listener] : std::map{told}) {
    if (told.contains(number)) listener(added);
  }
}

void EventLog::reserve_numbers() {
  if (ring_.next() + kNumbers / 2 < reserved_) return;
  reserved_ += kNumbers;
  asio::post(files_, [this, number = reserved_] {
    (void)folder_->write_note("events", events_note(number));
  });
}

}  // namespace acc::agent::daemon
