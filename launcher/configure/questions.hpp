#pragma once

#include "launcher/configure/question.hpp"

#include <span>

namespace acc::configure {

/// The table: all questions in the order in which `accelerate config` asks them (1.15.0.dev0), each
/// with the condition under which it does. The words are ours.
[[nodiscard]] std::span<const Question> questions();

using Questions = std::vector<Question>;
/// The parts of the table, one function a file. @param is_cloud  SageMaker asks some of them, too.
void add_machine_questions(Questions& table);
void add_dynamo_questions(Questions& table, bool is_cloud);
void add_sharding_questions(Questions& table);
void add_deepspeed_questions(Questions& table);
void add_megatron_questions(Questions& table);
void add_device_questions(Questions& table);
void add_tpu_questions(Questions& table);
void add_precision_questions(Questions& table);
void add_sagemaker_questions(Questions& table);

/// Options that are written as they are shown.
[[nodiscard]] std::vector<Option> plain_options(std::string_view words);
/// For Question::doubt: "at least 1".
[[nodiscard]] std::string doubt_below_one(const Answers&, const Value& value);
/// For a file that isn't there.
[[nodiscard]] std::string doubt_missing_file(const Answers&, const Value& value);

}  // namespace acc::configure
