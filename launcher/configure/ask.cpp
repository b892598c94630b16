#include "launcher/configure/ask.hpp"

#include "common/exit_codes.hpp"
#include "common/text.hpp"
#include "launcher/configure/config_map.hpp"
#include "launcher/configure/config_text.hpp"
#include "launcher/configure/host_view.hpp"
#include "launcher/configure/interview.hpp"
#include "launcher/configure/line_changes.hpp"
#include "launcher/configure/messages.hpp"
#include "launcher/configure/plain_asker.hpp"
#include "launcher/configure/questions.hpp"
#include "launcher/configure/save.hpp"
#include "launcher/configure/script_askers.hpp"
#include "launcher/configure/terminal_asker.hpp"

#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <memory>

namespace acc::configure {

namespace {

constexpr int kInterrupted = 128 + SIGINT;

Result<std::unique_ptr<Asker>> asker_for(const Command& command) {
  if (command.has("--answers") || command.has("--set"))
    return script_asker(command.value("--answers"), command.values("--set"));
  const char* kind = std::getenv("TERM");
  const bool has_cursor = kind != nullptr && std::string_view{kind} != "dumb" && *kind != '\0';
  if (has_cursor && ::isatty(STDIN_FILENO) != 0 && ::isatty(STDOUT_FILENO) != 0)
    return std::unique_ptr<Asker>{std::make_unique<TerminalAsker>()};
  return std::unique_ptr<Asker>{std::make_unique<PlainAsker>(STDIN_FILENO, STDOUT_FILENO)};
}

bool is_ours(const Answers& answers) {
  return answers.is_local() && answers.text("machine_type") != "XLA";
}

/// How acc-launch deals out workers to machines.
std::string shares_of(std::int64_t workers, std::int64_t machines) {
  const auto least = workers / machines;
  const auto more = workers % machines;
  if (more == 0) return plural(static_cast<std::uint64_t>(least), "worker") + " on each machine";
  return std::to_string(least + 1) + " on each of the first " +
         plural(static_cast<std::uint64_t>(more), "machine") + ", " + std::to_string(least) +
         " on the others";
}

/// Once, after the last question: what the answers mean for a start.
void tell_consequences(const Answers& answers, const std::string& path) {
  if (!is_ours(answers))
    tell("note: jobs on SageMaker and TPUs are started with `accelerate launch --config_file " +
         printable(path, 1000) + "`");
  if (!answers.is_local()) {
    if (answers.integer("role_management") == 1)
      tell(
          "note: the IAM role accelerate_sagemaker_execution_role is not made here: make it with "
          "aws iam create-role");
    return;
  }
  const bool needs_tf32 = answers.is_yes("use_dynamo") && answers.text("mixed_precision") == "no" &&
                          !answers.is_yes("use_cpu");
  if (needs_tf32)
    tell(
        "note: torch dynamo without mixed precision is efficient with TF32 only, which Accelerate "
        "turns on by itself");
  if (answers.integer("num_machines") <= 1) return;
  tell("note: each machine needs this file with its own machine_rank, and all of them the same " +
       std::string{"secret (acc-config secret)"});
  const auto workers = answers.integer("num_processes");
  const auto machines = answers.integer("num_machines");
  if (workers < machines) return;  // acc-launch refuses it
  tell("note: " + shares_of(workers, machines) + "; any other split: acc-launch --hosts a:8,b:4");
}

std::string usual_command(const std::string& path, bool is_default_place) {
  return "acc-launch " + (is_default_place ? "" : "--config_file " + path + " ") + "train.py";
}

int save(const Command& command, const Answers& answers, const Preview& preview) {
  const auto saved = save_file(preview.path, preview.text);
  if (!saved) {
    tell(saved.error().what + ": nothing was written");
    return to_int(ExitCode::output);
  }
  const bool is_default_place = !command.has("--config_file");
  tell_consequences(answers, preview.path);
  std::string done = "wrote " + printable(preview.path, 1000) + "\n";
  if (is_ours(answers))
    done += "Start with: " + usual_command(printable(preview.path, 1000), is_default_place) + "\n";
  return print(done);
}

Preview preview_of(const Answers& answers, const std::string& path) {
  const auto map = config_of(answers, launcher::read_environment(), working_folder());
  Preview preview{path, config_text_for(path, map), {}};
  if (!file_exists(path)) return preview;
  preview.changes = line_changes(text_of_file(path), preview.text);
  if (preview.changes.empty()) preview.changes = "(no change)\n";
  return preview;
}

/// "yes|no", "whole number".
std::string kinds_of_answers(const Prompt& prompt) {
  const auto kind = prompt.question->kind;
  std::vector<std::string> options;
  for (const auto& option : prompt.options)
    options.push_back(kind == Kind::yes_no ? option.label : python_text(option.value));
  if (!options.empty()) return join(options, "|");
  if (kind == Kind::integer || kind == Kind::choice) return "whole number";
  return kind == Kind::number ? "number" : "text";
}

}  // namespace

int ask_and_write(const Command& command) {
  const auto path = file_of(command);
  if (const auto place = check_place(path); !place) {
    tell(place.error().what);
    return to_int(ExitCode::output);
  }
  auto asker = asker_for(command);
  if (!asker) {
    tell(asker.error().what);
    return to_int(ExitCode::usage);
  }
  Answers answers;
  for (;;) {
    const auto done = interview(**asker, answers);
    if (done.end == Interview::End::cancelled) {
      tell("interrupted: nothing was written");
      return kInterrupted;
    }
    if (done.end == Interview::End::failed) {
      tell(done.why + "\nnothing was written");
      return to_int(ExitCode::usage);
    }
    const auto preview = preview_of(answers, path);
    const auto verdict = command.has("--yes") ? Verdict::write : (*asker)->confirm(preview);
    if (verdict == Verdict::write) return save(command, answers, preview);
    if (verdict == Verdict::quit) {
      tell("nothing was written");
      return kInterrupted;
    }
    answers.drop_last();
  }
}

std::string list_of_questions() {
  std::string out;
  constexpr std::size_t kTextColumn = 40;
  const Answers none;
  for (const auto& question : questions()) {
    const auto prompt = prompt_for(question, none);
    std::string line{question.id};
    line.resize(std::max(line.size() + 2, kTextColumn), ' ');
    line += kinds_of_answers(prompt);
    if (question.initial) {
      const bool is_yes_no = question.kind == Kind::yes_no;
      const auto text =
          is_yes_no ? answer_text(prompt, *question.initial) : python_text(*question.initial);
      line += text.empty() ? ", default empty" : ", default " + text;
    }
    if (!question.when.empty()) line += "; for: " + std::string{question.when};
    out += line + "\n";
  }
  return out;
}

}  // namespace acc::configure
