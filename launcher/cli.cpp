#include "launcher/cli.hpp"

#include "common/text.hpp"
#include "launcher/habits.hpp"
#include "launcher/spellings.hpp"

#include <algorithm>
#include <cctype>

namespace acc::launcher {

namespace {

/// argparse takes these for values even though they begin with a dash.
bool looks_like_value(std::string_view word) {
  if (word.size() < 2 || word[0] != '-') return true;
  if (word.find(' ') != std::string_view::npos) return true;
  const auto digits = word.substr(1);  // a negative number: -5, -.5, -1.5
  const auto point = digits.find('.');
  const auto whole = digits.substr(0, point);
  const auto fraction =
      point == std::string_view::npos ? std::string_view{} : digits.substr(point + 1);
  const auto all_digits = [](std::string_view text) {
    return std::ranges::all_of(text, [](unsigned char c) { return std::isdigit(c) != 0; });
  };
  if (!all_digits(whole) || !all_digits(fraction)) return false;
  return point == std::string_view::npos ? !whole.empty() : !fraction.empty();
}

/// With --help, before or behind it, these ask for the flags of their mode, as in the original.
bool is_mode(const KeyRow& row) {
  return row.group == Group::processes && row.place == Place::nowhere;
}

bool looks_like_script(std::string_view word) {
  return word.ends_with(".py") || word.ends_with(".sh") || word.starts_with("./");
}

class Reader {
 public:
  explicit Reader(std::span<const std::string> words) : words_{words} {}

  CommandLine read() {
    while (next_ < words_.size() && !line_.script) {
      const std::string& word = words_[next_];
      if (word == "--") {
        read_script_after_dashes();
      } else if (word.size() > 1 && word[0] == '-') {
        read_option(word);
      } else {
        read_script();
      }
    }
    return std::move(line_);
  }

 private:
  void complain(std::string what) {
    line_.complaints.push_back({Errc::bad_usage, std::move(what)});
  }

  void read_script_after_dashes() {
    ++next_;
    if (next_ >= words_.size()) return;
    line_.script = words_[next_++];
    line_.script_args.assign(words_.begin() + static_cast<std::ptrdiff_t>(next_), words_.end());
  }

  void read_script() {
    line_.script = words_[next_++];
    if (next_ < words_.size() && words_[next_] == "--") ++next_;
    line_.script_args.assign(words_.begin() + static_cast<std::ptrdiff_t>(next_), words_.end());
  }

  void read_option(const std::string& word) {
    const auto equals = word.find('=');
    const auto name = word.substr(0, equals);
    const auto* row = spellings_.find(name);
    if (row == nullptr) row = spellings_.find_abbreviated(name);
    if (row != nullptr) {
      ++next_;
      const bool has_value = equals != std::string::npos;
      return take(*row, name, has_value ? std::optional{word.substr(equals + 1)} : std::nullopt);
    }
    // -machinefile would read as -m with the module "achinefile".
    const bool is_habit = word.size() > 2 && habit_of(name) != nullptr;
    const bool begins_with_letter =
        word[1] != '-' && spellings_.find(std::string_view{word}.substr(0, 2)) != nullptr;
    if (begins_with_letter && !is_habit) {
      ++next_;
      return take_letters(word);
    }
    if (looks_like_value(word))
      return read_script();  // -5 or "-a b": argparse sees a positional word
    ++next_;
    complain_unknown(word);
  }

  /// -t3 is -t 3, and -qm is -q -m.
  void take_letters(const std::string& word) {
    std::string rest = word.substr(1);
    while (!rest.empty()) {
      const std::string letter = "-" + rest.substr(0, 1);
      const auto* row = spellings_.find(letter);
      rest.erase(0, 1);
      if (row == nullptr)
        return complain("argument " + word + ": ignored explicit argument '" +
                        printable(letter.substr(1) + rest) + "'");
      if (row->type != Type::flag) {
        if (rest.empty()) return take(*row, letter, std::nullopt);
        if (rest[0] == '=') rest.erase(0, 1);
        return take(*row, letter, rest);
      }
      take(*row, letter, std::nullopt);
    }
  }

  void complain_unknown(const std::string& word) {
    const auto name = word.substr(0, word.find('='));
    std::string what = "unrecognized arguments: " + printable(word);
    constexpr std::size_t kEnoughAdvice =
        8;  // a look at every spelling; a thousand wrong words need no more of it
    if (line_.complaints.size() >= kEnoughAdvice) return complain(std::move(what));
    const auto* habit = habit_of(name);
    const auto meant =
        habit != nullptr ? Spellings::Meant{find_key(habit->key), {}} : spellings_.meant_by(name);
    if (habit != nullptr && habit->key.empty()) line_.foreign.push_back(line_.complaints.size());
    const auto advice = habit != nullptr ? std::string{habit->hint} : meant.advice;
    if (!advice.empty()) what += " (" + advice + ")";
    complain(std::move(what));
    if (meant.row != nullptr) line_.rejected.push_back(key_of(*meant.row));
    if (word.size() > name.size()) return;
    if (habit != nullptr) {
      const bool has_pair = habit->takes_pair && next_ < words_.size() &&
                            words_[next_].find('=') == std::string::npos;
      skip_value(habit->takes_value);
      return skip_value(has_pair);
    }
    if (meant.row != nullptr) return skip_value(meant.row->type != Type::flag);
    skip_what_may_be_a_value();
  }

  void skip_value(bool is_taken) {
    if (is_taken && next_ < words_.size() && !words_[next_].starts_with('-')) ++next_;
  }

  /// The word behind a flag that nobody knows is its value or the script. argparse takes it for the
  /// script, which hides all that is wrong further right. It is a value if flags of ours follow and
  /// it doesn't look like a script; else the script isn't known.
  void skip_what_may_be_a_value() {
    if (next_ >= words_.size() || words_[next_].starts_with('-')) return;
    line_.script_is_certain = false;
    if (looks_like_script(words_[next_])) return;
    const auto flags_follow =
        std::any_of(words_.begin() + static_cast<std::ptrdiff_t>(next_) + 1, words_.end(),
                    [&](const std::string& word) {
                      return spellings_.find(word.substr(0, word.find('='))) != nullptr;
                    });
    if (flags_follow) ++next_;
  }

  void take(const KeyRow& row, const std::string& spelled, std::optional<std::string> value) {
    if (row.type == Type::flag) {
      const bool has_topic = row.name == "help" && value;
      if (value && !has_topic && row.name != "make_secret") {
        return complain("argument " + spelled + ": ignored explicit argument '" +
                        printable(*value) +
                        "': a switch takes no value, leave it out to turn it off");
      }
      if (has_topic) {
        line_.help_topic = *value;
      } else if (row.name == "help") {
        read_help_topic();
      } else if (row.name == "make_secret") {
        read_secret_path(std::move(value));
      }
      return remember(row, spelled, Value{true});
    }
    if (!value) {
      const bool available =
          next_ < words_.size() && words_[next_] != "--" && is_value(words_[next_]);
      if (!available) {
        line_.rejected.push_back(key_of(row));
        return complain("argument " + spelled + ": expected one argument, " + metavar(row) + " (" +
                        std::string{row.help} + ")");
      }
      value = words_[next_++];
    }
    auto parsed = parse_value(row, *value);
    if (!parsed) {
      line_.rejected.push_back(key_of(row));
      return complain("argument " + spelled + ": " + parsed.error().what);
    }
    if (row.name == "env") line_.env.push_back(*value);
    remember(row, spelled, std::move(*parsed), std::move(*value));
  }

  [[nodiscard]] bool is_value(const std::string& word) const {
    if (word.empty() || word[0] != '-' || word.size() == 1) return true;
    if (spellings_.find(word) != nullptr ||
        spellings_.find(word.substr(0, word.find('='))) != nullptr)
      return false;
    return looks_like_value(word);
  }

  void read_help_topic() {
    line_.help_topic = "";
    if (next_ >= words_.size() || looks_like_script(words_[next_])) return;
    if (const auto* row = spellings_.find(words_[next_]); row != nullptr && is_mode(*row)) return;
    line_.help_topic = words_[next_++];
  }

  /// As help, an action: the word behind it is its own.
  void read_secret_path(std::optional<std::string> value) {
    const bool follows = !value && next_ < words_.size() && is_value(words_[next_]);
    if (follows) value = words_[next_++];
    if (value && value->empty())
      complain(
          "argument --make_secret: the path is empty: name a file, or leave it out for the "
          "usual place");
    line_.secret_path = std::move(value).value_or("");
  }

  void remember(const KeyRow& row, const std::string& spelled, Value value, std::string word = {}) {
    const auto key = key_of(row);
    const auto known = std::ranges::find(line_.options, key, &GivenOption::key);
    if (known != line_.options.end()) line_.options.erase(known);
    line_.options.push_back({key, std::move(value), spelled, std::move(word)});
  }

  std::span<const std::string> words_;
  std::size_t next_ = 0;
  Spellings spellings_;
  CommandLine line_;
};

}  // namespace

const GivenOption* CommandLine::given(Key key) const {
  const auto found = std::ranges::find(options, key, &GivenOption::key);
  return found == options.end() ? nullptr : &*found;
}

CommandLine parse_command_line(std::span<const std::string> words) { return Reader{words}.read(); }

}  // namespace acc::launcher
