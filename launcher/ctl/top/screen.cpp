#include "launcher/ctl/top/screen.hpp"

#include "common/text.hpp"

#include <langinfo.h>
#include <ncurses.h>
#include <sys/ioctl.h>
#include <term.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <clocale>
#include <csignal>
#include <cstdlib>
#include <cwchar>
#include <optional>
#include <string_view>
// Macros of theirs, with names of ours.
#undef tab
#undef lines

namespace acc::ctl::top {

namespace {

/// Over ssh the bytes of a key may come apart. htop waits for 25 ms.
constexpr int kEscapeDelayMs = 50;
constexpr std::array kFaults{SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};

// Best effort, as in htop: ncurses isn't made for signal handlers, and a terminal without echo is
// worse.
void on_fault(int signo) {
  ::endwin();
  std::signal(signo, SIG_DFL);
  std::raise(signo);
}

bool is_set(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

/// Whether SIGTSTP has a handler when the first screen is made decides whether ncurses ignores the
/// signal while it draws, and so has the kernel drop one that is pending. Ours is never called: the
/// signal is blocked.
class KeepsSuspendKey {
 public:
  KeepsSuspendKey() : before_{std::signal(SIGTSTP, [](int) {})} {}
  ~KeepsSuspendKey() { std::signal(SIGTSTP, before_); }
  KeepsSuspendKey(const KeepsSuspendKey&) = delete;
  KeepsSuspendKey& operator=(const KeepsSuspendKey&) = delete;

 private:
  decltype(SIG_DFL) before_;
};

/// Where nothing names a locale (a container, ssh without SendEnv), a terminal still shows UTF-8.
bool choose_locale() {
  const bool is_named = is_set("LC_ALL") || is_set("LC_CTYPE") || is_set("LANG");
  if (std::setlocale(LC_CTYPE, is_named ? "" : "C.UTF-8") == nullptr)
    std::setlocale(LC_CTYPE, "C.UTF-8");  // a locale that this machine has not
  return std::string_view{::nl_langinfo(CODESET)} == "UTF-8";
}

std::optional<Key> key_of(int code) {
  switch (code) {
    case KEY_UP:
      return Key::up;
    case KEY_DOWN:
      return Key::down;
    case KEY_LEFT:
      return Key::left;
    case KEY_RIGHT:
      return Key::right;
    case KEY_PPAGE:
      return Key::page_up;
    case KEY_NPAGE:
      return Key::page_down;
    case KEY_HOME:
      return Key::home;
    case KEY_END:
      return Key::end;
    case KEY_ENTER:
      return Key::enter;
    case KEY_BACKSPACE:
      return Key::backspace;
    default:
      break;
  }
  constexpr int kFunctionKeys = 10;
  if (code > KEY_F0 && code <= KEY_F0 + kFunctionKeys)
    return static_cast<Key>(static_cast<int>(Key::f1) + code - KEY_F0 - 1);
  return std::nullopt;
}

std::optional<KeyPress> character_of(wint_t character) {
  constexpr wint_t kEscape = 27;
  constexpr wint_t kDelete = 127;
  if (character == '\r' || character == '\n') return KeyPress{Key::enter};
  if (character == kEscape) return KeyPress{Key::escape};
  if (character == '\b' || character == kDelete) return KeyPress{Key::backspace};
  if (character == '\t') return KeyPress{Key::tab};
  if (character < ' ') return std::nullopt;
  std::array<char, 16> bytes{};
  std::mbstate_t state{};
  const auto n = std::wcrtomb(bytes.data(), static_cast<wchar_t>(character), &state);
  if (n == static_cast<std::size_t>(-1)) return std::nullopt;
  return KeyPress{Key::character, std::string{bytes.data(), n}};
}

enum Pair : short { kTitle = 1, kBar, kCursor, kGood, kBad, kWarning, kNode, kMatch };

void make_colors() {
  ::start_color();
  ::use_default_colors();
  ::init_pair(kTitle, COLOR_CYAN, -1);
  ::init_pair(kBar, COLOR_BLACK, COLOR_GREEN);
  ::init_pair(kCursor, COLOR_BLACK, COLOR_CYAN);
  ::init_pair(kGood, COLOR_GREEN, -1);
  ::init_pair(kBad, COLOR_RED, -1);
  ::init_pair(kWarning, COLOR_YELLOW, -1);
  ::init_pair(kNode, COLOR_BLUE, -1);
  ::init_pair(kMatch, COLOR_BLACK, COLOR_YELLOW);
}

attr_t attributes_of(Style style, bool has_colors) {
  const auto pair = [&](Pair number, attr_t without) {
    return has_colors ? static_cast<attr_t>(COLOR_PAIR(number)) : without;
  };
  switch (style) {
    case Style::plain:
      return A_NORMAL;
    case Style::title:
      return A_BOLD | pair(kTitle, A_NORMAL);
    case Style::heading:
      return pair(kBar, A_REVERSE);
    case Style::sorted:
      return pair(kCursor, A_REVERSE | A_BOLD);
    case Style::selected:
      return pair(kCursor, A_REVERSE);
    case Style::good:
      return pair(kGood, A_NORMAL);
    case Style::bad:
      return A_BOLD | pair(kBad, A_NORMAL);
    case Style::warning:
      return pair(kWarning, A_BOLD);
    case Style::faint:
      return A_DIM;
    case Style::node:
      return A_BOLD | pair(kNode, A_NORMAL);
    case Style::key:
      return A_NORMAL;
    case Style::label:
      return pair(kCursor, A_REVERSE);
    case Style::panel:
      return A_NORMAL;
    case Style::match:
      return pair(kMatch, A_REVERSE);
  }
  return A_NORMAL;
}

Error no_terminal(const std::string& what) {
  return {Errc::bad_usage, what + ". For scripts and files: acc-ctl ps, acc-ctl status --json ID"};
}

/// Nothing: this terminal can be drawn on.
std::optional<Error> look_at_terminal() {
  if (::isatty(STDIN_FILENO) != 1 || ::isatty(STDOUT_FILENO) != 1)
    return no_terminal(std::string{"top needs a terminal, and standard "} +
                       (::isatty(STDOUT_FILENO) == 1 ? "input" : "output") + " is none");
  const char* type = std::getenv("TERM");
  if (type == nullptr || *type == '\0')
    return no_terminal(
        "the variable TERM, which names the type of this terminal, is not set: "
        "TERM=xterm-256color is right for most");
  int error = 0;
  const bool is_known = ::setupterm(type, STDOUT_FILENO, &error) == OK;
  const bool can_move = is_known && cursor_address != nullptr && clear_screen != nullptr;
  if (is_known) ::del_curterm(cur_term);
  if (can_move) return std::nullopt;
  if (is_known || error == 1)
    return no_terminal("a terminal of type " + in_quotes(type, 60) +
                       " (TERM) can't show a whole screen");
  return no_terminal("this machine has no description of a terminal of type " +
                     in_quotes(type, 60) +
                     " (TERM) in /etc/terminfo, /lib/terminfo or /usr/share/terminfo: try "
                     "TERM=xterm-256color or TERM=xterm, or install ncurses-base or ncurses-term");
}

}  // namespace

Result<std::unique_ptr<Screen>> Screen::open() {
  if (const auto error = look_at_terminal()) return *error;
  std::unique_ptr<Screen> screen{new Screen};
  screen->has_utf8_ = choose_locale();
  {
    const KeepsSuspendKey while_made;
    if (::newterm(nullptr, stdout, stdin) == nullptr)
      return no_terminal("this terminal can't be used");
  }
  for (const int signo : kFaults) std::signal(signo, on_fault);
  ::set_escdelay(kEscapeDelayMs);
  ::cbreak();
  ::noecho();
  ::nonl();
  ::keypad(stdscr, TRUE);
  // Terminals that don't follow what keypad() asks of them send these for the arrows.
  static constexpr std::pair<const char*, int> kPlainArrows[]{
      {"\033[A", KEY_UP}, {"\033[B", KEY_DOWN}, {"\033[C", KEY_RIGHT}, {"\033[D", KEY_LEFT}};
  for (const auto& [text, key] : kPlainArrows) ::define_key(text, key);
  ::nodelay(stdscr, TRUE);
  ::intrflush(stdscr, FALSE);
  screen->has_colors_ = !is_set("NO_COLOR") && ::has_colors();
  if (screen->has_colors_) make_colors();
  return screen;
}

Screen::~Screen() {
  ::endwin();
  for (const int signo : kFaults) std::signal(signo, SIG_DFL);
}

Size Screen::size() const {
  return {static_cast<std::size_t>(std::max(1, LINES)),
          static_cast<std::size_t>(std::max(1, COLS))};
}

void Screen::draw(const Frame& frame) {
  shown_ = frame;
  ::werase(stdscr);
  for (std::size_t row = 0; row < frame.lines.size(); ++row) {
    if (::wmove(stdscr, static_cast<int>(row), 0) == ERR) break;
    for (const auto& span : frame.lines[row]) {
      wattrset(stdscr, static_cast<int>(attributes_of(span.style, has_colors_)));
      const auto text = has_utf8_ ? span.text : ascii_of(span.text);
      ::waddnstr(stdscr, text.c_str(), static_cast<int>(text.size()));
    }
  }
  wattrset(stdscr, A_NORMAL);  // a macro, as some others
  ::curs_set(frame.cursor ? 1 : 0);
  if (frame.cursor)
    ::wmove(stdscr, static_cast<int>(frame.cursor->row), static_cast<int>(frame.cursor->column));
  ::wrefresh(stdscr);
}

std::vector<KeyPress> Screen::take_keys() {
  std::vector<KeyPress> keys;
  for (;;) {
    wint_t code = 0;
    const int kind = ::wget_wch(stdscr, &code);
    if (kind == ERR) return keys;
    if (kind == KEY_CODE_YES) {
      if (const auto key = key_of(static_cast<int>(code))) keys.push_back({*key});
    } else if (const auto press = character_of(code)) {
      keys.push_back(*press);
    }
  }
}

void Screen::resize() {
  winsize now{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &now) == 0 && now.ws_row > 0 && now.ws_col > 0)
    ::resizeterm(now.ws_row, now.ws_col);
}

void Screen::redraw() {
  ::clearok(curscr, TRUE);
  draw(Frame{shown_});
}

void Screen::suspend() {
  ::def_prog_mode();
  ::endwin();
  sigset_t stop;
  ::sigemptyset(&stop);
  ::sigaddset(&stop, SIGTSTP);
  std::signal(SIGTSTP, SIG_DFL);
  ::kill(::getpid(), SIGTSTP);
  ::sigprocmask(SIG_UNBLOCK, &stop, nullptr);  // here it stops, until SIGCONT
  ::sigprocmask(SIG_BLOCK, &stop, nullptr);
  ::reset_prog_mode();
  resize();
  redraw();
}

}  // namespace acc::ctl::top
