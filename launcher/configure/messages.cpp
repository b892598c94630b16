#include "launcher/configure/messages.hpp"

#include "common/error.hpp"
#include "common/exit_codes.hpp"
#include "common/text.hpp"
#include "launcher/user_messages.hpp"

#include <unistd.h>

#include <cerrno>

namespace acc::configure {

void tell(const std::string& text) {
  std::string out;
  for (const auto& line : split(text, '\n')) out += "acc-config: " + line + "\n";
  launcher::write_all(STDERR_FILENO, out);
}

int print(const std::string& text) {
  const int failed = launcher::write_all(STDOUT_FILENO, text);
  if (failed == 0 || failed == EPIPE) return 0;
  tell(system_error(failed, "can't write to the standard output").what);
  return to_int(ExitCode::output);
}

}  // namespace acc::configure
