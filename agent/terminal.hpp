#pragma once

#include <sys/types.h>
#include <termios.h>

#include <optional>

namespace acc::agent {

/// The terminal on stdin. The shell made the guardian's process group its foreground group; the
/// agent may pass that on to one worker's group, and reverts it when the worker ends or is
/// suspended, as the shell watches only the guardian.
class Terminal {
 public:
  explicit Terminal(pid_t guardian);

  /// stdin is a terminal whose foreground group is the guardian's, so that we may lend it.
  [[nodiscard]] bool can_lend() const;
  [[nodiscard]] bool is_held_by(pid_t group) const;
  void lend_to(pid_t group) const;
  /// Does nothing unless that group holds it.
  void take_back_from(pid_t group) const;
  /// The worker that had it was killed and could not restore its modes: sets echo and line editing
  /// as they were at our start.
  void restore_modes() const;
  /// `worker` or one of its descendants waits for input from the terminal: it is not busy, and
  /// handles keys in its own way.
  [[nodiscard]] bool is_read_by(pid_t worker) const;
  /// Suspends the guardian's whole job, as Ctrl-Z does to a job that has no other groups.
  void suspend_job() const;

 private:
  [[nodiscard]] pid_t guardian_group() const;

  pid_t guardian_;
  std::optional<termios> modes_;  ///< at our start
};

/// The modes of the terminal on stdin; nothing if it is none.
std::optional<termios> terminal_modes();
/// Restores them if they have changed. For a process that has SIGTTOU blocked.
void restore_terminal_modes(const std::optional<termios>& modes);

}  // namespace acc::agent
