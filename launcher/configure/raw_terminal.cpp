#include "launcher/configure/raw_terminal.hpp"

#include "launcher/user_messages.hpp"

#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>

namespace acc::configure {

namespace {

constexpr int kEnding[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

/// What a signal handler has to put back.
termios g_original{};
std::atomic<bool> g_is_raw{false};

/// Async-signal-safe calls only.
void restore_and_end(int signal) {
  const int error = errno;
  if (g_is_raw.exchange(false)) {
    ::tcsetattr(STDIN_FILENO, TCSANOW, &g_original);
    constexpr char kShown[] = "\x1b[?25h\n";
    [[maybe_unused]] const auto written = ::write(STDOUT_FILENO, kShown, sizeof kShown - 1);
  }
  errno = error;
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

void set_handlers(void (*handler)(int)) {
  for (const int signal : kEnding) {
    struct sigaction old {};
    ::sigaction(signal, nullptr, &old);
    if (old.sa_handler == SIG_IGN) continue;  // as nohup left it
    struct sigaction action {};
    action.sa_handler = handler;
    ::sigaction(signal, &action, nullptr);
  }
}

}  // namespace

RawTerminal::RawTerminal(KeyDecoder& decoder) : decoder_{decoder} {
  ::tcgetattr(STDIN_FILENO, &g_original);
  set_handlers(restore_and_end);
  // A new size of the window wakes read_key's poll, also one from before it, as during a drawing.
  struct sigaction wakes {};
  wakes.sa_handler = [](int) {};
  ::sigaction(SIGWINCH, &wakes, nullptr);
  sigset_t resize;
  ::sigemptyset(&resize);
  ::sigaddset(&resize, SIGWINCH);
  ::sigprocmask(SIG_BLOCK, &resize, &mask_);
  enter();
}

RawTerminal::~RawTerminal() {
  leave();
  set_handlers(SIG_DFL);
  ::signal(SIGWINCH, SIG_DFL);
  ::sigprocmask(SIG_SETMASK, &mask_, nullptr);
}

void RawTerminal::enter() {
  termios raw = g_original;
  raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG | IEXTEN);
  raw.c_iflag &= ~static_cast<tcflag_t>(ICRNL | IXON);
  raw.c_cc[VMIN] = 1;
  raw.c_cc[VTIME] = 0;
  g_is_raw = true;
  ::tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
}

void RawTerminal::leave() {
  if (g_is_raw.exchange(false)) ::tcsetattr(STDIN_FILENO, TCSADRAIN, &g_original);
}

void RawTerminal::write(const std::string& text) { launcher::write_all(STDOUT_FILENO, text); }

KeyPress RawTerminal::read_key() {
  constexpr timespec kRestOfSequence{0, 50'000'000};  // an arrow key's bytes arrive together
  for (;;) {
    if (auto key = decoder_.next(false)) {
      if (key->name != KeyPress::Name::suspend) return *key;
      leave();
      write("\x1b[?25h");  // a menu hides the cursor, and draws itself anew afterwards
      ::raise(SIGTSTP);  // goes on here after `fg`
      enter();
      return *key;
    }
    pollfd input{STDIN_FILENO, POLLIN, 0};
    const int ready =
        ::ppoll(&input, 1, decoder_.is_partial() ? &kRestOfSequence : nullptr, &mask_);
    if (ready < 0 && errno == EINTR) return {};  // perhaps another size of the window
    if (ready == 0) {
      if (auto key = decoder_.next(true)) return *key;
      continue;
    }
    char bytes[256];
    const auto got = ::read(STDIN_FILENO, bytes, sizeof bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return {KeyPress::Name::gone, {}};
    decoder_.feed({bytes, static_cast<std::size_t>(got)});
  }
}

ScreenSize screen_size() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0)
    return {};
  return {size.ws_row, size.ws_col};
}

}  // namespace acc::configure
