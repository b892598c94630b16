#include "agent/output/console_facts.hpp"

#include "common/text.hpp"

#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

namespace acc::agent {

namespace {

struct Target {
  bool is_open = false;
  struct stat is {};
};

Target target_of(int fd) {
  Target target;
  target.is_open = ::fstat(fd, &target.is) == 0;
  return target;
}

bool same(const Target& a, const Target& b) {
  return a.is_open && b.is_open && a.is.st_dev == b.is.st_dev && a.is.st_ino == b.is.st_ino &&
         a.is.st_rdev == b.is.st_rdev;
}

// As systemd sets it: "<device>:<inode>" of the stream that it gave to stdout or stderr.
bool is_journal(std::string_view named, const Target& target) {
  const std::size_t colon = named.find(':');
  if (colon == std::string_view::npos || !target.is_open) return false;
  return parse_number<std::uint64_t>(named.substr(0, colon)) == std::uint64_t{target.is.st_dev} &&
         parse_number<std::uint64_t>(named.substr(colon + 1)) == std::uint64_t{target.is.st_ino};
}

}  // namespace

ConsoleFacts detect_console() {
  const Target out = target_of(STDOUT_FILENO);
  const Target err = target_of(STDERR_FILENO);
  ConsoleFacts facts;
  facts.out_is_tty = ::isatty(STDOUT_FILENO) == 1;
  facts.err_is_tty = ::isatty(STDERR_FILENO) == 1;
  facts.same_target = same(out, err);
  if (const char* named = std::getenv("JOURNAL_STREAM")) {
    facts.journal_out = is_journal(named, out);
    facts.journal_err = is_journal(named, err);
  }
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  const bool is_dumb = term != nullptr && std::string_view{term} == "dumb";
  facts.no_color = (no_color != nullptr && *no_color != '\0') || is_dumb;
  facts.window = window_size(STDOUT_FILENO, STDERR_FILENO);
  return facts;
}

WindowSize window_size(int out, int err) {
  winsize size{};
  if (::ioctl(out, TIOCGWINSZ, &size) != 0 && ::ioctl(err, TIOCGWINSZ, &size) != 0) return {};
  return {size.ws_col, size.ws_row};
}

}  // namespace acc::agent
