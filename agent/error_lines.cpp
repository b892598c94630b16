#include "agent/error_lines.hpp"

#include "agent/last_lines.hpp"
#include "common/text.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>
#include <optional>
#include <span>

namespace acc::agent {

namespace {

constexpr std::string_view kTraceback = "Traceback (most recent call last):";
constexpr std::string_view kTerminate = "terminate called";
constexpr std::string_view kWhat = "what():";
constexpr std::size_t kWidth = 300;
constexpr std::size_t kShortWidth = 200;  // of one that is a part of a line
// An error is told as the last one if at most so many lines of other output follow.
constexpr std::size_t kNear = 40;

bool is_of_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.';
}

// "[rank3]: ", "[3]:", "[default0]:": as torch and torchrun put in front. A number of an error, as
// "[Errno 2] …", isn't followed by a colon.
std::string_view without_rank(std::string_view line) {
  constexpr std::size_t kLongest = 20;
  if (!line.starts_with('[')) return line;
  const auto end = line.find("]:");
  if (end == std::string_view::npos || end > kLongest) return line;
  const auto name = line.substr(1, end - 1);
  if (name.empty() || !std::ranges::all_of(name, is_of_name) ||
      std::isdigit(static_cast<unsigned char>(name.back())) == 0)
    return line;
  line.remove_prefix(end + 2);
  return line.starts_with(' ') ? line.substr(1) : line;
}

// Of an exception group: "  | ValueError: a", "  + Exception Group Traceback (…):".
std::string_view without_bars(std::string_view line) {
  const auto at = line.find_first_not_of(' ');
  const bool has_bar = at != std::string_view::npos && at > 0 && line.substr(at).starts_with("| ");
  return has_bar ? line.substr(at + 2) : line;
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.remove_suffix(1);
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    auto line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    while (line.ends_with('\r')) line.remove_suffix(1);
    line.remove_prefix(line.rfind('\r') + 1);  // npos + 1 is 0
    lines.push_back(without_rank(line));
  }
  return lines;
}

// "ValueError", "torch.cuda.OutOfMemoryError": of "ValueError: x" and of "KeyboardInterrupt".
std::optional<std::string_view> name_of_exception(std::string_view line) {
  const auto end = std::ranges::find_if_not(line, is_of_name);
  const auto name = line.substr(0, static_cast<std::size_t>(end - line.begin()));
  const bool is_name = !name.empty() && std::isdigit(static_cast<unsigned char>(name[0])) == 0 &&
                       name.find("..") == std::string_view::npos && !name.ends_with('.');
  if (!is_name || (name.size() < line.size() && !line.substr(name.size()).starts_with(':')))
    return std::nullopt;
  return name;
}

bool begins_with_figure(std::string_view value) {
  constexpr std::array<std::string_view, 4> kMakers{"tensor(", "array(", "Array(", "np.float"};
  if (std::ranges::any_of(kMakers, [&](auto maker) { return value.starts_with(maker); }))
    return true;
  if (value.starts_with('-') || value.starts_with('+')) value.remove_prefix(1);
  if (value.starts_with('.')) value.remove_prefix(1);
  if (!value.empty() && std::isdigit(static_cast<unsigned char>(value[0])) != 0) return true;
  const auto end = std::ranges::find_if_not(value, is_of_name);
  const auto word = value.substr(0, static_cast<std::size_t>(end - value.begin()));
  return word == "nan" || word == "inf";
}

// "[0.1, 0.2]", "(0.1, nan)": and nothing behind it, as in "[3] is not a shape".
bool is_list_of_figures(std::string_view value) {
  if (!value.starts_with('[') && !value.starts_with('(')) return false;
  const auto end = value.rfind(value[0] == '[' ? ']' : ')');
  if (end == std::string_view::npos || end + 1 != value.size()) return false;
  const auto figures = split(value.substr(1, end - 1), ',');
  return std::ranges::all_of(figures,
                             [](const auto& figure) { return begins_with_figure(trim(figure)); });
}

// "ValidationError: 0.03, best 0.02", "L2Error: nan": of a training. A key may be a number.
bool is_figure(std::string_view name, std::string_view behind) {
  if (name == "KeyError") return false;
  const auto value = trim(behind);
  return begins_with_figure(value) || is_list_of_figures(value);
}

bool is_exception(std::string_view line) {
  constexpr std::array<std::string_view, 6> kEnds{"Error",      "Exception",      "Interrupt",
                                                  "SystemExit", "ExceptionGroup", "StopIteration"};
  line = without_bars(line);
  const auto name = name_of_exception(line);
  if (!name || std::ranges::none_of(kEnds, [&](auto end) { return name->ends_with(end); }))
    return false;
  return line.size() == name->size() || !is_figure(*name, line.substr(name->size() + 1));
}

// What std::terminate, assert, glibc and other runtimes write before they abort.
bool is_abort(std::string_view line) {
  constexpr std::array<std::string_view, 9> kBegins{kTerminate,
                                                    "libc++abi: terminating",
                                                    "panic: ",
                                                    "double free or corruption",
                                                    "free(): ",
                                                    "malloc(): ",
                                                    "realloc(): ",
                                                    "munmap_chunk(): ",
                                                    "*** stack smashing detected"};
  if (trim(line).starts_with(kWhat)) return true;
  if (std::ranges::any_of(kBegins, [&](auto begin) { return line.starts_with(begin); }))
    return true;
  return (line.find(": Assertion `") != std::string_view::npos && line.ends_with("failed.")) ||
         (line.starts_with("thread '") && line.find("' panicked at ") != std::string_view::npos);
}

bool is_fatal(std::string_view line) {
  return line.starts_with("FATAL") || line.starts_with("Fatal Python error: ");
}

bool is_indented(std::string_view line) { return line.starts_with(' ') || line.starts_with('\t'); }

// What may stand between an error and the one that it led to.
bool is_link(std::string_view line) {
  return trim(line).empty() || is_indented(line) || line.ends_with(kTraceback) ||
         line.starts_with("During handling of the above exception") ||
         line.starts_with("The above exception was the direct cause");
}

// A traceback's exception may have any name; it is the first line that isn't indented.
std::vector<std::size_t> errors_in(const std::vector<std::string_view>& lines) {
  std::vector<std::size_t> errors;
  bool is_in_traceback = false;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto line = lines[i];
    const bool is_raised =
        is_in_traceback && !is_indented(line) && name_of_exception(line).has_value();
    if (is_raised || is_exception(line) || is_abort(line) || is_fatal(line)) errors.push_back(i);
    is_in_traceback = line.ends_with(kTraceback) || (is_in_traceback && is_indented(line));
  }
  return errors;
}

// The last error and those before it that led to it, the oldest first.
std::vector<std::size_t> last_chain(const std::vector<std::string_view>& lines,
                                    const std::vector<std::size_t>& errors) {
  constexpr std::size_t kMost = 4;
  std::vector<std::size_t> chain;
  for (auto error = errors.rbegin(); error != errors.rend() && chain.size() < kMost; ++error) {
    const auto link = [&](std::size_t i) { return is_link(lines[i]); };
    bool leads_on = true;
    for (auto i = *error + 1; !chain.empty() && i < chain.front(); ++i)
      leads_on = leads_on && link(i);
    if (!leads_on) break;
    chain.insert(chain.begin(), *error);
  }
  return chain;
}

// "Traceback …", "  File …, line 6, in f", "    the line of it": those of them that are there.
std::vector<std::size_t> frame_of(const std::vector<std::string_view>& lines, std::size_t error) {
  std::vector<std::size_t> frame;
  auto at = error;
  while (at > 0 && is_indented(lines[at - 1])) --at;
  for (auto i = error; i > at; --i) {
    if (!lines[i - 1].starts_with("  File \"")) continue;
    frame.push_back(i - 1);
    if (i < error) frame.push_back(i);
    break;
  }
  const bool has_head = at > 0 && at < error && lines[at - 1].ends_with(kTraceback);
  if (has_head && !frame.empty()) frame.insert(frame.begin(), at - 1);
  return frame;
}

// What may be written behind an exception that ends a Python program: by exit handlers and by the
// interpreter itself. Anything else may be the work of one that caught it.
bool is_of_exit(std::string_view line) {
  constexpr std::array<std::string_view, 6> kBegins{
      "wandb: ", "COMET ", "[W", "[E", "Exception ignored in", "Error in sys.excepthook"};
  return trim(line).empty() || is_indented(line) ||
         line.find("Warning: ") != std::string_view::npos ||
         std::ranges::any_of(kBegins, [&](auto begin) { return line.starts_with(begin); });
}

// Lines behind `error` that are neither its frames nor of the exit.
std::size_t others_behind(const std::vector<std::string_view>& lines, std::size_t error) {
  return static_cast<std::size_t>(std::count_if(
      lines.begin() + static_cast<std::ptrdiff_t>(error) + 1, lines.end(), [](auto line) {
        return !is_of_exit(line) && !line.starts_with("frame #") && !is_fatal(line);
      }));
}

std::vector<std::string_view> near_lines_of(std::string_view text) {
  auto lines = lines_of(text);
  if (lines.size() > kNear) lines.erase(lines.begin(), lines.end() - kNear);
  return lines;
}

std::string shown(std::string_view line, std::size_t width = kWidth) {
  auto lines = last_lines(line, 1, width);
  return lines.empty() ? std::string{} : std::move(lines.front());
}

}  // namespace

std::string last_error_line(std::string_view text) {
  const auto lines = lines_of(text);
  const auto errors = errors_in(lines);
  return errors.empty() ? std::string{} : std::string{lines[errors.back()]};
}

std::string uncaught_error_line(std::string_view text) {
  const auto lines = near_lines_of(text);
  const auto errors = errors_in(lines);
  if (errors.empty()) return {};
  const std::span behind{lines.begin() + static_cast<std::ptrdiff_t>(errors.back()) + 1,
                         lines.end()};
  return std::ranges::all_of(behind, is_of_exit) ? std::string{lines[errors.back()]}
                                                 : std::string{};
}

std::string words_of_last_error(std::string_view text) {
  const auto lines = near_lines_of(text);
  const auto errors = errors_in(lines);
  auto begin = errors.empty() ? 0 : last_chain(lines, errors).front();
  // What std::terminate says may be of the end of a program that an exception ended.
  if (!errors.empty() && is_abort(lines[begin])) {
    const auto earlier = std::ranges::find_if(errors.rbegin(), errors.rend(), [&](std::size_t i) {
      return i < begin && !is_abort(lines[i]);
    });
    if (earlier != errors.rend()) begin = *earlier;
  }
  std::string words;
  for (auto i = begin; i < lines.size(); ++i) words.append(lines[i]) += '\n';
  return words;
}

std::size_t lines_since_older_error(std::string_view text, bool is_killed) {
  const auto lines = lines_of(text);
  const auto errors = errors_in(lines);
  if (errors.empty()) return 0;
  const auto error = errors.back();
  const bool ends_by_signal = is_abort(lines[error]) || is_fatal(lines[error]);
  const bool may_be_last = !is_killed || ends_by_signal;
  return may_be_last && others_behind(lines, error) <= kNear ? 0 : lines.size() - error - 1;
}

bool names_missing_peer(std::string_view text) {
  // Of what took too long only the libraries' own words: a program's time-out is its own error.
  constexpr std::array<std::string_view, 13> kWords{"Connection closed by",
                                                    "Connection reset by",
                                                    "Broken pipe",
                                                    "ncclRemoteError",
                                                    "failed to recv, got 0",
                                                    "recvValue failed",
                                                    "remote process exited",
                                                    "ms for send operation",
                                                    "ms for recv operation",
                                                    "Watchdog caught collective operation timeout",
                                                    "caused pair closure",
                                                    "Socket Timeout",
                                                    "DistStoreError: Timed out"};
  const auto words = words_of_last_error(text);
  return std::ranges::any_of(kWords,
                             [&](auto piece) { return words.find(piece) != std::string::npos; });
}

std::string own_error(std::string_view text) {
  constexpr std::array<std::string_view, 3> kOfSignals{"KeyboardInterrupt", "SystemExit", "Signal"};
  const auto error = uncaught_error_line(text);
  const auto name = name_of_exception(error).value_or(std::string_view{});
  if (std::ranges::any_of(kOfSignals, [&](auto of) { return name.find(of) != name.npos; }))
    return {};
  return names_missing_peer(text) ? std::string{} : shown(trim(error), kShortWidth);
}

std::string abort_words(std::string_view text) {
  constexpr std::string_view kThrown = "terminate called after throwing an instance of '";
  const auto lines = lines_of(text);
  const auto last = std::ranges::find_if(lines.rbegin(), lines.rend(), is_abort);
  if (last == lines.rend()) return {};
  std::string words{trim(*last)};
  std::string thrown;
  const auto before = std::next(last);
  const auto line_before = before == lines.rend() ? std::string_view{} : *before;
  // Other threads may write behind std::terminate; another word that is far from the end ended no
  // process, or another one.
  const bool is_terminate = last->starts_with(kTerminate) || line_before.starts_with(kTerminate);
  const auto at = static_cast<std::size_t>(lines.rend() - last) - 1;
  if (!is_terminate && others_behind(lines, at) > kNear) return {};
  for (const auto line : {*last, line_before}) {
    if (!line.starts_with(kThrown)) continue;
    const auto name = line.substr(kThrown.size());
    thrown = name.substr(0, name.find('\''));
    break;
  }
  if (words.starts_with(kWhat)) words = trim(std::string_view{words}.substr(kWhat.size()));
  if (words.starts_with(kThrown)) {
    words = thrown;
  } else if (!thrown.empty()) {
    words = thrown + ": " + words;
  }
  return shown(words, kShortWidth);
}

std::vector<std::string> error_lines_before(std::string_view text, std::size_t count) {
  const auto lines = lines_of(text);
  const auto errors = errors_in(lines);
  if (errors.empty() || errors.back() + count >= lines.size()) return {};
  auto which = last_chain(lines, errors);
  // The error with a place in the program: behind it there may be what std::terminate says of it.
  for (auto error = which.rbegin(); error != which.rend(); ++error) {
    const auto frame = frame_of(lines, *error);
    if (frame.empty()) continue;
    which.insert(which.end(), frame.begin(), frame.end());
    std::ranges::sort(which);
    break;
  }
  std::vector<std::string> found;
  std::optional<std::size_t> before;
  for (const auto i : which) {
    if (before && i > *before + 1) found.emplace_back("  …");
    found.push_back(shown(lines[i]));
    before = i;
  }
  return found;
}

}  // namespace acc::agent
