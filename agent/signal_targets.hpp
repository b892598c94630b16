#pragma once

#include "agent/process_stat.hpp"

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

/// Which processes of a rank receive a signal that asks for something: the worker and the programs
/// below it, but not what the worker forked to help itself, as data loaders
/// (docs/decisions/0051-who-gets-a-signal.md).
namespace acc::agent {

/// Whether a shell runs a command of its own at a signal.
enum class Trap : std::uint8_t {
  none,  ///< or it is no shell
  set,
  unclear,  ///< for a trap for EXIT bash catches all signals that end a process, and dies of them
};

/// A worker or one of its descendants, as /proc shows it.
struct RankProcess {
  pid_t pid = 0;
  pid_t parent = 0;  ///< the worker itself where the real one has exited
  pid_t group = 0;
  pid_t session = 0;
  std::string program;       ///< what /proc/PID/exe names; empty: it can't be read
  std::string command_line;  ///< a zero byte behind each word
  Trap trap = Trap::none;    ///< of a shell, for the signal
  bool is_background = false;  ///< a shell without job control started it with "&"
};

struct SignalTargets {
  std::vector<pid_t> programs;  ///< the worker first; they receive it
  std::vector<pid_t> helpers;   ///< they don't
  std::vector<pid_t> timeouts;  ///< `timeout` around one of the programs: it doesn't either
  std::vector<pid_t> served;    ///< a trap of their script is to pass it on to them
  bool is_served_unclear = false;  ///< … which it didn't if the worker dies of the signal
};

/// Whether `signo` goes to programs alone. The others reach the whole group: those that a terminal
/// sends to groups, and those that no process can handle.
[[nodiscard]] bool spares_helpers(int signo);

/// Whether a child of one of the rank's processes is of the rank, too: it is in its group, or a
/// shell started it in a group of its own (job control; `timeout` makes itself one), in the same
/// session. What is in a session of its own isn't, nor what another program than a shell gave a
/// group of its own.
[[nodiscard]] bool is_of_rank(const RankProcess& parent, const RankProcess& child);

/// By the signals that the shell catches or blocks.
[[nodiscard]] Trap trap_of(const SignalSets& shell, int signo);

/// Whether a shell without job control started the process with "&", by the signals that it makes
/// such a process ignore, SIGINT and SIGQUIT: a program that sets one keeps the other, and bash
/// ignores SIGQUIT wherever it runs. Where the shell ignores SIGINT itself that can't be known, and
/// isn't assumed: one in the foreground would get no signal.
[[nodiscard]] bool was_started_in_background(const SignalSets& shell, const SignalSets& process,
                                             bool is_process_a_shell);

/// Served is what a shell with a trap for the signal started with "&", as the trap passes it on
/// (nobody else would in a container or under a scheduler). `timeout` gets none: it sends each
/// signal that it handles twice to the program that it runs, dies of others, and ends with that
/// program.
/// @param processes  of the rank: the worker first, each behind its parent
/// @param is_delivered  all got the signal from elsewhere, also what a trap would pass it on to
[[nodiscard]] SignalTargets signal_targets(std::span<const RankProcess> processes,
                                           bool is_delivered = false);

/// Whether a living process is a helper of its parent. False, after 2 s at most, where the kernel
/// doesn't give their command lines (a worker stuck in a call that changes its memory).
[[nodiscard]] bool is_helper(pid_t pid);

/// The worker and its descendants that are of the rank, ready for signal_targets. Takes some
/// milliseconds at most, or 2 s where the kernel doesn't give a command line.
/// @param signo    that they are to get
/// @param orphans  processes of the rank whose parents have exited
/// @return nothing: there are too many, or /proc doesn't tell, or not in that time
[[nodiscard]] std::optional<std::vector<RankProcess>> processes_of_rank(
    pid_t worker, int signo, std::span<const pid_t> orphans);

/// Programs right below a worker that has few threads and children, as a shell around one, for a
/// worker that is too large to be looked through.
[[nodiscard]] std::vector<pid_t> programs_of_small(pid_t worker);

}  // namespace acc::agent
