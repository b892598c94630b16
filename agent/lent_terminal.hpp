#pragma once

#include "agent/guardian_board.hpp"
#include "agent/terminal.hpp"
#include "agent/terminal_interrupts.hpp"
#include "agent/worker_group.hpp"

#include <boost/asio/steady_timer.hpp>

#include <functional>
#include <optional>

namespace acc::agent {

/// The worker that reads our stdin. Where that is a terminal, its process group is the foreground
/// group from its start to its end, and Ctrl-C and Ctrl-Z go to it and not to us. Where our output
/// goes to a pipe, and so perhaps to a pager, which reads the terminal, too: not before it reads
/// it.
class LentTerminal {
 public:
  struct Hooks {
    /// Ctrl-C was pressed twice or more and the worker still runs: the job is asked to end.
    std::function<void()> on_stop;
    /// … was pressed once: the user may not know that another one ends the job.
    std::function<void()> on_kept;
  };

  /// @param reader  the worker that gets our stdin; nothing: all get /dev/null
  LentTerminal(boost::asio::io_context& io, const GuardianLink& guardian,
               std::optional<LocalRank> reader, const WorkerGroup& workers, Hooks hooks);

  [[nodiscard]] std::optional<LocalRank> reader() const { return reader_; }
  /// Others of the guardian's group use it: no worker gets it any more.
  [[nodiscard]] bool is_shared() const {
    return guardian_.board != nullptr && guardian_.board->terminal_is_shared;
  }
  /// Would a worker that is started now get the terminal?
  [[nodiscard]] bool is_lent_at_start() const {
    return reader_ && is_wanted_ && !is_shared() && terminal_.can_lend();
  }

  /// The worker was started with it.
  void lent();
  /// After SIGCONT. @return whether the worker has the terminal again
  bool lend_again();
  /// @param had_it  the terminal, not only our stdin
  void take_back(const WorkerRecord& worker, bool had_it);
  /// The terminal may have stopped the worker: the first that reads it without having it gets it
  /// and goes on; else, as after Ctrl-Z, the guardian is stopped too, as the shell watches only
  /// that.
  /// @return whether the worker has got it
  bool look_for_stop();
  /// The guardian saw Ctrl-C.
  void pressed();

 private:
  [[nodiscard]] pid_t reader_pid() const;
  void look_at_interrupts();
  void obey(TerminalInterrupts::Answer answer);

  std::optional<LocalRank> reader_;
  bool is_wanted_;  ///< by the worker
  Terminal terminal_;
  GuardianLink guardian_;
  const WorkerGroup& workers_;  // the agent owns both
  Hooks hooks_;
  TerminalInterrupts interrupts_;
  boost::asio::steady_timer timer_;
};

}  // namespace acc::agent
