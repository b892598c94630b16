#pragma once

#include "agent/job_plan.hpp"
#include "agent/output/console_facts.hpp"
#include "agent/output/losses.hpp"
#include "agent/output/output_options.hpp"
#include "common/alive.hpp"
#include "common/duration.hpp"
#include "common/error.hpp"
#include "common/ids.hpp"
#include "common/unique_fd.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace boost::asio {
class io_context;
}

namespace acc::agent {

class Destinations;
struct OutputTotals;
class Pump;
struct Route;

/// Descriptors for the child's fd 1 and 2; -1: it inherits ours. The hub's until
/// close_child_ends().
struct ChildStreams {
  int out = -1;
  int err = -1;
};

/// Everything that workers write: from their pipes to the console, to log files and into memory for
/// the report. The loop only reads pipes and never blocks; threads write. A reader, terminal or
/// disk that is slower than the workers slows them down, as a pipe does; one that takes nothing for
/// OutputPlan::patience doesn't any more, and output is dropped (P4).
///
/// Used on the loop's thread only. The io_context outlives it.
class OutputHub {
 public:
  OutputHub(boost::asio::io_context& io, const OutputPlan& plan, std::uint32_t local_world_size,
            const ConsoleFacts& facts, OutputOptions options = {});
  /// Stops the writer threads, within a moment: what finish() did not bring out is abandoned (but
  /// lines of ours after it get 200 ms).
  ~OutputHub();
  OutputHub(const OutputHub&) = delete;
  OutputHub& operator=(const OutputHub&) = delete;

  /// For prefixes (${role_name}) and journal fields. Before begin_round.
  void set_job(std::string job_id, std::string role = "default");

  /// Makes <run_folder>/attempt_<round>/<local rank>/ for all ranks when files are wanted, and,
  /// with a log_dir, the link <log_dir>/latest. A read-only or full disk is not fatal: it counts as
  /// a loss and is reported once.
  void begin_round(Round round, const std::string& run_folder);
  /// Just before the spawn of that worker.
  Result<ChildStreams> open(LocalRank local, Rank rank);
  /// After the spawn or its failure.
  void close_child_ends(LocalRank local);
  /// The worker was reaped: takes in what is already in its pipes, without waiting for other
  /// processes that still hold them.
  void drain(LocalRank local);
  /// All writers are dead or given up: takes in what is there, shows unfinished last lines, closes
  /// pipes and files.
  void end_round();

  /// The last 64 KiB at most of what the worker wrote to stderr, or to stdout if there was nothing
  /// on stderr; of both, in order, when they share a pipe. Kept until the next begin_round. Empty
  /// for an inherited stream.
  [[nodiscard]] std::string tail(LocalRank local) const;
  /// The last line that the worker wrote to either stream, plain text of a bounded length. Costs a
  /// look at the last 1 KiB. Empty: none, or the stream is inherited.
  [[nodiscard]] std::string last_line(LocalRank local) const;
  /// A piece of what a worker wrote in this round, as far as it is kept.
  struct Kept {
    std::string text;
    std::uint64_t from = 0;  ///< its offset in the stream
    std::uint64_t end = 0;   ///< bytes that the stream has had
    bool is_captured = false;  ///< false: it is inherited, or shares the pipe of stdout
  };
  /// Behind the first `from` bytes. Of both streams if they share a pipe: stdout has all.
  [[nodiscard]] Kept kept_output(LocalRank local, bool is_stderr, std::uint64_t from) const;

  /// Empty if there is no file. Streams::both: the folder that holds the files.
  [[nodiscard]] std::string log_path(LocalRank local, Streams which) const;

  /// Lines of ours to stderr, whole and in order with the workers'; a last newline is added where
  /// it lacks. Never blocks; after finish() it waits for the next one.
  void say(std::string_view line);

  /// stderr is a terminal, and no stream of a worker reaches it past us but a worker's own.
  [[nodiscard]] bool can_show_status() const;
  /// A worker has our own descriptors, and writes to the terminal past us.
  [[nodiscard]] bool is_bypassed() const;
  /// A line below all others on that terminal, without an end; empty: none. Returns when a worker
  /// that writes to the terminal itself finds it gone.
  void set_status(std::string line);
  /// Of the terminal; 0: unknown.
  [[nodiscard]] std::size_t columns() const { return facts_.window.columns; }

  /// The job is being stopped: until the next round no destination holds up workers for longer, as
  /// they need their time for a checkpoint.
  void shorten_patience(Millis patience);
  /// Ctrl-Z and fg: meanwhile no destination counts as stuck.
  void suspended();
  void resumed();

  /// Variables by which a worker of this round sees where its output goes: COLUMNS, LINES, and
  /// those that keep programs on a pseudo-terminal from colours in files and from pagers.
  [[nodiscard]] std::vector<Variable> environment(LocalRank local, Rank rank) const;
  /// The terminal has another size (SIGWINCH).
  void window_changed();

  /// From the next round on counts what workers write. Costs a look at each byte.
  void count_output();
  /// All zero without count_output().
  [[nodiscard]] OutputTotals totals() const;

  [[nodiscard]] std::vector<Losses> losses() const;
  /// Called on the loop, once per destination, when it begins to lose data. (The hub
  /// reports its recovery on stderr.)
  void on_degraded(std::function<void(const Losses&)> told);

  /// Ends the round, where that was not done, and brings out everything that is queued. Blocks as
  /// long as the destinations take it, within the limits, which are asked for again every 100 ms.
  /// Log files come first. What is given up is gone, and counted in losses(). May be called again,
  /// for what was said in between.
  void finish(const AskFlushLimits& limits);
  void finish(Millis patience, Millis cap) {
    finish([=] { return FlushLimits{patience, cap}; });
  }
  void finish(Millis deadline) { finish(deadline, deadline); }

 private:
  struct Channel;
  struct Worker;
  struct NewsTimer;

  [[nodiscard]] std::string folder_of(LocalRank local) const;
  [[nodiscard]] bool wants_color(bool is_err) const;
  Result<void> open_channel(Channel& channel, LocalRank local, Rank rank, const Route& route,
                            bool is_err);
  Result<UniqueFd> open_read_end(Channel& channel, const Route& route, bool is_err);
  void close_channel(Channel& channel);
  /// A destination that takes nothing is told of in time, also if the workers write no more.
  void watch_destinations();

  const OutputPlan plan_;
  const std::uint32_t local_world_size_;
  ConsoleFacts facts_;
  const OutputOptions options_;
  const bool wants_files_;
  std::string job_id_;
  std::string role_ = "default";
  std::unique_ptr<Destinations> destinations_;
  std::unique_ptr<OutputTotals> totals_;  // none: nothing is counted; outlives the streams
  std::unique_ptr<Pump> pump_;
  std::unique_ptr<NewsTimer> news_timer_;
  std::vector<Worker> workers_;
  Round round_{};
  std::string run_folder_;
  bool opens_files_ = true;       // false: their file system gives no answer just now
  std::string round_folder_;      // <run folder>/attempt_<round>; empty: no files in this round
  bool has_status_ = false;       // a status line is shown
  bool lacks_terminals_ = false;  // the warning was shown
  Alive alive_;
};

}  // namespace acc::agent
