#pragma once

#include "agent/output/log_file.hpp"
#include "agent/output/output_queue.hpp"

#include <deque>
#include <memory>
#include <string>
#include <string_view>

namespace acc::agent {

/// Writes all log files of the agent on one thread.
class LogFileQueue final : public OutputQueue {
 public:
  /// One file and what waits for it.
  class Slot {
   public:
    explicit Slot(LogFile file) : file_{std::move(file)} {}

   private:
    friend class LogFileQueue;
    LogFile file_;                      // thread, once something was appended
    std::string next_;                  // filled by the loop, guarded by the queue's mutex
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

  LogFileQueue(std::string where, DropPolicy::Limits limits, std::function<void()> wake)
      : OutputQueue{std::move(where), limits, std::move(wake)} {}
  /// What is not admitted is missing in the file; a line in it says how much.
  void put(const std::shared_ptr<Slot>& slot, std::string_view bytes, Origin origin);
  /// After the last put(): says what is missing at the end of the file, if it takes that, and
  /// closes it, on the thread, when all is written.
  void end(std::shared_ptr<Slot> slot);

 private:
  void append(const std::shared_ptr<Slot>& slot, std::string_view bytes);
  void drop(Slot& slot, std::string_view bytes);
  void write_some(Lock& lock) override;
  void discard_queue() override;
  void write_out(Slot& slot, std::string_view bytes);
  void write_end(Slot& slot);
  bool mark_gap(Slot& slot, std::string_view& bytes);
  void refuse(Slot& slot, std::string_view bytes, int error);

  bool is_used_ = false;                     // of the loop
  std::deque<std::shared_ptr<Slot>> ready_;  // guarded by mutex_
  std::size_t refusing_ = 0;                 // thread: slots whose last write was refused
};

}  // namespace acc::agent
