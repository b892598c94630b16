#include "launcher/configure/questions.hpp"

#include "common/text.hpp"
#include "launcher/config.hpp"

#include <unistd.h>

namespace acc::configure {

std::vector<Option> plain_options(std::string_view words) {
  std::vector<Option> options;
  for (const auto& word : split(words, ' ')) options.push_back({word, Value{word}});
  return options;
}

std::string doubt_below_one(const Answers& /*answers*/, const Value& value) {
  if (value.integer() == nullptr || *value.integer() >= 1) return {};
  return "it should be 1 or more";
}

std::string doubt_missing_file(const Answers& /*answers*/, const Value& value) {
  if (value.text() == nullptr || value.text()->empty()) return {};
  const auto path =
      launcher::expand_home(std::string{trim(*value.text())}, launcher::read_environment());
  if (::access(path.c_str(), F_OK) == 0) return {};
  return "there is no file " + in_quotes(path) + " on this machine";
}

std::span<const Question> questions() {
  static const Questions kTable = [] {
    Questions table;
    add_machine_questions(table);
    add_dynamo_questions(table, false);
    add_deepspeed_questions(table);
    add_sharding_questions(table);
    add_megatron_questions(table);
    add_device_questions(table);
    add_tpu_questions(table);
    add_precision_questions(table);
    add_sagemaker_questions(table);
    return table;
  }();
  return kTable;
}

}  // namespace acc::configure
