#include "launcher/configure/command.hpp"

#include "common/text.hpp"
#include "launcher/configure/verbs.hpp"

#include <utility>

namespace acc::configure {

namespace {

class Reader {
 public:
  explicit Reader(std::span<const std::string> words) : words_{words} {}

  Command read() {
    while (at_ < words_.size()) take(words_[at_++]);
    check();
    return std::move(command_);
  }

 private:
  void complain(std::string what) {
    command_.complaints.push_back({Errc::bad_usage, std::move(what)});
  }

  void take(const std::string& word) {
    if (word == "--") {
      command_.has_words = true;
      command_.words.assign(words_.begin() + static_cast<std::ptrdiff_t>(at_), words_.end());
      at_ = words_.size();
      return;
    }
    if (word.size() > 1 && word[0] == '-') return take_flag(word);
    if (!command_.verb.empty()) return command_.operands.push_back(word);
    if (!word.empty() && find_verb(word) != nullptr) {
      command_.verb = word;
      return;
    }
    std::vector<std::string_view> names;
    for (const auto& row : verb_rows()) names.push_back(row.name);
    const auto meant = nearest(word, names);
    complain(in_quotes(word, 60) + " is no verb of acc-config" +
             (meant.empty() ? ": without one it asks; a file is named with --config_file"
                            : " (did you mean " + std::string{meant} + "?)"));
  }

  void take_flag(const std::string& word) {
    const auto name = word.substr(0, word.starts_with("--") ? word.find('=') : std::string::npos);
    const auto* flag = launcher::find_flag(flag_rows(), name);
    if (flag == nullptr) return complain_of_flag(name);
    if (auto wrong = launcher::take_flag(*flag, words_, at_, command_.flags); !wrong.empty())
      complain(std::move(wrong));
  }

  void complain_of_flag(const std::string& name) {
    const auto meant = launcher::nearest_flag(flag_rows(), command_.verb, name);
    const auto& verb = command_.verb;
    complain(printable(name, 60) + " is no flag of acc-config" + (verb.empty() ? "" : " " + verb) +
             (meant.empty() ? std::string{} : " (did you mean " + std::string{meant} + "?)"));
  }

  void check() {
    for (const auto* early : {"--help", "--version", "--completion"}) {
      if (command_.has(early)) return;
    }
    if (!command_.complaints.empty()) return;
    for (const auto& [name, values] : command_.flags) {
      const auto& flag = *launcher::find_flag(flag_rows(), name);
      if (!belongs_to(flag, command_.verb)) complain_of_flag(name);
      if (!flag.metavar.empty() && values.back().empty()) complain(name + ": the value is empty");
    }
    const auto& row = *find_verb(command_.verb);
    const auto usage = "acc-config " + command_.verb + " " + std::string{row.operands};
    if (command_.operands.size() > row.max_operands)
      complain(usage + ": too many operands, " + in_quotes(command_.operands.back(), 60));
    if (command_.has_words && !row.takes_words) complain(usage + ": nothing may stand behind --");
    if (!command_.operands.empty() && command_.has("--config_file"))
      complain(usage + ": name the file once, as an operand or with --config_file");
  }

  std::span<const std::string> words_;
  std::size_t at_ = 0;
  Command command_;
};

}  // namespace

std::string Command::value(std::string_view flag) const {
  return launcher::last_value(flags, flag);
}

std::vector<std::string> Command::values(std::string_view flag) const {
  const auto found = flags.find(flag);
  return found == flags.end() ? std::vector<std::string>{} : found->second;
}

Command parse_command(std::span<const std::string> words) { return Reader{words}.read(); }

}  // namespace acc::configure
