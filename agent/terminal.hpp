#pragma once

#include <sys/types.h>
#include <termios.h>

#include <optional>

namespace acc::agent {

/// The terminal on stdin. The shell gave it to the guardian's process group; one worker may get it
/// from us, and must give it back when it ends or is suspended, as the shell only watches the
/// guardian.
class Terminal {
 public:
  explicit Terminal(pid_t guardian);

  /// stdin is a terminal whose foreground group is the guardian's: ours to lend.
  [[nodiscard]] bool can_lend() const;
  [[nodiscard]] bool is_held_by(pid_t group) const;
  void lend_to(pid_t group) const;
  /// Does nothing unless that group holds it.
  void take_back_from(pid_t group) const;
  /// The worker that had it died and could not tidy up: echo and line editing as they were when we
  /// were started.
  void restore_modes() const;
  /// `worker` or one of its descendants waits for input from the terminal: it is not busy, and
  /// heeds keys in its own way.
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
/// Puts them back where they are others now. For a process that has SIGTTOU blocked.
void restore_terminal_modes(const std::optional<termios>& modes);

}  // namespace acc::agent
