#pragma once

#include "common/error.hpp"
#include "launcher/configure/question.hpp"

#include <string>
#include <string_view>
#include <vector>

/// The questionnaire's rules, pure: which question is next, what is offered, what an answer means.
namespace acc::configure {

/// The first one behind the last answer whose condition holds; nullptr: all are answered.
[[nodiscard]] const Question* next_question(const Answers& answers);

/// A question as it is asked after these answers.
struct Prompt {
  const Question* question = nullptr;
  std::string text;
  std::vector<Option> options{};  ///< of a choice or yes_no; else empty
  std::size_t initial_option = 0;
  std::string initial{};  ///< as the prompt shows it: "1", "yes/NO"; empty: none
};
[[nodiscard]] Prompt prompt_for(const Question& question, const Answers& answers);

enum class Reading {
  exact,  ///< what the original takes, so that recorded answers keep their places
  kind,   ///< also y and n, blanks around, counts as 8+4
};
/// What typed words mean as an answer. The error says what is valid.
[[nodiscard]] Result<Value> read_answer(const Prompt& prompt, std::string_view typed,
                                        Reading reading);

/// "yes", "multi-GPU", "8": an answer as its question shows it.
[[nodiscard]] std::string answer_text(const Prompt& prompt, const Value& value);

}  // namespace acc::configure
