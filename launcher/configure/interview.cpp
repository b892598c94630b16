#include "launcher/configure/interview.hpp"

#include "common/text.hpp"

#include <optional>

namespace acc::configure {

namespace {

class Course {
 public:
  Course(Asker& asker, Answers& answers) : asker_{asker}, answers_{answers} {}

  Interview run() {
    while (const auto* question = next_question(answers_)) {
      const auto prompt = prompt_for(*question, answers_);
      const auto reply = asker_.ask(prompt);
      if (auto end = take(prompt, reply)) return std::move(*end);
    }
    if (const auto finished = asker_.finish(); !finished) return failed(finished.error().what);
    return {};
  }

 private:
  static Interview failed(std::string why) { return {Interview::End::failed, std::move(why)}; }
  static std::string name(const Prompt& prompt) {
    return std::string{prompt.question->id} + " (\"" + prompt.text + "\")";
  }

  std::optional<Interview> take(const Prompt& prompt, const Reply& reply) {
    switch (reply.kind) {
      case Reply::Kind::cancelled:
        return Interview{Interview::End::cancelled, {}};
      case Reply::Kind::ended:
        return failed(reply.typed + name(prompt));
      case Reply::Kind::back:
        go_back();
        return std::nullopt;
      case Reply::Kind::explain:
        explain(prompt);
        return std::nullopt;
      case Reply::Kind::option:
        return judge(prompt, prompt.options[reply.option].value);
      case Reply::Kind::typed:
        break;
    }
    const auto value = read_answer(prompt, reply.typed, asker_.reading());
    if (value) return judge(prompt, *value);
    const auto why = in_quotes(reply.typed, 60) + ": " + value.error().what;
    if (!asker_.has_second_try()) return failed(name(prompt) + ": " + why);
    asker_.say(why);
    return std::nullopt;
  }

  void go_back() {
    doubted_.reset();
    if (answers_.empty()) return asker_.say("this is the first question");
    answers_.drop_last();
  }

  void explain(const Prompt& prompt) {
    const auto& question = *prompt.question;
    std::string text{question.help};
    if (!question.when.empty())
      text += (text.empty() ? "" : "\n") + ("Asked for: " + std::string{question.when} + ".");
    if (!question.key.empty()) {
      text += (text.empty() ? "" : "\n") +
              ("Key of the file: " + std::string{question.section} +
               (question.section.empty() ? "" : ".") + std::string{question.key} + ".");
    }
    asker_.say(text);
  }

  std::optional<Interview> judge(const Prompt& prompt, const Value& value) {
    const auto& question = *prompt.question;
    auto refusal = question.refuse != nullptr ? question.refuse(answers_, value) : std::string{};
    if (!refusal.empty()) {
      if (!asker_.is_person()) return failed(name(prompt) + ": " + refusal);
      asker_.say(refusal);
      return std::nullopt;
    }
    if (is_doubted(question, value)) return std::nullopt;
    answers_.add(question, value);
    return std::nullopt;
  }

  /// A person gets a doubtful answer back once; the same again is what was meant. For a file it is
  /// only told.
  bool is_doubted(const Question& question, const Value& value) {
    const auto doubt = question.doubt != nullptr ? question.doubt(answers_, value) : std::string{};
    const auto text = python_text(value);
    const bool is_meant = doubted_ == text;
    doubted_.reset();
    if (doubt.empty()) return false;
    if (!asker_.is_person()) {
      asker_.say("note: " + std::string{question.id} + " " + in_quotes(text, 60) + ": " + doubt);
      return false;
    }
    if (is_meant) return false;
    asker_.say(doubt + " (the same answer once more keeps it)");
    doubted_ = text;
    return true;
  }

  Asker& asker_;
  Answers& answers_;
  std::optional<std::string> doubted_;
};

}  // namespace

Interview interview(Asker& asker, Answers& answers) { return Course{asker, answers}.run(); }

}  // namespace acc::configure
