#pragma once

#include "agent/job_plan.hpp"
#include "common/duration.hpp"
#include "common/error.hpp"
#include "common/ids.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace boost::asio {
class io_context;
}

/// Everything that workers write: from their pipes to the console, to log files and into memory for
/// the report. The loop only reads pipes and never blocks; threads write. A reader, terminal or
/// disk that is slower than the workers slows them down, as a pipe does; one that takes nothing for
/// OutputPlan::patience doesn't any more, and output is dropped (P4).
namespace acc::agent {

/// 0: unknown.
struct WindowSize {
  std::uint16_t columns = 0;
  std::uint16_t lines = 0;
};

/// What our own stdout and stderr are.
struct ConsoleFacts {
  bool out_is_tty = false;
  bool err_is_tty = false;
  bool same_target = false;  ///< fd 1 and fd 2 lead to the same file, pipe or terminal
  bool journal_out = false;  ///< JOURNAL_STREAM names our stdout: systemd reads it
  bool journal_err = false;  ///< the same for stderr; often this one only: `acc-launch … > out.log`
  bool no_color = false;     ///< NO_COLOR is set, or TERM is dumb
  WindowSize window{};       ///< of the terminal, if one of them is one
};
/// Of descriptors 1 and 2 and of the environment of this process.
ConsoleFacts detect_console();
/// Of the first of the two that is a terminal.
WindowSize window_size(int out, int err);

/// Descriptors for the child's fd 1 and 2; -1: it inherits ours. The hub's until
/// close_child_ends().
struct ChildStreams {
  int out = -1;
  int err = -1;
};

/// What one sink did not take.
struct Losses {
  std::string where;  ///< "stdout", "stderr", "log files in DIR"
  std::string why;    ///< "No space left on device", "its reader went away"
  std::uint64_t bytes = 0;
  std::uint64_t lines = 0;
  Instant since{};           ///< of the first loss
  std::string cure{};        ///< what to do about it; may be empty
  bool reader_left = false;  ///< nothing reads it any more: `| head`
};

/// Where the console is; tests put pipes and pseudo-terminals here.
struct OutputOptions {
  int out = 1;
  int err = 2;
  std::string journal_socket = "/run/systemd/journal/socket";
  std::size_t console_queue_bytes = std::size_t{4}
                                    << 20U;  ///< held for a console that is slower than the workers
  std::size_t files_queue_bytes = std::size_t{8} << 20U;  ///< held for all log files together
};

/// Used on the loop's thread only. The io_context outlives it.
class OutputHub {
 public:
  OutputHub(boost::asio::io_context& io, const OutputPlan& plan, std::uint32_t local_world_size,
            const ConsoleFacts& facts, OutputOptions options = {});
  /// Stops the writer threads, within a moment: what finish() did not bring out is abandoned (but
  /// words of ours after it get 200 ms).
  ~OutputHub();
  OutputHub(const OutputHub&) = delete;
  OutputHub& operator=(const OutputHub&) = delete;

  /// For prefixes (${role_name}) and journal fields. Before begin_round.
  void set_job(std::string job_id, std::string role = "default");

  /// Makes <run_folder>/attempt_<round>/<local rank>/ for all ranks when files are wanted, and,
  /// with a log_dir, the link <log_dir>/latest. A read-only or full disk is not fatal: it counts as
  /// a loss and is told once.
  void begin_round(Round round, const std::string& run_folder);
  /// Just before the spawn of that worker.
  Result<ChildStreams> open(LocalRank local, Rank rank);
  /// After the spawn or its failure.
  void close_child_ends(LocalRank local);
  /// The worker was reaped: takes in what is already in its pipes, without waiting for those who
  /// still hold them.
  void drain(LocalRank local);
  /// All writers are dead or given up: takes in what is there, shows unfinished last lines, closes
  /// pipes and files.
  void end_round();

  /// The last 64 KiB at most of what the worker wrote to stderr, or to stdout if there was nothing
  /// on stderr; of both, in order, when they share a pipe. Kept until the next begin_round. Empty
  /// for an inherited stream.
  [[nodiscard]] std::string tail(LocalRank local) const;
  /// Empty if there is no file. Streams::both: the folder that holds the files.
  [[nodiscard]] std::string log_path(LocalRank local, Streams which) const;

  /// Lines of ours to stderr, whole and in order with the workers'; a last newline is added where
  /// it lacks. Never blocks; after finish() it waits for the next one.
  void say(std::string_view line);

  /// The job is being stopped: until the next round no sink holds up workers for longer, as they
  /// need their time for a checkpoint.
  void shorten_patience(Millis patience);

  /// Variables by which a worker of this round sees where its output goes: COLUMNS, LINES, and
  /// those that keep programs on a pseudo-terminal from colours in files and from pagers.
  [[nodiscard]] std::vector<Variable> environment(LocalRank local, Rank rank) const;
  /// The terminal has another size (SIGWINCH).
  void window_changed();

  [[nodiscard]] std::vector<Losses> losses() const;
  /// Called on the loop, once per sink, when it begins to lose data. (Its recovery is said on
  /// stderr by the hub.)
  void on_degraded(std::function<void(const Losses&)> told);

  struct FlushLimits {
    Millis patience;  ///< a sink that stands still for so long is given up
    Millis cap;       ///< and all are after so long, also those that move
  };
  /// Ends the round, where that was not done, and brings out everything that is queued. Blocks as
  /// long as the sinks move, within the limits, which are asked for again every 100 ms: a Ctrl-C
  /// may shorten them. Log files come first. What is given up is gone, and counted in losses(). May
  /// be called again, for what was said in between.
  void finish(const std::function<FlushLimits()>& limits);
  void finish(Millis patience, Millis cap) {
    finish([=] { return FlushLimits{patience, cap}; });
  }
  void finish(Millis deadline) { finish(deadline, deadline); }

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace acc::agent
