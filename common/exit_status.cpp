#include "common/exit_status.hpp"

#include <sys/wait.h>

#include <algorithm>
#include <cctype>
#include <csignal>
#include <cstring>

namespace acc {

bool is_success(const ExitStatus& status) {
  const auto* exited = std::get_if<Exited>(&status);
  return exited != nullptr && exited->code == 0;
}

int shell_code(const ExitStatus& status) {
  if (const auto* exited = std::get_if<Exited>(&status)) return exited->code;
  return 128 + std::get<Signaled>(status).signo;
}

std::string describe(const ExitStatus& status) {
  if (const auto* exited = std::get_if<Exited>(&status)) {
    return "exited with code " + std::to_string(exited->code);
  }
  const auto& killed = std::get<Signaled>(status);
  std::string text =
      "killed by " + signal_name(killed.signo) + " (" + std::to_string(killed.signo) + ")";
  if (killed.core_dumped) text += ", core dumped";
  return text;
}

ExitStatus exit_status_from_wait(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    return Signaled{WTERMSIG(wait_status), WCOREDUMP(wait_status) != 0};
  }
  return Exited{WEXITSTATUS(wait_status)};
}

std::string signal_name(int signo) {
  const char* abbreviation = ::sigabbrev_np(signo);
  return abbreviation != nullptr ? std::string{"SIG"} + abbreviation
                                 : "signal " + std::to_string(signo);
}

int signal_number(std::string_view text) {
  std::string word{text};
  std::transform(word.begin(), word.end(), word.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  if (word.starts_with("SIG")) word.erase(0, 3);
  for (int signo = 1; signo < 32; ++signo) {
    const char* name = ::sigabbrev_np(signo);
    if (name != nullptr && (word == name || word == std::to_string(signo))) return signo;
  }
  return 0;
}

}  // namespace acc
