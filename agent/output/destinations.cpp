#include "agent/output/destinations.hpp"

#include "agent/output/console_queue.hpp"

#include <algorithm>
#include <utility>

namespace acc::agent {

namespace {

constexpr Millis kStopBound{200};
constexpr Millis kLateWords{200};  // after the last finish()
constexpr Millis kSettle{200};     // for the end of a status line
constexpr Millis kLetGo{100};      // for a thread to give up what it writes
constexpr Millis kLook{100};       // at the limits of finish()
constexpr Millis kWaitIsTold{5'000};

}  // namespace

Destinations::Destinations(const ConsoleFacts& facts, const OutputOptions& options,
                           std::shared_ptr<JournalQueue> journal, Millis patience,
                           std::function<void()> wake)
    : files_limits_{options.files_queue_bytes, patience}, wake_{std::move(wake)} {
  const DropPolicy::Limits limits{options.console_queue_bytes, patience};
  const auto queue = [&](const char* where, int fd,
                         bool is_journal) -> std::shared_ptr<BatchQueue> {
    if (is_journal) return journal;
    return std::make_shared<ConsoleQueue>(where, fd, limits, wake_);
  };
  const bool is_one = facts.same_target || (facts.journal_out && facts.journal_err);
  out_ = queue(is_one ? "console" : "stdout", options.out, facts.journal_out);
  if (!is_one) err_ = queue("stderr", options.err, facts.journal_err);
}

LogFileQueue& Destinations::files(const std::string& where) {
  if (!files_) files_ = std::make_shared<LogFileQueue>(where, files_limits_, wake_);
  return *files_;
}

void Destinations::begin_round() {
  is_finished_ = false;
  for_each([](OutputQueue& queue) { queue.begin_round(); });
}

void Destinations::shorten_patience(Millis patience) {
  for_each([&](OutputQueue& queue) { queue.shorten_patience(patience); });
}

void Destinations::suspend() {
  for_each([](OutputQueue& queue) { queue.suspend(); });
}

void Destinations::resume() {
  for_each([](OutputQueue& queue) { queue.resume(); });
}

void Destinations::say(std::string_view text) {
  BatchQueue& to = console(true);
  std::string& batch = to.batch();
  const std::size_t mark = batch.size();
  if (to.takes_records()) {
    append_record(batch, text.substr(0, text.find_last_not_of('\n') + 1), journal_fields(job_id));
  } else {
    batch.append(text);
    if (!text.ends_with('\n')) batch.push_back('\n');
  }
  to.commit(mark, {this, true}, DropPolicy::Origin::agent);
  to.flush();
}

void Destinations::settle() {
  const Instant now = clock_now();
  console(true).wait_written(now, kSettle, now + kSettle);
}

void Destinations::flush() {
  out_->flush();
  if (err_) err_->flush();
  tell_news();
}

void Destinations::tell_news() {
  // A queue that was given up is empty, but has not recovered.
  if (!is_finished_) for_each([this](OutputQueue& queue) { tell_news(queue); });
}

void Destinations::tell_news(OutputQueue& queue) {
  const auto news = queue.news(clock_now());
  if (news == OutputQueue::News::none) return;
  if (news == OutputQueue::News::recovered) return say(program + ": " + queue.describe_recovery());
  if (news == OutputQueue::News::stuck) {
    // Where our own lines go: they would wait, too.
    return &queue == &console(true) ? void() : say(program + ": warning: " + queue.describe_stuck());
  }
  tell_losses(queue);
}

void Destinations::tell_losses(const OutputQueue& queue) {
  const auto losses = queue.losses();
  const bool is_known = &queue == files_.get() && is_log_dir_closed;
  if (losses && on_degraded && !is_known) on_degraded(*losses);
}

std::optional<Instant> Destinations::next_news() const {
  std::optional<Instant> next;
  for_each([&](const OutputQueue& queue) {
    const auto at = is_finished_ ? std::nullopt : queue.stuck_at();
    if (at && (!next || *at < *next)) next = at;
  });
  return next;
}

std::vector<Losses> Destinations::losses() const {
  std::vector<Losses> lost;
  for_each([&](const OutputQueue& queue) {
    if (auto losses = queue.losses()) lost.push_back(std::move(*losses));
  });
  return lost;
}

void Destinations::finish(const AskFlushLimits& limits) {
  is_finished_ = true;
  is_wait_told_ = false;
  const Instant from = clock_now();
  const auto write = [&](OutputQueue* queue) {
    if (queue != nullptr && !write_out(*queue, from, limits))
      queue->abandon(kLetGo, was_cut_off(*queue, from));
  };
  // Files first, then stderr, where our own lines are. All move at the same time, so the second has
  // not lost what the first one took.
  write(files_.get());
  write(err_.get());
  write(out_.get());
  // A reader may be found gone only now. What was given up is in the report's block.
  for_each([&](OutputQueue& queue) {
    const auto losses = queue.losses();
    if (losses && losses->reader_left && queue.news(clock_now()) == OutputQueue::News::degraded)
      tell_losses(queue);
  });
}

// It had not had the whole patience.
bool Destinations::was_cut_off(const OutputQueue& queue, Instant from) const {
  return clock_now() < std::max(from, queue.last_progress()) + files_limits_.patience;
}

// False: it must be given up.
bool Destinations::write_out(OutputQueue& queue, Instant from, const AskFlushLimits& limits) {
  for (;;) {
    const auto [patience, cap] = limits();
    const Instant now = clock_now();
    if (queue.wait_written(from, patience,
                           from + std::min<Instant::duration>(cap, now - from + kLook)))
      return true;
    const Instant later = clock_now();
    if (later - from >= cap || later - std::max(from, queue.last_progress()) >= patience)
      return false;
    if (later - from < kWaitIsTold || std::exchange(is_wait_told_, true)) continue;
    say(program + ": the workers are gone; waiting for " + queue.where() + " to take the last " +
        std::to_string(queue.queued() >> 10U) + " KiB (as long as it takes some within " +
        describe(patience) + "; Ctrl-C gives them up)");
  }
}

void Destinations::stop() {
  const Instant now = clock_now();
  if (is_finished_) console(true).wait_written(now, kLateWords, now + kLateWords);
  for_each([](OutputQueue& queue) { queue.stop(kStopBound); });
}

}  // namespace acc::agent
