#pragma once

#include "agent/sink.hpp"
#include "common/unique_fd.hpp"

#include <string>

namespace acc::agent {

/// A sink with one queue of bytes.
class BatchSink : public Sink {
 public:
  /// Takes whole lines (or records); `batch` comes back empty, with room for more.
  void push(std::string& batch);

 protected:
  explicit BatchSink(std::function<void()> wake);
  /// Thread: writes some of `bytes`. Returns how many need no more care, as they are written or
  /// lost; 0: try again.
  virtual std::size_t write_once(std::string_view bytes) = 0;
  /// Thread: until `fd` is writable or stop() is called.
  void wait_writable(int fd);
  /// Thread: a write failed for a reason that may go away; the next try is due a second later.
  std::size_t refuse(std::string_view bytes, int error);
  [[nodiscard]] bool waits_for_retry() const;

 private:
  void write_some(Lock& lock) final;
  void discard_queue() final;
  void interrupt() override;

  UniqueFd interrupt_;
  std::string next_;      // filled by the loop, guarded by mutex_
  Instant refused_at_{};  // thread
};

/// Writes to a descriptor that we share with others, stdout or stderr: its flags are left alone,
/// whatever it is.
class ConsoleSink final : public BatchSink {
 public:
  /// @param fd  stays the caller's and open
  ConsoleSink(int fd, std::function<void()> wake);

 private:
  std::size_t write_once(std::string_view bytes) override;
  [[nodiscard]] bool is_gone(int error) const;

  int fd_;             // what we were given, or own_
  UniqueFd own_;       // the same terminal or pipe, opened anew, so that O_NONBLOCK is ours alone
  std::size_t piece_;  // at most so much in one write
  bool regular_ = true;
  bool gone_ = false;  // thread; its reader went away: it is never tried again
};

}  // namespace acc::agent
