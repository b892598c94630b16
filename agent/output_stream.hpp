#pragma once

#include "agent/line_splitter.hpp"
#include "agent/output_outlet.hpp"
#include "agent/output_routes.hpp"
#include "agent/tail_buffer.hpp"

#include <memory>
#include <string>
#include <string_view>

namespace acc::agent {

/// One stream of one worker (or both, in one pipe): takes its bytes to memory, to the log file and
/// to the console.
class WorkerStream {
 public:
  /// The outlets outlive the stream; nullptr where nothing goes.
  struct Targets {
    ConsoleOutlet* console = nullptr;
    Show show = Show::nothing;
    std::string prefix;
    bool is_terminal = false;
    bool is_journal = false;
    std::string journal_fields;
    FilesOutlet* files = nullptr;
    std::shared_ptr<FileSink::Slot> slot;
  };
  WorkerStream(Targets targets, TailBuffer& tail);

  /// hold: none of the next bytes may be read before hold_until(); otherwise take() may be called.
  DropPolicy::Verdict ask(Instant now);
  [[nodiscard]] Instant hold_until() const { return hold_until_; }
  /// What must not be kept, by the last ask(), is dropped and counted.
  void take(std::string_view bytes);
  /// After ask(): these are the last bytes of a pipe, which are taken in although ask() said hold.
  void take_last(std::string_view bytes);

  /// An unfinished line waits for its end, and should not wait long.
  [[nodiscard]] bool holds() const {
    return targets_.show == Show::as_is && !targets_.is_journal && whole_.holds();
  }
  void release();
  /// The end of the stream: shows what is held.
  void finish();

 private:
  void show(std::string_view bytes, std::string& batch);
  void put_line(std::string_view text, bool newline, std::string& batch) const;
  void commit(std::size_t mark);

  Targets targets_;
  TailBuffer& tail_;
  PassThrough whole_;
  LineSplitter lines_;
  Instant hold_until_{};
  Fate console_fate_ = Fate::queue;
  Fate file_fate_ = Fate::queue;
  bool is_finished_ = false;
};

}  // namespace acc::agent
