#include "launcher/ctl/command.hpp"

#include "common/duration.hpp"
#include "common/text.hpp"
#include "launcher/ctl/verbs.hpp"

#include <algorithm>
#include <array>
#include <ctime>
#include <utility>

namespace acc::ctl {

namespace {

/// What other tools call a verb of ours.
struct ForeignVerb {
  std::string_view theirs;
  std::string_view ours;
};
constexpr ForeignVerb kForeignVerbs[] = {
    {"kill", "stop"},    {"cancel", "stop"},      {"terminate", "stop"},  {"list", "ps"},
    {"jobs", "ps"},      {"run", "submit"},       {"start", "submit"},    {"delete", "rm"},
    {"remove", "rm"},    {"tail", "logs"},        {"describe", "status"}, {"show", "status"},
    {"cordon", "drain"}, {"uncordon", "undrain"},
};

std::string_view meant_by(std::string_view word) {
  for (const auto& foreign : kForeignVerbs) {
    if (foreign.theirs == word) return foreign.ours;
  }
  std::vector<std::string_view> names;
  for (const auto& row : verb_rows()) names.push_back(row.name);
  return nearest(word, names);
}

class Parser {
 public:
  explicit Parser(std::span<const std::string> words) : words_{words} {}

  Command parse() {
    while (at_ < words_.size() && command_.words.empty()) take(words_[at_++]);
    check();
    return std::move(command_);
  }

 private:
  void complain(std::string what) {
    command_.complaints.push_back({Errc::bad_usage, std::move(what)});
  }
  /// From here on the words are acc-launch's.
  void take_rest(std::size_t from) {
    command_.words.assign(words_.begin() + static_cast<std::ptrdiff_t>(from), words_.end());
    at_ = words_.size();
  }

  void take(const std::string& word) {
    const bool is_flag = word.size() > 1 && word[0] == '-';
    const bool is_submit = command_.verb == "submit";
    if (word == "--" && is_submit) return take_rest(at_);
    if (is_flag) return take_flag(word);
    if (is_submit) return take_rest(at_ - 1);
    if (!command_.verb.empty()) return command_.operands.push_back(word);
    if (find_verb(word) != nullptr) {
      command_.verb = word;
      return;
    }
    const auto meant = meant_by(word);
    complain(in_quotes(word, 60) + " is no verb of acc-ctl" +
             (meant.empty() ? std::string{} : " (did you mean " + std::string{meant} + "?)"));
    at_ = words_.size();
  }

  void take_flag(const std::string& word) {
    const auto name = word.substr(0, word.starts_with("--") ? word.find('=') : std::string::npos);
    const auto* flag = find_flag(name, command_.verb);
    if (flag == nullptr) return complain_of_flag(name);
    if (auto wrong = launcher::take_flag(*flag, words_, at_, command_.flags); !wrong.empty())
      complain(std::move(wrong));
  }

  void complain_of_flag(const std::string& name) {
    const auto meant = launcher::nearest_flag(flag_rows(), command_.verb, name);
    const std::string of = command_.verb.empty() ? "acc-ctl" : "acc-ctl " + command_.verb;
    std::string what = printable(name, 60) + " is no flag of " + of;
    if (!meant.empty())
      what += " (did you mean " + std::string{meant} + "?)";
    else if (command_.verb == "submit")
      what += ": flags of acc-launch stand behind --";
    complain(what);
  }

  void check() {
    for (const auto* early : {"--help", "--version", "--completion"}) {
      if (command_.has(early)) return;
    }
    if (!command_.complaints.empty()) return;
    if (command_.verb.empty()) return complain("a verb is missing: ps, status, logs, submit …");
    for (const auto& [name, values] : command_.flags) {  // those before the verb, too
      if (find_flag(name, command_.verb) == nullptr) return complain_of_flag(name);
    }
    const auto& row = *find_verb(command_.verb);
    const std::string usage = "acc-ctl " + command_.verb + " " + std::string{row.operands};
    const bool may_lack = row.operands.starts_with('[') && command_.operands.empty();
    const bool may_repeat = row.operands.ends_with("ID…");
    const auto count = may_repeat ? std::min(command_.operands.size(), row.operand_count)
                                  : command_.operands.size();
    if (count != row.operand_count && !may_lack) {
      complain(command_.operands.size() < row.operand_count
                   ? usage + ": an operand is missing"
                   : usage + ": too many operands, " + in_quotes(command_.operands.back(), 60));
    }
    if (command_.verb == "submit" && command_.words.empty())
      complain(usage + ": the words of acc-launch are missing, a script at least");
    if (command_.verb == "drain" && command_.value("--reason").empty())
      complain("acc-ctl drain --reason TEXT: the reason is missing");
    if (command_.has("--stdout") && command_.has("--stderr"))
      complain("--stdout and --stderr exclude each other: without both both are shown");
    check_number("--rank", "a local rank: 0, 1, …", 0);
    check_number("--slots", "a number from 1 on", 1);
    check_number("--gpus", "a number from 0 on", 0);
    check_number("--grace", "seconds, a whole number", 0);
    if (command_.has("--restart")) {
      if (const auto wish = parse_restart(command_.value("--restart")); !wish)
        command_.complaints.push_back(wish.error());
    }
    if (command_.has("--expires")) {
      if (const auto expiry = parse_expiry(command_.value("--expires")); !expiry)
        command_.complaints.push_back(expiry.error());
    }
  }

  void check_number(std::string_view flag, std::string_view expected, unsigned least) {
    if (!command_.has(flag)) return;
    const auto text = command_.value(flag);
    const auto number = parse_number<unsigned>(text);
    if (!number || *number < least)
      complain(std::string{flag} + " " + in_quotes(text, 40) + ": expected " +
               std::string{expected});
  }

  std::span<const std::string> words_;
  std::size_t at_ = 0;
  Command command_;
};

}  // namespace

std::string Command::value(std::string_view flag) const {
  return launcher::last_value(flags, flag);
}

Command parse_command(std::span<const std::string> words) { return Parser{words}.parse(); }

Result<RestartWish> parse_restart(std::string_view text) {
  const auto colon = text.find(':');
  RestartWish wish{std::string{text.substr(0, colon)}, 0};
  bool is_right = wish.policy == "no" || wish.policy == "on-failure" || wish.policy == "always";
  if (colon != std::string_view::npos) {
    const auto max = parse_number<unsigned>(text.substr(colon + 1));
    is_right = is_right && max && *max > 0;
    wish.max = max.value_or(0);
  }
  if (is_right) return wish;
  return Error{Errc::bad_usage, "--restart " + in_quotes(text, 40) +
                                    ": expected no, on-failure or always, and a number of times "
                                    "behind a colon (on-failure:3)"};
}

Result<std::uint32_t> parse_expiry(std::string_view text) {
  constexpr std::int64_t kDay = 24 * 3600;
  constexpr std::int64_t kMost = 366 * kDay;
  const bool is_days = text.ends_with('d');
  const auto days = is_days ? parse_number<std::uint32_t>(text.substr(0, text.size() - 1))
                            : std::optional<std::uint32_t>{};
  const auto time = is_days ? Result<Millis>{Millis{0}} : parse_duration(text);
  const std::int64_t seconds = days ? *days * kDay : time ? time->count() / 1000 : 0;
  const bool has_unit = text.find_first_not_of("0123456789.") != text.npos;
  const bool is_taken = has_unit && seconds >= 1 && seconds <= kMost;
  if (is_taken) return static_cast<std::uint32_t>(seconds);
  return Error{Errc::bad_usage,
               "--expires " + in_quotes(text, 40) +
                   ": expected a time with its unit, as 90m, 12h or 30d; at most 366d"};
}

Result<std::int64_t> parse_since(const std::string& text, std::int64_t now_ms) {
  if (const auto ago = parse_duration(text)) return now_ms - ago->count();
  for (const char* format : {"%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d"}) {
    std::tm time{};
    time.tm_isdst = -1;
    const char* end = ::strptime(text.c_str(), format, &time);
    if (end == nullptr || *end != '\0') continue;
    return static_cast<std::int64_t>(std::mktime(&time)) * 1000;
  }
  return Error{Errc::bad_usage, "--since " + in_quotes(text, 40) +
                                    ": expected a time ago (30s, 10m, 2h) or a local time "
                                    "(2026-01-31T12:00)"};
}

}  // namespace acc::ctl
