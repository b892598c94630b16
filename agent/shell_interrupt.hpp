#pragma once

/// How what started acc-launch learns that Ctrl-C has ended the job. A shell goes on with its
/// script after a program that ends with 130 of its own accord, as an editor does that uses Ctrl-C:
/// it stops only if it had a SIGINT itself and the program has died of one.
namespace acc::agent {

/// SIGINTs while a job ran, by origin.
struct InterruptsSeen {
  bool by_key = false;      ///< the terminal sent them to our process group, and so to a script's
  bool by_process = false;  ///< kill(): what sent them expects an exit code
  bool by_key_in_workers_terminal = false;  ///< only that worker's process group got them
};

enum class ShellNotice {
  exit_code,        ///< nothing but the exit code
  death,            ///< die of SIGINT: the script had the key, too
  group_and_death,  ///< … and first send it to the script, as the terminal would have
};

/// Pure. @param exit_code  of the job, which has ended
[[nodiscard]] ShellNotice shell_notice(int exit_code, const InterruptsSeen& seen);

/// Sends SIGINT to all of this process's group, as the terminal would have: first to those above
/// it, scripts, make and sudo; last to other trials that one of these started. What reads its
/// output, as `| tee`, gets none, but has 1 s at most to end, as standard output and error are
/// closed: a shell that reaps it behind us takes Ctrl-C for handled. An interactive shell has given
/// us a group of our own, and gets none.
void interrupt_group();

/// A program with one loop of its own notes here that it has taken a SIGINT of the terminal.
void note_interrupt_key();
[[nodiscard]] bool had_interrupt_key();

/// Dies of SIGINT. Returns only where the kernel doesn't let it: as the first process of a
/// container.
void die_of_interrupt();

}  // namespace acc::agent
