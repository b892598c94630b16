#pragma once

#include "launcher/value.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// What one row of the questionnaire says, and the answers given so far.
namespace acc::configure {

using launcher::Entry;
using launcher::List;
using launcher::Map;
using launcher::Value;

enum class Kind {
  choice,   ///< one of `options`
  yes_no,   ///< yes or no
  integer,  ///< what Python's int() takes
  number,   ///< what Python's float() takes
  text,     ///< anything
  secret,   ///< text that a terminal doesn't show
};

struct Option {
  std::string label;
  Value value;
};

class Answers;

/// A row. Functions judge by the answers to earlier rows alone, so that going back is forgetting
/// the last answer.
struct Question {
  std::string_view id{};  ///< for --answers with names
  Kind kind{};
  std::string text{};              ///< the question, without its default
  std::string_view section{};      ///< of the file: fsdp_config …; empty: top level
  std::string_view key{};          ///< written with the answer as it is; empty: see config_map.cpp
  std::optional<Value> initial{};  ///< taken for an empty answer; none: an empty answer is judged
  std::vector<Option> choices{};
  std::string_view when{};                    ///< in words: when it is asked; empty: always
  bool (*applies)(const Answers&) = nullptr;  ///< nullptr: always
  std::string_view help{};                    ///< what `?` shows
  /// Where the choices or the words follow from earlier answers.
  std::vector<Option> (*choices_now)(const Answers&) = nullptr;
  std::string (*text_now)(const Answers&) = nullptr;
  /// Why there can be no config with this answer; empty: there can.
  std::string (*refuse)(const Answers&, const Value&) = nullptr;
  /// Why this answer is probably not meant, though it can be written; empty: it is fine.
  std::string (*doubt)(const Answers&, const Value&) = nullptr;
  /// With the answer yes, the question so many rows before is asked once more.
  std::size_t repeats_from = 0;
};

/// In the order in which they were given.
class Answers {
 public:
  struct Answer {
    const Question* question;  ///< of the table, which lives for ever
    Value value;
  };

  void add(const Question& question, Value value) {
    given_.push_back({&question, std::move(value)});
  }
  void drop_last() { given_.pop_back(); }
  [[nodiscard]] bool empty() const { return given_.empty(); }
  [[nodiscard]] std::span<const Answer> given() const { return given_; }

  /// The last one to a question of this name; nullptr: it was not asked.
  [[nodiscard]] const Value* find(std::string_view id) const;
  [[nodiscard]] bool is_yes(std::string_view id) const;
  /// Empty or 0 if it was not asked.
  [[nodiscard]] std::string text(std::string_view id) const;
  [[nodiscard]] std::int64_t integer(std::string_view id) const;

  /// distributed_type as it would be written now: DeepSpeed, FSDP and Megatron-LM take the place of
  /// the kind of machine.
  [[nodiscard]] std::string distributed_type() const;
  [[nodiscard]] bool is_local() const { return text("compute_environment") == "LOCAL_MACHINE"; }

 private:
  std::vector<Answer> given_;
};

}  // namespace acc::configure
