#pragma once

#include "agent/output/batch_queue.hpp"
#include "agent/output/console_facts.hpp"
#include "agent/output/journal_queue.hpp"
#include "agent/output/log_file_queue.hpp"
#include "agent/output/losses.hpp"
#include "agent/output/output_options.hpp"

#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace acc::agent {

/// Where output goes: stdout and stderr, which may be one console or the journal, and the log
/// files. Used on the loop's thread.
class Destinations {
 public:
  /// @param journal  where one of the two leads to it
  /// @param patience  how long a destination that takes nothing holds up the workers
  /// @param wake  see OutputQueue
  Destinations(const ConsoleFacts& facts, const OutputOptions& options,
               std::shared_ptr<JournalQueue> journal, Millis patience, std::function<void()> wake);

  [[nodiscard]] BatchQueue& console(bool is_err) { return is_err && err_ ? *err_ : *out_; }
  /// Made at the first call. @param where  for people
  LogFileQueue& files(const std::string& where);

  void begin_round();
  void shorten_patience(Millis patience);
  void suspend();
  void resume();
  /// A line below all others on the terminal that stderr is; see BatchQueue.
  void set_status(std::string line) { console(true).set_status(std::move(line)); }
  /// Waits a moment until what was said to stderr is written.
  void settle();
  /// A line of ours to stderr.
  void say(std::string_view text);
  /// Hands the batches to the writer threads, and reports what has changed.
  void flush();
  /// Reports which destination begins to lose data, or takes none, and which takes data again.
  void tell_news();
  /// When tell_news() has something to report of a destination that takes nothing until then.
  [[nodiscard]] std::optional<Instant> next_news() const;
  [[nodiscard]] std::vector<Losses> losses() const;
  /// Waits until all is written, within the limits; what isn't is given up. Afterwards tell_news()
  /// does nothing until the next round.
  void finish(const AskFlushLimits& limits);
  /// Ends the writer threads, within a moment.
  void stop();

  std::string program = "acc-launch";              ///< before our lines
  std::string job_id;                              ///< of our lines in the journal
  std::function<void(const Losses&)> on_degraded;  ///< see OutputHub
  bool is_log_dir_closed = false;                  ///< see OutputPlan: no news of the log files

 private:
  template <class Act>
  void for_each(const Act& act) const {
    for (OutputQueue* queue :
         std::initializer_list<OutputQueue*>{out_.get(), err_.get(), files_.get()})
      if (queue != nullptr) act(*queue);
  }
  void tell_news(OutputQueue& queue);
  void tell_losses(const OutputQueue& queue);
  [[nodiscard]] bool was_cut_off(const OutputQueue& queue, Instant from) const;
  bool write_out(OutputQueue& queue, Instant from, const AskFlushLimits& limits);

  const DropPolicy::Limits files_limits_;
  const std::function<void()> wake_;
  std::shared_ptr<BatchQueue> out_;
  std::shared_ptr<BatchQueue> err_;  // none: out_ serves both
  std::shared_ptr<LogFileQueue> files_;
  bool is_finished_ = false;   // since the last begin_round()
  bool is_wait_told_ = false;  // of the last finish()
};

}  // namespace acc::agent
