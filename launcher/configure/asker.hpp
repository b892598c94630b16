#pragma once

#include "common/error.hpp"
#include "launcher/configure/questionnaire.hpp"

#include <string>

namespace acc::configure {

/// What came back for a prompt.
struct Reply {
  enum class Kind {
    typed,      ///< words, to be read
    option,     ///< a line of a menu
    back,       ///< the question before, please
    explain,    ///< what is meant?
    cancelled,  ///< Ctrl-C
    ended,      ///< no more answers: `typed` says why
  };
  Kind kind = Kind::typed;
  std::string typed{};
  std::size_t option = 0;
};

/// What the file will be, before it is written.
struct Preview {
  std::string path;
  std::string text;
  std::string changes;  ///< lines with - and +; empty: no such file yet
};
enum class Verdict { write, back, quit };

/// Where answers come from: a person at a terminal, a person or a pipe line by line, or a file.
class Asker {
 public:
  Asker() = default;
  Asker(const Asker&) = delete;
  Asker& operator=(const Asker&) = delete;
  virtual ~Asker() = default;

  virtual Reply ask(const Prompt& prompt) = 0;
  /// What was wrong with an answer, an explanation, a note.
  virtual void say(const std::string& text) = 0;
  [[nodiscard]] virtual Reading reading() const { return Reading::kind; }
  /// False: what can't be corrected ends the questionnaire.
  [[nodiscard]] virtual bool is_person() const { return true; }
  /// False: a wrong answer is not followed by another one to the same question.
  [[nodiscard]] virtual bool has_second_try() const { return true; }
  virtual Verdict confirm(const Preview& /*preview*/) { return Verdict::write; }
  /// All questions are answered. The error names answers that none of them took.
  virtual Result<void> finish() { return {}; }
};

}  // namespace acc::configure
