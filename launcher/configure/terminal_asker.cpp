#include "launcher/configure/terminal_asker.hpp"

#include "common/text.hpp"
#include "launcher/configure/line_edit.hpp"
#include "launcher/configure/menu.hpp"
#include "launcher/user_messages.hpp"

#include <unistd.h>

#include <algorithm>

namespace acc::configure {

namespace {

constexpr const char* kBold = "\x1b[1m";
constexpr const char* kGreen = "\x1b[32m";
constexpr const char* kPlain = "\x1b[0m";
constexpr const char* kHideCursor = "\x1b[?25l";
constexpr const char* kShowCursor = "\x1b[?25h";
constexpr const char* kClearLine = "\r\x1b[K";
constexpr const char* kClearBelow = "\r\x1b[J";

std::string up(std::size_t lines) {
  return lines == 0 ? std::string{} : "\x1b[" + std::to_string(lines) + "A";
}

void write_out(const std::string& text) { launcher::write_all(STDOUT_FILENO, text); }

std::size_t rows_for_menu() {
  constexpr std::size_t kOthers = 4;  // the question, the hint, and a line to spare
  const auto size = screen_size();
  return size.rows > kOthers ? size.rows - kOthers : 1;
}

std::string menu_text(const Menu& menu) {
  const auto columns = screen_size().columns;
  constexpr std::size_t kMark = 4;
  std::string out;
  for (std::size_t row = 0; row < menu.rows(); ++row) {
    const auto index = menu.first_in_view() + row;
    auto label = menu.labels()[index];
    if (label.size() + kMark > columns) label.resize(columns > kMark ? columns - kMark : 0);
    const bool is_marked = index == menu.marked();
    out += kClearLine + (is_marked ? std::string{" ➔ "} + kGreen + label + kPlain : "   " + label) +
           "\n";
  }
  return out;
}

/// The line with its end in view, and the cursor where it is.
std::string edit_text(const LineEdit& edit, bool is_shown) {
  auto before = edit.before_cursor();
  auto behind = edit.behind_cursor();
  if (!is_shown) before = behind = {};
  const std::size_t room = std::max<std::size_t>(screen_size().columns, 8) - 4;
  bool is_cut = false;
  while (width_of(before) > room) {
    before.erase(0, first_character_end(before));
    is_cut = true;
  }
  while (width_of(before) + width_of(behind) > room) behind.erase(last_character(behind));
  std::string out = kClearLine + std::string{is_cut ? "<" : ">"} + " " + before + behind;
  if (!behind.empty()) out += "\x1b[" + std::to_string(width_of(behind)) + "D";
  return out;
}

/// What every prompt does with these.
std::optional<Reply> common_reply(const KeyPress& key) {
  if (key.name == KeyPress::Name::interrupt) return Reply{Reply::Kind::cancelled};
  if (key.name == KeyPress::Name::back) return Reply{Reply::Kind::back};
  if (key.name == KeyPress::Name::closed || key.name == KeyPress::Name::gone)
    return Reply{Reply::Kind::ended, "the input ended before the question "};
  return std::nullopt;
}

}  // namespace

void TerminalAsker::say(const std::string& text) { write_out(text + "\n"); }

Reply TerminalAsker::ask(const Prompt& prompt) {
  const bool has_menu = prompt.question->kind == Kind::choice;
  std::string text = std::string{"\n"} + kBold + prompt.text + kPlain;
  if (!has_menu && !prompt.initial.empty()) text += " [" + prompt.initial + "]";
  write_out(text + "\n");
  Reply reply;
  if (has_menu) {
    std::vector<std::string> labels;
    for (const auto& option : prompt.options) labels.push_back(option.label);
    reply = choose(labels, prompt.initial_option);
  } else {
    reply = read_line(prompt.question->kind != Kind::secret);
  }
  return reply;
}

Reply TerminalAsker::choose(const std::vector<std::string>& labels, std::size_t initial) {
  Menu menu{labels, initial, rows_for_menu()};
  terminal_.write(std::string{kHideCursor} +
                  "arrow keys or the first letters, then Enter; ? explains, < goes back\n" +
                  menu_text(menu));
  for (;;) {
    const auto key = terminal_.read_key();
    const auto drawn = menu.rows();
    auto reply = common_reply(key);
    if (key.name == KeyPress::Name::enter) reply = Reply{Reply::Kind::option, {}, menu.marked()};
    if (key.name == KeyPress::Name::text && key.text == "?") reply = Reply{Reply::Kind::explain};
    if (key.name == KeyPress::Name::text && key.text == "<") reply = Reply{Reply::Kind::back};
    if (reply) {
      const auto chosen = reply->kind == Reply::Kind::option
                              ? std::string{kGreen} + labels[menu.marked()] + kPlain + "\n"
                              : std::string{};
      terminal_.write(up(drawn + 1) + kClearBelow + chosen + kShowCursor);
      return *reply;
    }
    menu.press(key);
    menu.resize(rows_for_menu());
    const bool was_away = key.name == KeyPress::Name::suspend;
    terminal_.write((was_away ? std::string{kHideCursor} : up(drawn)) + kClearBelow +
                    menu_text(menu));
  }
}

Reply TerminalAsker::read_line(bool is_shown) {
  LineEdit edit;
  for (;;) {
    terminal_.write(edit_text(edit, is_shown));
    const auto key = terminal_.read_key();
    const bool is_end_of_empty = key.name == KeyPress::Name::closed && !edit.text().empty();
    auto reply = is_end_of_empty ? std::nullopt : common_reply(key);
    if (key.name == KeyPress::Name::enter) {
      reply = Reply{Reply::Kind::typed, edit.text()};
      if (trim(edit.text()) == "?") reply = Reply{Reply::Kind::explain};
      if (trim(edit.text()) == "<") reply = Reply{Reply::Kind::back};
    }
    if (reply) {
      terminal_.write("\n");
      return *reply;
    }
    edit.press(key);
  }
}

Verdict TerminalAsker::confirm(const Preview& preview) {
  std::string text = std::string{"\n"} + kBold + printable(preview.path, 1000) + kPlain;
  text += preview.changes.empty() ? " will be made:\n" : " exists. It will become:\n";
  text += preview.text;
  if (!preview.changes.empty()) text += "\nWhat changes in it:\n" + preview.changes;
  write_out(text + "\n");
  const auto reply =
      choose({"write it", "go back to the last question", "quit without writing"}, 0);
  if (reply.kind == Reply::Kind::back) return Verdict::back;
  if (reply.kind == Reply::Kind::explain) return confirm(preview);
  if (reply.kind != Reply::Kind::option) return Verdict::quit;
  constexpr Verdict kVerdicts[] = {Verdict::write, Verdict::back, Verdict::quit};
  return kVerdicts[reply.option];
}

}  // namespace acc::configure
