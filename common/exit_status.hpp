#pragma once

#include <string>
#include <string_view>
#include <variant>

namespace acc {

struct Exited {
  int code = 0;
  friend bool operator==(const Exited&, const Exited&) = default;
};
struct Signaled {
  int signo = 0;
  bool core_dumped = false;
  friend bool operator==(const Signaled&, const Signaled&) = default;
};

/// How a process ended: a code and a signal are different alternatives and never share one int.
using ExitStatus = std::variant<Exited, Signaled>;

[[nodiscard]] bool is_success(const ExitStatus&);
/// The status as a shell reports it: the code, or 128 + the signal.
[[nodiscard]] int shell_code(const ExitStatus&);
/// "exited with code 7", "killed by SIGSEGV (11), core dumped".
[[nodiscard]] std::string describe(const ExitStatus&);
/// From wait4's status word.
[[nodiscard]] ExitStatus exit_status_from_wait(int wait_status);

/// "SIGTERM"; "signal 35" for one without a name.
[[nodiscard]] std::string signal_name(int signo);
/// Reads "TERM", "SIGTERM", "term" or "15"; 0 if there is no such signal.
[[nodiscard]] int signal_number(std::string_view text);

}  // namespace acc
