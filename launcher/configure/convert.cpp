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

/// As a shell reads it back.
std::string in_shell(const std::string& word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=,@%+~";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string{"'\\''"} : std::string(1, c);
  return out + "'";
}

std::string start_of_line(const ForeignLine& line, const std::string& file) {
  std::string out;
  for (const auto& variable : line.variables) {
    const auto behind_equals = variable.find('=') + 1;
    out += variable.substr(0, behind_equals) + in_shell(variable.substr(behind_equals)) + " ";
  }
  out += "acc-launch --config_file " + in_shell(file);
  for (const auto& word : line.flags) out += " " + in_shell(word);
  for (const auto& word : line.command) out += " " + in_shell(word);
  return out;
}

int convert_line(const Command& command) {
  if (command.has("--to") || !command.operands.empty() || command.has("--config_file"))
    return wrong_use("convert: a command line behind -- goes with --output_file alone");
  const auto output = command.value("--output_file");
  if (!output.empty() && file_exists(output) && !command.has("--overwrite"))
    return wrong_use(in_quotes(output) + " exists already (--overwrite replaces it)");
  auto facts = facts_of(command);
  if (!facts) return wrong_use(facts.error().what);
  Map base;
  if (const auto file = config_file_in(command.words); !file.empty()) {
    auto map = read_map(launcher::expand_home(file, launcher::read_environment()));
    if (!map) return wrong_use(map.error().what);
    base = std::move(*map);
  }
  const auto line = read_foreign_line(command.words, base, (*facts)->gpus());
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
