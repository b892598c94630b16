#include "agent/output/log_file_queue.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace acc::agent {

namespace {

// So much in one write: a slow disk shows that it moves.
constexpr std::size_t kPiece = std::size_t{256} << 10U;
constexpr Millis kFileRetry{1000};

std::string gap_line(std::uint64_t bytes, int error, bool at_line_start) {
  const std::string why =
      error != 0 ? std::strerror(error) : "the disk took nothing for longer than --output_patience";
  return std::string{at_line_start ? "" : "\n"} + "[acc-launch: " + std::to_string(bytes) +
         " bytes are missing here: " + why + "]\n";
}

// The bytes up to the end of the line that was cut: what follows a gap is a whole line.
std::size_t rest_of_line(std::string_view bytes) {
  const std::size_t end = bytes.find('\n');
  return end == std::string_view::npos ? bytes.size() : end + 1;
}

}  // namespace

void LogFileQueue::put(const std::shared_ptr<Slot>& slot, std::string_view bytes, Origin origin) {
  is_used_ = true;
  if (admit(origin, bytes.size()))
    append(slot, bytes);
  else
    drop(*slot, bytes);
}

void LogFileQueue::drop(Slot& slot, std::string_view bytes) {
  count_dropped(bytes);
  slot.dropped_ += bytes.size();
}

void LogFileQueue::append(const std::shared_ptr<Slot>& slot, std::string_view bytes) {
  std::string note;
  if (slot->dropped_ != 0) {
    const std::size_t skipped = rest_of_line(bytes);
    drop(*slot, bytes.substr(0, skipped));
    bytes.remove_prefix(skipped);
    if (!bytes.empty())
      note = gap_line(std::exchange(slot->dropped_, 0), 0, slot->queued_line_end_);
  }
  if (bytes.empty()) return;
  slot->queued_line_end_ = bytes.back() == '\n';
  Lock lock{mutex_};
  slot->next_.append(note).append(bytes);
  if (!slot->listed_) {
    slot->listed_ = true;
    ready_.push_back(slot);
  }
  added(lock, note.size() + bytes.size());
}

void LogFileQueue::end(std::shared_ptr<Slot> slot) {
  if (!is_used_) return;  // nothing was written, and no thread runs that could close it
  Lock lock{mutex_};
  slot->ended_ = true;
  slot->end_mark_ = 1;
  slot->dropped_at_end_ += std::exchange(slot->dropped_, 0);
  // Either way the thread is the last owner: a slow close() is not for the loop.
  if (slot->listed_) {
    slot.reset();
  } else {
    slot->listed_ = true;
    ready_.push_back(std::move(slot));
  }
  added(lock, 1);
}

// The slots stay listed: the thread closes those that have ended, should it come to it.
void LogFileQueue::discard_queue() {
  for (const auto& slot : ready_) {
    const std::size_t bytes = slot->next_.size();
    count_dropped(slot->next_);
    forget(bytes + std::exchange(slot->end_mark_, 0));
    (slot->ended_ ? slot->dropped_at_end_ : slot->dropped_) += bytes;
    std::string{}.swap(slot->next_);
  }
}

void LogFileQueue::write_some(Lock& lock) {
  std::shared_ptr<Slot> slot = std::move(ready_.front());
  ready_.pop_front();
  slot->listed_ = false;
  writing_.swap(slot->next_);
  const bool is_end = slot->ended_;
  const std::size_t end_mark = std::exchange(slot->end_mark_, 0);
  lock.unlock();
  std::string_view rest = writing_;
  while (!rest.empty() && !is_cut_short()) {
    const std::string_view piece = rest.substr(0, kPiece);
    write_out(*slot, piece);
    rest.remove_prefix(piece.size());
    written_.store(writing_.size() - rest.size());
  }
  slot->missing_bytes_ += rest.size();
  if (is_end) write_end(*slot);
  slot.reset();  // not with the lock held: it may be the last owner, and close() may take its time
  if (end_mark != 0) progressed(end_mark);
  lock.lock();
  end_batch(lock, rest);
}

void LogFileQueue::write_out(Slot& slot, std::string_view bytes) {
  if (slot.refused_ != 0 && clock_now() < slot.refused_at_ + kFileRetry) {
    slot.missing_bytes_ += bytes.size();
    return lose(bytes, slot.refused_);
  }
  if (slot.missing_bytes_ != 0 && !mark_gap(slot, bytes)) return;
  const LogFile::Written written = slot.file_.append(bytes);
  if (written.bytes != 0) progressed(written.bytes);
  if (written.error != 0) return refuse(slot, bytes.substr(written.bytes), written.error);
  if (std::exchange(slot.refused_, 0) != 0) --refusing_;
  if (refusing_ == 0) set_refused(0);
}

// Tries immediately, whenever the last refusal was: this is the last chance.
void LogFileQueue::write_end(Slot& slot) {
  slot.missing_bytes_ += slot.dropped_at_end_;
  if (slot.missing_bytes_ != 0)
    slot.file_.append(gap_line(slot.missing_bytes_, slot.refused_, slot.file_.at_line_start()));
  // Whether the disk takes data again shows with the other files.
  if (slot.refused_ != 0) --refusing_;
}

// After a gap the file goes on with a whole line, and says what is missing. False: it still takes
// nothing.
bool LogFileQueue::mark_gap(Slot& slot, std::string_view& bytes) {
  const std::size_t skipped = rest_of_line(bytes);
  slot.missing_bytes_ += skipped;
  lose(bytes.substr(0, skipped), slot.refused_);
  bytes.remove_prefix(skipped);
  if (bytes.empty()) return false;
  const std::string note = gap_line(slot.missing_bytes_, slot.refused_, slot.file_.at_line_start());
  const LogFile::Written written = slot.file_.append(note);
  if (written.error != 0) {
    refuse(slot, bytes, written.error);
    return false;
  }
  slot.missing_bytes_ = 0;
  return true;
}

void LogFileQueue::refuse(Slot& slot, std::string_view bytes, int error) {
  slot.missing_bytes_ += bytes.size();
  slot.refused_at_ = clock_now();
  if (std::exchange(slot.refused_, error) == 0) ++refusing_;
  lose(bytes, error);
  set_refused(error);
}

}  // namespace acc::agent
