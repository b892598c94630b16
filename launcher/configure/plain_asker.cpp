#include "launcher/configure/plain_asker.hpp"

#include "common/text.hpp"
#include "launcher/user_messages.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace acc::configure {

bool PlainAsker::read_line(std::string& line) {
  constexpr std::size_t kMaxLine = 64UL * 1024;
  for (;;) {
    const auto end = read_.find('\n');
    if (end != std::string::npos || (has_ended_ && !read_.empty())) {
      line = read_.substr(0, end);
      read_.erase(0, end == std::string::npos ? end : end + 1);
      if (line.ends_with('\r')) line.pop_back();
      return true;
    }
    if (has_ended_ || read_.size() > kMaxLine) return false;
    char buffer[4096];
    const auto got = ::read(in_, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got > 0) read_.append(buffer, static_cast<std::size_t>(got));
    has_ended_ = got <= 0;
  }
}

Reply PlainAsker::ask(const Prompt& prompt) {
  std::string text = prompt.text;
  if (prompt.question->kind == Kind::choice) {
    const bool are_numbers = std::ranges::all_of(prompt.options, [](const Option& option) {
      return parse_number<std::int64_t>(option.label).has_value();
    });
    if (are_numbers) {
      const auto& options = prompt.options;
      text += " (" + options.front().label +
              (options.size() > 1 ? " to " + options.back().label : std::string{}) + ")";
    } else {
      for (std::size_t i = 0; i < prompt.options.size(); ++i)
        text += "\n  " + std::to_string(i) + "  " + prompt.options[i].label;
      text += "\nNumber or name";
    }
  }
  text += prompt.initial.empty() ? ": " : " [" + prompt.initial + "]: ";
  if (const int failed = launcher::write_all(out_, text); failed != 0)
    return {Reply::Kind::ended, system_error(failed, "can't write the question").what + ": "};
  std::string line;
  if (!read_line(line)) {
    launcher::write_all(out_, "\n");
    return {Reply::Kind::ended, "the input ended before the question "};
  }
  if (trim(line) == "?") return {Reply::Kind::explain};
  if (trim(line) == "<") return {Reply::Kind::back};
  return {Reply::Kind::typed, line};
}

void PlainAsker::say(const std::string& text) { launcher::write_all(out_, text + "\n"); }

}  // namespace acc::configure
