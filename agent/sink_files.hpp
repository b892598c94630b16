#pragma once

#include "agent/log_files.hpp"
#include "agent/sink.hpp"

#include <deque>
#include <memory>
#include <string>
#include <string_view>

namespace acc::agent {

/// Writes all log files of the agent on one thread.
class FileSink final : public Sink {
 public:
  /// One file and what waits for it.
  class Slot {
   public:
    explicit Slot(LogFile file) : file_{std::move(file)} {}
    [[nodiscard]] const std::string& path() const { return file_.path(); }

   private:
    friend class FileSink;
    LogFile file_;                      // thread, once something was appended
    std::string next_;                  // filled by the loop, guarded by the sink's mutex
    bool listed_ = false;               // in ready_; guarded by the mutex
    bool ended_ = false;                // nothing more will come; guarded by the mutex
    std::size_t end_mark_ = 0;          // what the end counts for in the queue: a byte that isn't
    std::uint64_t dropped_at_end_ = 0;  // guarded by the mutex
    // Of the loop:
    std::uint64_t dropped_ = 0;    // bytes that were not queued, since the last that was
    bool queued_line_end_ = true;  // the last queued byte ended a line
    // Of the thread:
    Instant refused_at_{};
    std::uint64_t missing_bytes_ = 0;  // since the last byte that the file took
    int refused_ = 0;                  // errno
  };

  explicit FileSink(std::function<void()> wake) : Sink{std::move(wake)} {}
  void append(const std::shared_ptr<Slot>& slot, std::string_view bytes);
  /// Instead of append, when there is no room: the file will say how much is missing.
  void drop(Slot& slot, std::string_view bytes) {
    count_dropped(bytes);
    slot.dropped_ += bytes.size();
  }
  /// After the last append: says what is missing at the end of the file, if it takes that, and
  /// closes it, on the thread, when all is written.
  void end(std::shared_ptr<Slot> slot);

 private:
  void write_some(Lock& lock) override;
  void discard_queue() override;
  void write_out(Slot& slot, std::string_view bytes);
  void write_end(Slot& slot);
  bool mark_gap(Slot& slot, std::string_view& bytes);
  void refuse(Slot& slot, std::string_view bytes, int error);

  std::deque<std::shared_ptr<Slot>> ready_;  // guarded by mutex_
  std::size_t refusing_ = 0;                 // thread: slots whose last write was refused
};

}  // namespace acc::agent
