#pragma once

#include "agent/drop_policy.hpp"
#include "agent/output_hub.hpp"
#include "agent/sink_console.hpp"
#include "agent/sink_files.hpp"

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace acc::agent {

/// What becomes of a piece of output.
enum class Fate {
  queue,       ///< it goes to the sink, unless that is overfull
  queue_last,  ///< it goes to the sink: the last bytes of a worker, not more than its pipe holds
  drop,        ///< it is counted as lost
};

/// The loop's side of a sink: whether more may go in, and what there is to tell about it.
class Outlet {
 public:
  Outlet(std::string where, DropPolicy::Limits limits)
      : where_{std::move(where)}, limits_{limits}, policy_{limits} {}

  /// Whether the next bytes of a worker may be read, held in its pipe or must be dropped.
  DropPolicy::Verdict ask(Instant now);
  [[nodiscard]] Instant hold_until() const { return policy_.hold_until(); }

  enum class News { none, degraded, recovered };
  /// What has changed since the last call; degraded comes once.
  News news(Instant now);
  [[nodiscard]] std::optional<Losses> losses() const;
  /// For people, after News::recovered: what was lost since the last such words.
  std::string describe_recovery();

  /// The pipes of this round that lead here, until the next round begins: what is in them when
  /// their workers die fits on top of the limit.
  void reserve(std::size_t pipe_bytes) { reserved_ += pipe_bytes; }
  void begin_round();
  /// No worker of this round is held up for longer.
  void shorten_patience(Millis patience) { policy_.shorten(patience); }

  /// See Sink::wait_written.
  bool wait_written(Instant from, Millis patience, Instant until);
  /// So much waits to be written.
  [[nodiscard]] std::size_t queued() const { return sink_ ? sink_->queued() : 0; }
  [[nodiscard]] Instant last_progress() const { return sink_ ? sink_->last_progress() : Instant{}; }
  [[nodiscard]] const std::string& where() const { return where_; }
  /// What is still queued then counts as lost.
  /// @param at_the_end  for words: it moved, or had not had its whole patience
  void abandon(Millis bound, bool at_the_end);
  void stop(Millis bound);

 protected:
  void set_sink(std::shared_ptr<Sink> sink) { sink_ = std::move(sink); }
  [[nodiscard]] const std::shared_ptr<Sink>& sink() const { return sink_; }
  /// So much more than the limit that not even unfinished lines and words of ours may still come
  /// in.
  [[nodiscard]] bool is_overfull() const {
    return sink_ && sink_->queued() >
                        limits_.queue_bytes + std::max(limits_.queue_bytes, reserved_) + carried_;
  }
  /// Last bytes of a pipe came in, `bytes` with prefixes and fields: they take no room from others.
  void admitted_last(std::size_t bytes) { reserved_ += bytes; }

 private:
  std::string where_;
  DropPolicy::Limits limits_;
  DropPolicy policy_;
  std::shared_ptr<Sink> sink_;  // none before the first data
  bool is_told_ = false;
  bool was_losing_ = false;
  bool was_cut_off_ = false;  // by the end of the job, before the patience was over
  Instant last_recovery_{};
  LossCount lost_before_;
  std::size_t reserved_ = 0;
  std::size_t carried_ = 0;  // queued already when the round began
};

/// stdout, stderr, both in one, or the journal.
class ConsoleOutlet final : public Outlet {
 public:
  using MakeSink = std::function<std::shared_ptr<BatchSink>()>;
  ConsoleOutlet(std::string where, DropPolicy::Limits limits, MakeSink make)
      : Outlet{std::move(where), limits}, make_{std::move(make)} {}

  /// Writers append here, and then call commit().
  std::string& batch() { return batch_; }
  struct Writer {
    const void* who = nullptr;      ///< tells writers apart
    bool needs_fresh_line = false;  ///< it never continues a line that another one left unfinished
    bool is_record = false;         ///< datagrams for the journal: lines mean nothing
  };
  /// @param mark  size of the batch before the writer appended to it
  void commit(std::size_t mark, Writer writer, Fate fate);
  /// The writer is gone: whoever comes next begins a new line.
  void ended(const void* who);
  /// Hands the batch to the writer thread.
  void flush();

 private:
  void ensure_sink();

  MakeSink make_;
  std::shared_ptr<BatchSink> batch_sink_;
  std::string batch_;
  const void* line_owner_ = nullptr;  // of the unfinished line; nullptr: it is gone
  bool is_mid_line_ = false;
};

class FilesOutlet final : public Outlet {
 public:
  FilesOutlet(std::string where, DropPolicy::Limits limits, std::function<void()> wake)
      : Outlet{std::move(where), limits}, wake_{std::move(wake)} {}
  void put(const std::shared_ptr<FileSink::Slot>& slot, std::string_view bytes, Fate fate);
  /// See FileSink::end.
  void end(std::shared_ptr<FileSink::Slot> slot);

 private:
  std::function<void()> wake_;
  std::shared_ptr<FileSink> files_;
};

}  // namespace acc::agent
