#include "launcher/configure/questionnaire.hpp"

#include "launcher/configure/config_map.hpp"
#include "launcher/configure/python_numbers.hpp"
#include "launcher/configure/questions.hpp"

#include <catch2/catch.hpp>

#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

using namespace acc::configure;

namespace {

/// The answers to the questions in their order, "" for the default; a wrong one throws.
Answers answered(const std::vector<std::string>& typed) {
  Answers answers;
  for (const auto& word : typed) {
    const auto* question = next_question(answers);
    REQUIRE(question != nullptr);
    const auto prompt = prompt_for(*question, answers);
    answers.add(*question, read_answer(prompt, word, Reading::exact).value());
  }
  return answers;
}

std::string next_id(const Answers& answers) {
  const auto* question = next_question(answers);
  return question == nullptr ? "" : std::string{question->id};
}

Value read(const Answers& answers, std::string_view typed, Reading reading) {
  return read_answer(prompt_for(*next_question(answers), answers), typed, reading).value();
}

Map written(const Answers& answers) { return config_of(answers, {{"HOME", "/home/u"}}, "/work"); }

std::string text_at(const Map& map, std::string_view key) {
  const auto* value = value_of(map, key);
  return value == nullptr ? "(none)" : python_text(*value);
}

}  // namespace

TEST_CASE("a question follows from the answers before it", "[configure]") {
  CHECK(next_id({}) == "compute_environment");
  CHECK(next_id(answered({""})) == "machine_type");
  CHECK(next_id(answered({"", "multi-GPU"})) == "num_machines");
  CHECK(next_id(answered({"", "multi-GPU", "1"})) == "debug");
  CHECK(next_id(answered({"", "multi-GPU", "2"})) == "machine_rank");
  CHECK(next_id(answered({"", "NO"})) == "use_cpu");
  CHECK(next_id(answered({"", "TPU"})) == "use_dynamo");
  CHECK(next_id(answered({"1"})) == "credentials");
}

TEST_CASE("DeepSpeed takes the questions for FSDP, Megatron-LM and device ids away",
          "[configure]") {
  auto answers = answered({"", "multi-GPU", "", "", "", "yes", "", "0", "", "", "", ""});
  CHECK(next_id(answers) == "num_processes");
  CHECK(answers.distributed_type() == "DEEPSPEED");
  answers.add(*next_question(answers), Value{std::int64_t{1}});
  CHECK(next_id(answers) == "mixed_precision");
}

TEST_CASE("what is written for the defaults is what accelerate config writes", "[configure]") {
  const auto map = written(answered({"", "", "", "", "", "", "", ""}));
  CHECK(next_id(answered({"", "", "", "", "", "", "", ""})).empty());
  CHECK(text_at(map, "distributed_type") == "NO");
  CHECK(text_at(map, "downcast_bf16") == "no");
  CHECK(text_at(map, "same_network") == "True");
  CHECK(text_at(map, "tpu_env") == "[]");
  CHECK(text_at(map, "main_process_ip") == "(none)");
  CHECK(text_at(map, "dynamo_config") == "(none)");
}

TEST_CASE("paths are written as the original's expanduser and abspath make them", "[configure]") {
  const auto mpi = answered({"", "multi-CPU", "", "", "yes", " ~/hosts "});
  CHECK(text_at(written(mpi), "mpirun_config") == "{'mpirun_hostfile': '/home/u/hosts'}");
  const auto tpu =
      answered({"", "TPU", "", "", "", "yes", "name", "zone", "", "yes", "yes", "../up.sh"});
  CHECK(text_at(written(tpu), "command_file") == "/up.sh");
}

TEST_CASE("a command may be followed by another one", "[configure]") {
  auto answers = answered({"", "TPU", "", "", "", "yes", "n", "z", "", "yes", "no", "first"});
  CHECK(next_id(answers) == "another_command");
  answers.add(*next_question(answers), Value{true});
  REQUIRE(next_id(answers) == "command");
  answers.add(*next_question(answers), Value{"second"});
  answers.add(*next_question(answers), Value{false});
  CHECK(next_id(answers) == "tpu_vm");
  CHECK(text_at(written(answers), "commands") == "['first', 'second']");
}

TEST_CASE("recorded answers are read as the original reads them", "[configure]") {
  const auto at_count = answered({"", "multi-GPU"});
  const auto prompt = prompt_for(*next_question(at_count), at_count);
  for (const auto* wrong : {"1.0", "x", "+-1", "1__0", "0x1", "99999999999999999999"})
    CHECK_FALSE(read_answer(prompt, wrong, Reading::exact).has_value());
  CHECK(python_text(read(at_count, " 1_0 ", Reading::exact)) == "10");
  CHECK(python_text(read(at_count, "", Reading::exact)) == "1");

  const auto at_yes_no = answered({"", "NO"});
  const auto yes_no = prompt_for(*next_question(at_yes_no), at_yes_no);
  CHECK(truthy(read(at_yes_no, "YES", Reading::exact)));
  CHECK_FALSE(read_answer(yes_no, "y", Reading::exact).has_value());
  CHECK_FALSE(read_answer(yes_no, " yes", Reading::exact).has_value());
  CHECK(truthy(read(at_yes_no, " y ", Reading::kind)));
}

TEST_CASE("a line of a menu is named by its label, its value or its number", "[configure]") {
  const auto at_type = answered({""});
  for (const auto* typed : {"multi-GPU", "MULTI_GPU", "multi-gpu", "4"})
    CHECK(python_text(read(at_type, typed, Reading::kind)) == "MULTI_GPU");
  CHECK_FALSE(
      read_answer(prompt_for(*next_question(at_type), at_type), "11", Reading::kind).has_value());
  // Labels that are numbers mean themselves.
  const auto at_version = answered({"", "multi-GPU", "", "", "", "", "yes"});
  REQUIRE(next_id(at_version) == "fsdp_version");
  CHECK(python_text(read(at_version, "1", Reading::kind)) == "1");
  CHECK_FALSE(read_answer(prompt_for(*next_question(at_version), at_version), "0", Reading::kind)
                  .has_value());
}

TEST_CASE("machines that differ are counted together", "[configure]") {
  const auto answers = answered({"", "multi-XPU", "", "", "", "", ""});
  REQUIRE(next_id(answers) == "num_processes");
  const auto prompt = prompt_for(*next_question(answers), answers);
  CHECK(python_text(read(answers, "8+4 + 4", Reading::kind)) == "16");
  CHECK_FALSE(read_answer(prompt, "8+", Reading::kind).has_value());
  CHECK_FALSE(read_answer(prompt, "8+4", Reading::exact).has_value());
}

TEST_CASE("numbers are Python's", "[configure]") {
  const std::vector<std::pair<std::string, double>> good{
      {"1", 1}, {" .5 ", 0.5}, {"5.", 5}, {"1e-3", 0.001}, {"-2", -2}, {"+1_0.5", 10.5}};
  for (const auto& [text, number] : good) CHECK(python_number(text) == number);
  for (const auto* wrong : {"", "1e", "x", "--1", "1_", "0x1p3", "1 2"})
    CHECK_FALSE(python_number(wrong));
  CHECK(python_number("Infinity") == std::numeric_limits<double>::infinity());
}

TEST_CASE("every question has words, a default of its own choices, and can be asked",
          "[configure]") {
  for (const auto& question : questions()) {
    INFO(question.id);
    CHECK(!question.id.empty());
    const bool has_text = !question.text.empty() || question.text_now != nullptr;
    CHECK(has_text);
    if (question.kind == Kind::yes_no) CHECK(question.initial.has_value());
    if (question.kind != Kind::choice || question.choices_now != nullptr) continue;
    const auto prompt = prompt_for(question, {});
    REQUIRE(!prompt.options.empty());
    CHECK(python_text(prompt.options[prompt.initial_option].value) ==
          python_text(*question.initial));
  }
}

TEST_CASE("random answers reach every question, end, and can be taken back one by one",
          "[configure]") {
  std::mt19937 random{7};
  std::set<const Question*> asked;
  for (int session = 0; session < 4000; ++session) {
    Answers answers;
    std::vector<const Question*> course;
    while (const auto* question = next_question(answers)) {
      const auto prompt = prompt_for(*question, answers);
      course.push_back(question);
      asked.insert(question);
      REQUIRE(course.size() < 200);
      const auto pick = static_cast<std::size_t>(random());
      Value value = prompt.options.empty() ? Value{std::int64_t{static_cast<int>(pick % 4)}}
                                           : prompt.options[pick % prompt.options.size()].value;
      answers.add(*question, std::move(value));
    }
    while (!answers.empty()) {
      answers.drop_last();
      CHECK(next_question(answers) == course.back());
      course.pop_back();
    }
  }
  CHECK(asked.size() == questions().size());
}
