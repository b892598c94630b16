#include "agent/sink_files.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

namespace acc::agent {

namespace {

constexpr std::size_t kSpare = std::size_t{512} << 10U;  // a larger buffer is given back after use
constexpr Millis kRetry{1000};

std::string gap_line(std::uint64_t bytes, int error, bool at_line_start) {
  const std::string why = error != 0 ? std::strerror(error) : "the disk was too slow";
  return std::string{at_line_start ? "" : "\n"} + "[acc-launch: " + std::to_string(bytes) +
         " bytes are missing here: " + why + "]\n";
}

// The bytes up to the end of the line that was cut: what follows a gap is a whole line.
std::size_t rest_of_line(std::string_view bytes) {
  const std::size_t end = bytes.find('\n');
  return end == std::string_view::npos ? bytes.size() : end + 1;
}

}  // namespace

void FileSink::append(const std::shared_ptr<Slot>& slot, std::string_view bytes) {
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

void FileSink::write_some(Lock& lock) {
  const std::shared_ptr<Slot> slot = std::move(ready_.front());
  ready_.pop_front();
  slot->listed_ = false;
  writing_.swap(slot->next_);
  lock.unlock();
  write_out(*slot, writing_);
  writing_.clear();
  if (writing_.capacity() > kSpare) std::string{}.swap(writing_);
  lock.lock();
}

void FileSink::write_out(Slot& slot, std::string_view bytes) {
  if (slot.refused_ != 0 && std::chrono::steady_clock::now() < slot.refused_at_ + kRetry) {
    slot.missing_bytes_ += bytes.size();
    return lose(bytes, slot.refused_);
  }
  if (slot.missing_bytes_ != 0 && !mark_gap(slot, bytes)) return;
  const LogFile::Written written = slot.file_.append(bytes);
  if (written.bytes != 0) progressed(written.bytes);
  if (written.error != 0) return refuse(slot, bytes.substr(written.bytes), written.error);
  if (std::exchange(slot.refused_, 0) != 0 && --refusing_ == 0) set_refused(0);
}

// After a gap the file goes on with a whole line, and says what is missing. False: it still takes
// nothing.
bool FileSink::mark_gap(Slot& slot, std::string_view& bytes) {
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

void FileSink::refuse(Slot& slot, std::string_view bytes, int error) {
  slot.missing_bytes_ += bytes.size();
  slot.refused_at_ = std::chrono::steady_clock::now();
  if (std::exchange(slot.refused_, error) == 0) ++refusing_;
  lose(bytes, error);
  set_refused(error);
}

}  // namespace acc::agent
