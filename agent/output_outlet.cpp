#include "agent/output_outlet.hpp"

#include "common/text.hpp"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

namespace acc::agent {

namespace {

constexpr std::size_t kBatch = std::size_t{128} << 10U;  // handed over before the end of the turn
constexpr std::chrono::seconds kQuiet{5};  // between two words about recoveries of one sink

// Of what earlier rounds left in the queue so much may be added to the limit: a job that restarts
// while its reader pauses loses nothing, and memory stays bounded.
constexpr std::size_t kCarried = std::size_t{12} << 20U;

std::string reason(int error, const DropPolicy& policy, bool was_cut_off) {
  if (error == EPIPE) return "its reader went away";
  if (error != 0) return std::strerror(error);
  if (was_cut_off) return "it had not taken all when the job ended";
  return "it took nothing for " + describe(policy.patience()) +
         (policy.is_shortened() ? " while the job was being stopped" : "");
}

}  // namespace

DropPolicy::Verdict Outlet::ask(Instant now) {
  if (!sink_) return DropPolicy::Verdict::accept;
  const auto verdict = policy_.ask(now, {sink_->queued(), sink_->last_progress()});
  if (verdict != DropPolicy::Verdict::accept) sink_->wake_when_below(limits_.queue_bytes / 2);
  return verdict;
}

Outlet::News Outlet::news(Instant now) {
  if (!sink_) return News::none;
  if (policy_.is_dropping()) ask(now);  // it may have drained
  const bool is_losing = policy_.is_dropping() || sink_->refused() != 0;
  if (is_losing) {
    was_losing_ = true;
    if (std::exchange(is_told_, true)) return News::none;
    return News::degraded;
  }
  if (!was_losing_ || now < last_recovery_ + kQuiet) return News::none;
  was_losing_ = false;
  last_recovery_ = now;
  return News::recovered;
}

std::optional<Losses> Outlet::losses() const {
  if (!sink_) return std::nullopt;
  const LossCount lost = sink_->lost();
  if (lost.bytes == 0 && !policy_.is_dropping()) return std::nullopt;
  Losses losses;
  losses.where = where_;
  losses.why = reason(lost.error, policy_, was_cut_off_);
  losses.reader_left = lost.error == EPIPE;
  if (lost.error == 0 && !was_cut_off_ && !policy_.is_shortened())
    losses.cure = "a longer --output_patience waits for it";
  losses.bytes = lost.bytes;
  losses.lines = lost.lines;
  losses.since = lost.since;
  return losses;
}

void Outlet::begin_round() {
  reserved_ = 0;
  carried_ = std::min(queued(), kCarried);
  policy_.restore();
}

std::string Outlet::describe_recovery() {
  const LossCount lost = sink_->lost();
  const LossCount before = std::exchange(lost_before_, lost);
  return where_ + " works again; lost meanwhile: " + plural(lost.lines - before.lines, "line") +
         ", " + plural(lost.bytes - before.bytes, "byte") + " (" +
         reason(lost.error, policy_, was_cut_off_) + ")";
}

bool Outlet::wait_written(Instant from, Millis patience, Instant until) {
  return !sink_ || sink_->wait_written(from, patience, until);
}

void Outlet::abandon(Millis bound, bool at_the_end) {
  was_cut_off_ = was_cut_off_ || at_the_end;
  if (sink_) sink_->abandon(bound);
}

void Outlet::stop(Millis bound) {
  if (sink_) sink_->stop(bound);
}

void ConsoleOutlet::commit(std::size_t mark, Writer writer, Fate fate) {
  if (batch_.size() == mark) return;
  if (fate == Fate::queue_last) admitted_last(batch_.size() - mark);
  if (fate == Fate::drop || (fate == Fate::queue && is_overfull())) {
    ensure_sink();
    batch_sink_->count_dropped(std::string_view{batch_}.substr(mark));
    batch_.resize(mark);
    line_owner_ = nullptr;
    return;
  }
  if (writer.is_record) return;
  if (is_mid_line_ && line_owner_ != writer.who &&
      (writer.needs_fresh_line || line_owner_ == nullptr))
    batch_.insert(mark, 1, '\n');
  is_mid_line_ = batch_.back() != '\n' && batch_.back() != '\r';
  line_owner_ = writer.who;
  if (batch_.size() >= kBatch) flush();
}

void ConsoleOutlet::ended(const void* who) {
  if (line_owner_ == who) line_owner_ = nullptr;
}

void ConsoleOutlet::flush() {
  if (batch_.empty()) return;
  ensure_sink();
  batch_sink_->push(batch_);
}

void ConsoleOutlet::ensure_sink() {
  if (batch_sink_) return;
  batch_sink_ = make_();
  set_sink(batch_sink_);
}

void FilesOutlet::put(const std::shared_ptr<FileSink::Slot>& slot, std::string_view bytes,
                      Fate fate) {
  if (!files_) {
    files_ = std::make_shared<FileSink>(wake_);
    set_sink(files_);
  }
  if (fate == Fate::queue_last) admitted_last(bytes.size());
  if (fate == Fate::drop || (fate == Fate::queue && is_overfull()))
    files_->drop(*slot, bytes);
  else
    files_->append(slot, bytes);
}

void FilesOutlet::end(std::shared_ptr<FileSink::Slot> slot) {
  if (files_) files_->end(std::move(slot));
}

}  // namespace acc::agent
