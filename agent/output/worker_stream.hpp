#pragma once

#include "agent/output/batch_queue.hpp"
#include "agent/output/line_splitter.hpp"
#include "agent/output/log_file_queue.hpp"
#include "agent/output/routes.hpp"
#include "agent/output/tail_buffer.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace acc::agent {

/// What workers wrote to captured streams.
struct OutputTotals {
  std::uint64_t bytes = 0;
  std::uint64_t lines = 0;
};

/// One stream of one worker (or both, in one pipe): takes its bytes to memory, to the log file and
/// to the console.
class WorkerStream {
 public:
  /// The queues outlive the stream; nullptr where nothing goes.
  struct Targets {
    BatchQueue* console = nullptr;
    Show show = Show::nothing;
    std::string prefix;
    bool is_terminal = false;
    std::string journal_fields;
    LogFileQueue* files = nullptr;
    OutputTotals* totals = nullptr;  ///< none: nothing is counted
    std::shared_ptr<LogFileQueue::Slot> slot;
  };
  WorkerStream(Targets targets, TailBuffer& tail);
  virtual ~WorkerStream() = default;
  WorkerStream(const WorkerStream&) = delete;
  WorkerStream& operator=(const WorkerStream&) = delete;

  /// hold: none of the next bytes may be read before hold_until(), unless they are the last ones of
  /// a worker; otherwise take() may be called.
  DropPolicy::Verdict ask(Instant now);
  [[nodiscard]] Instant hold_until() const { return hold_until_; }
  /// What a queue does not admit is lost to its destination, and counted.
  /// @param origin  worker, or worker_end for the last bytes of a pipe
  virtual void take(std::string_view bytes, DropPolicy::Origin origin);

  /// An unfinished line waits for its end, and should not wait long.
  [[nodiscard]] bool holds() const { return passes_through() && whole_.holds(); }
  void release();
  /// The end of the stream: shows what is held.
  virtual void finish();

 private:
  [[nodiscard]] bool is_journal() const {
    return targets_.console != nullptr && targets_.console->takes_records();
  }
  [[nodiscard]] bool passes_through() const {
    return targets_.show == Show::as_is && !is_journal();
  }
  void show(std::string_view bytes, std::string& batch);
  void put_line(std::string_view text, bool newline, std::string& batch) const;
  void commit(std::size_t mark, DropPolicy::Origin origin);

  Targets targets_;
  TailBuffer& tail_;
  PassThrough whole_;
  LineSplitter lines_;
  Instant hold_until_{};
  bool is_finished_ = false;
};

}  // namespace acc::agent
