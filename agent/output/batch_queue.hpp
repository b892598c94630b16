#pragma once

#include "agent/output/output_queue.hpp"
#include "common/unique_fd.hpp"

#include <string>
#include <string_view>

namespace acc::agent {

/// A queue of lines (or records) of several writers, in one piece of memory.
class BatchQueue : public OutputQueue {
 public:
  /// A writer appends here, and then calls commit().
  std::string& batch() { return batch_; }
  struct Writer {
    const void* who = nullptr;      ///< tells writers apart
    bool needs_fresh_line = false;  ///< it never continues a line that another one left unfinished
  };
  /// @param mark  size of the batch before the writer appended to it
  void commit(std::size_t mark, Writer writer, Origin origin);
  /// The writer is gone: the next one begins a new line.
  void ended(const void* who);
  /// Hands the batch to the writer thread.
  void flush();
  /// Of a terminal: a line below all others, without an end; empty: none. It is taken away before
  /// each batch and drawn anew after it, unless that ends in the middle of a line. While the
  /// terminal takes nothing a change waits for the next batch.
  void set_status(std::string line);
  /// Whether it holds records of the journal instead of text.
  [[nodiscard]] virtual bool takes_records() const { return false; }

 protected:
  BatchQueue(std::string where, DropPolicy::Limits limits, std::function<void()> wake);

  /// On the loop's thread, before the first batch.
  virtual void open() {}

  // --- of the writer thread
  /// Writes some of `bytes`. Returns how many need no more care, as they are written or lost; 0:
  /// try again.
  virtual std::size_t write_once(std::string_view bytes) = 0;
  /// Until `fd` is writable or stop() is called.
  void wait_writable(int fd);
  /// A write failed for a reason that may go away; the next try is due a second later.
  std::size_t refuse(std::string_view bytes, int error);
  [[nodiscard]] bool waits_for_retry() const;

 private:
  void write_some(Lock& lock) final;
  void discard_queue() final;
  void interrupt() override;

  [[nodiscard]] bool needs_status() const;

  std::string batch_;                 // of the loop
  std::string status_;                // of the loop
  std::string shown_status_;          // what the terminal shows when the queue is written
  bool is_at_line_start_ = true;      // there is no text on the terminal's last line
  const void* line_owner_ = nullptr;  // of the unfinished line; nullptr: it is gone
  bool is_mid_line_ = false;
  bool is_open_ = false;
  UniqueFd interrupt_;
  std::string next_;      // filled by the loop, guarded by mutex_
  Instant refused_at_{};  // of the thread
};

}  // namespace acc::agent
