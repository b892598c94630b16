#include "launcher/configure/questionnaire.hpp"

#include "common/text.hpp"
#include "launcher/configure/python_numbers.hpp"
#include "launcher/configure/questions.hpp"

#include <algorithm>
#include <numeric>

namespace acc::configure {

namespace {

bool is_same(const Value& one, const Value& other) {
  return one.data.index() == other.data.index() && python_text(one) == python_text(other);
}

Error invalid(std::string what) { return {Errc::bad_config, std::move(what)}; }

std::string labels(const std::vector<Option>& options) {
  constexpr std::size_t kEnough = 16;
  std::vector<std::string> all;
  for (const auto& option : options) {
    if (all.size() == kEnough) {
      all.emplace_back("…");
      break;
    }
    all.push_back(option.label);
  }
  return join(all, ", ");
}

bool are_numbers(const std::vector<Option>& options) {
  return std::ranges::all_of(options, [](const Option& option) {
    return parse_number<std::int64_t>(option.label).has_value();
  });
}

/// A label or the value that is written, in any case; else the number of the line, from 0. Where
/// the labels are numbers themselves, they alone count.
Result<Value> read_choice(const Prompt& prompt, std::string_view typed) {
  const auto word = to_lower(trim(typed));
  for (const auto& option : prompt.options) {
    if (word == to_lower(option.label) || word == to_lower(python_text(option.value)))
      return option.value;
  }
  const auto line = parse_number<std::size_t>(word);
  if (line && *line < prompt.options.size() && !are_numbers(prompt.options))
    return prompt.options[*line].value;
  return invalid("expected one of " + labels(prompt.options) +
                 (are_numbers(prompt.options) ? "" : ", or its number from 0"));
}

Result<Value> read_yes_no(std::string_view typed, Reading reading) {
  auto word = to_lower(typed);
  if (reading == Reading::kind) {
    word = trim(word);
    if (word == "y") word = "yes";
    if (word == "n") word = "no";
  }
  if (word == "yes") return Value{true};
  if (word == "no") return Value{false};
  return invalid("expected yes or no");
}

/// "8+4+4", the workers of machines that differ.
std::optional<std::int64_t> sum_of(std::string_view typed) {
  std::int64_t sum = 0;
  for (const auto& part : split(typed, '+')) {
    const auto number = python_integer(part);
    if (!number || *number < 0 || *number > 1'000'000) return std::nullopt;
    sum += *number;
  }
  return sum;
}

Result<Value> read_integer(const Prompt& prompt, std::string_view typed, Reading reading) {
  if (const auto number = python_integer(typed)) return Value{*number};
  if (reading == Reading::kind && prompt.question->id == "num_processes") {
    if (const auto sum = sum_of(typed)) return Value{*sum};
    return invalid("expected a whole number, or the counts of machines that differ, as 8+4");
  }
  return invalid("expected a whole number");
}

}  // namespace

const Question* next_question(const Answers& answers) {
  const auto table = questions();
  std::size_t at = 0;
  if (!answers.empty()) {
    const auto& last = answers.given().back();
    at = static_cast<std::size_t>(last.question - table.data()) + 1;
    const bool is_again = last.question->repeats_from != 0 && truthy(last.value);
    if (is_again) at -= last.question->repeats_from + 1;
  }
  for (; at < table.size(); ++at) {
    if (table[at].applies == nullptr || table[at].applies(answers)) return &table[at];
  }
  return nullptr;
}

Prompt prompt_for(const Question& question, const Answers& answers) {
  Prompt prompt{&question,
                question.text_now != nullptr ? question.text_now(answers) : question.text,
                question.choices_now != nullptr ? question.choices_now(answers) : question.choices};
  if (question.kind == Kind::yes_no) {
    prompt.options = {{"yes", Value{true}}, {"no", Value{false}}};
    prompt.initial = truthy(*question.initial) ? "YES/no" : "yes/NO";
  } else if (question.initial && !question.initial->is_bool()) {
    prompt.initial = python_text(*question.initial);
  }
  if (question.initial) {
    const auto found = std::ranges::find_if(prompt.options, [&](const Option& option) {
      return is_same(option.value, *question.initial);
    });
    if (found != prompt.options.end())
      prompt.initial_option = static_cast<std::size_t>(found - prompt.options.begin());
  }
  if (question.kind == Kind::choice && !prompt.options.empty())
    prompt.initial = prompt.options[prompt.initial_option].label;
  return prompt;
}

Result<Value> read_answer(const Prompt& prompt, std::string_view typed, Reading reading) {
  const auto& question = *prompt.question;
  const bool is_empty = reading == Reading::kind ? trim(typed).empty() : typed.empty();
  if (is_empty && question.kind == Kind::choice) return prompt.options[prompt.initial_option].value;
  if (is_empty && question.initial) return *question.initial;
  switch (question.kind) {
    case Kind::choice:
      return read_choice(prompt, typed);
    case Kind::yes_no:
      return read_yes_no(typed, reading);
    case Kind::integer:
      return read_integer(prompt, typed, reading);
    case Kind::number:
      if (const auto number = python_number(typed)) return Value{*number};
      return invalid("expected a number");
    case Kind::text:
    case Kind::secret:
      break;
  }
  return Value{std::string{reading == Reading::kind ? trim(typed) : typed}};
}

std::string answer_text(const Prompt& prompt, const Value& value) {
  if (prompt.question->kind == Kind::secret) return "(not shown)";
  for (const auto& option : prompt.options) {
    if (is_same(option.value, value)) return option.label;
  }
  return python_text(value);
}

}  // namespace acc::configure
