#include "launcher/configure/convert.hpp"

#include "common/exit_codes.hpp"
#include "common/text.hpp"
#include "launcher/configure/config_text.hpp"
#include "launcher/configure/foreign_line.hpp"
#include "launcher/configure/fsdp2.hpp"
#include "launcher/configure/host_view.hpp"
#include "launcher/configure/messages.hpp"
#include "launcher/configure/save.hpp"
#include "launcher/document.hpp"
#include "launcher/program.hpp"
#include "launcher/shell_words.hpp"

#include <algorithm>
#include <filesystem>
#include <utility>

namespace acc::configure {

namespace {

int wrong_use(const std::string& what) {
  tell(what);
  return to_int(ExitCode::usage);
}

/// The whole file, whatever its keys are.
Result<Map> read_map(const std::string& path) {
  if (!file_exists(path))
    return Error{Errc::not_found, "there is no config file " + in_quotes(path)};
  const auto text = text_of_file(path);
  auto document =
      path.ends_with(".json") ? launcher::read_json(text, path) : launcher::read_yaml(text, path);
  if (!document) return document.error();
  auto* map = std::get_if<Map>(&document->root.data);
  if (map == nullptr)
    return Error{Errc::bad_config, path + ": holds no keys with values (key: value)"};
  return std::move(*map);
}

int convert_file(const Command& command) {
  if (command.operands.empty() && !command.has("--config_file"))
    return wrong_use("convert: name the file to convert");
  const auto path = file_of(command);
  const bool overwrites = command.has("--overwrite");
  const auto output = command.has("--output_file") ? command.value("--output_file") : path;
  if (!command.has("--output_file") && !overwrites)
    return wrong_use("convert: give --output_file FILE, or --overwrite to replace " +
                     in_quotes(path));
  if (command.has("--output_file") && !overwrites && file_exists(output))
    return wrong_use(in_quotes(output) + " exists already (--overwrite replaces it)");
  auto map = read_map(path);
  if (!map) return wrong_use(map.error().what);
  const auto converted = to_fsdp2(std::move(*map));
  for (const auto& note : converted.notes) tell("note: " + note);
  const auto saved = save_file(output, config_text_for(output, converted.map));
  if (saved) return print("wrote " + printable(output, 1000) + "\n");
  tell(saved.error().what + ": nothing was written");
  return to_int(ExitCode::output);
}

std::string start_of_line(const ForeignLine& line, const std::string& file) {
  std::string out;
  for (const auto& variable : line.variables) {
    const auto behind_equals = variable.find('=') + 1;
    out += variable.substr(0, behind_equals) +
           launcher::quote_for_paste(variable.substr(behind_equals)) + " ";
  }
  out += "acc-launch --config_file " + launcher::quote_for_paste(file);
  for (const auto& word : line.flags) out += " " + launcher::quote_for_paste(word);
  const auto& words = line.command;
  const bool is_misread =  // as a flag, or as the -- that may stand behind the script
      !words.empty() && (words[0].starts_with('-') || (words.size() > 1 && words[1] == "--"));
  if (is_misread) out += " --";
  for (const auto& word : words) out += " " + launcher::quote_for_paste(word);
  return out;
}

Result<std::string> read_regular_file(const std::string& path) {
  std::error_code failed;
  if (!std::filesystem::is_regular_file(path, failed))
    return Error{Errc::not_found, "there is no file " + in_quotes(path) + " here"};
  return text_of_file(path);
}

/// What the line depends on, here.
Result<LineContext> context_of(const Command& command) {
  auto facts = facts_of(command);
  if (!facts) return facts.error();
  const auto environment = launcher::read_environment();
  LineContext context;
  context.environment = environment;
  context.gpus = (*facts)->gpus();
  context.cores = std::max(1U, (*facts)->physical_cores());
  context.read_file = read_regular_file;
  context.is_program = [environment](const std::string& name) {
    return !launcher::find_program(name, environment).empty();
  };
  const auto of_line = environment_of(command.words, environment);  // it may set HF_HOME or HOME
  const auto standard = launcher::default_config_path(of_line);
  context.base_path = launcher::expand_home(
      config_file_in(command.words, file_exists(standard) ? standard : std::string{}), of_line);
  if (context.base_path.empty()) return context;
  auto config = launcher::load_config(context.base_path);
  if (!config) return config.error();
  context.base = std::move(config->keys);
  return context;
}

int convert_line(const Command& command) {
  if (command.has("--to") || !command.operands.empty() || command.has("--config_file"))
    return wrong_use("convert: a command line behind -- goes with --output_file alone");
  const auto output = command.value("--output_file");
  if (!output.empty() && file_exists(output) && !command.has("--overwrite"))
    return wrong_use(in_quotes(output) + " exists already (--overwrite replaces it)");
  const auto context = context_of(command);
  if (!context) return wrong_use(context.error().what);
  const auto line = read_foreign_line(command.words, *context);
  if (!line) return wrong_use(line.error().what);
  for (const auto& note : line->notes) tell("note: " + note);
  const auto text = config_text_for(output, line->map);
  const auto start = "Start with: " + start_of_line(*line, output.empty() ? "FILE" : output);
  if (output.empty()) {
    tell(start);
    return print(text);
  }
  const auto saved = save_file(output, text);
  if (saved) return print("wrote " + printable(output, 1000) + "\n" + start + "\n");
  tell(saved.error().what + ": nothing was written");
  return to_int(ExitCode::output);
}

}  // namespace

int convert(const Command& command) {
  if (command.has_words) return convert_line(command);
  const auto to = command.value("--to");
  if (to == "fsdp2") return convert_file(command);
  return wrong_use(to.empty() ? "convert: give a command line behind --, or --to fsdp2 and a file"
                              : "convert --to " + in_quotes(to, 60) + ": expected fsdp2");
}

}  // namespace acc::configure
