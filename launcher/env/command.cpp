#include "launcher/env/command.hpp"

#include "common/text.hpp"

#include <array>
#include <optional>
#include <string_view>

namespace acc::env {
namespace {

constexpr std::array<std::string_view, 6> kNames{"--format",      "--markdown", "--json",
                                                 "--config_file", "--help",     "--version"};

std::optional<Format> format_of(std::string_view word) {
  if (word == "text") return Format::text;
  if (word == "markdown") return Format::markdown;
  if (word == "json") return Format::json;
  return std::nullopt;
}

std::string unknown(std::string_view word) {
  const auto meant = nearest(word.substr(0, word.find('=')), kNames);
  return "unknown word " + in_quotes(word) +
         (meant.empty() ? "" : " (did you mean " + std::string{meant} + "?)");
}

}  // namespace

Command parse_command(std::span<const std::string> words) {
  Command command;
  const auto complain = [&](std::string what) {
    command.complaints.push_back({Errc::bad_usage, std::move(what)});
  };
  for (std::size_t at = 0; at < words.size(); ++at) {
    const std::string_view word = words[at];
    const auto equals = word.starts_with("--") ? word.find('=') : std::string_view::npos;
    const auto name = word.substr(0, equals);
    const auto take_value = [&]() -> std::string {
      if (equals != std::string_view::npos) return std::string{word.substr(equals + 1)};
      if (at + 1 < words.size()) return words[++at];
      complain(std::string{name} + " needs a value");
      return {};
    };
    if (word == "-h" || word == "--help") {
      command.help = true;
    } else if (word == "--version") {
      command.version = true;
    } else if (word == "--markdown") {
      command.format = Format::markdown;
    } else if (word == "--json") {
      command.format = Format::json;
    } else if (name == "--config_file" || name == "--config-file") {
      command.config_file = take_value();
    } else if (name == "--format") {
      const auto value = take_value();
      const auto format = format_of(value);
      if (format)
        command.format = *format;
      else if (!value.empty())
        complain("--format " + in_quotes(value) + ": expected text, markdown or json");
    } else {
      complain(unknown(word));
    }
  }
  return command;
}

std::string help_text() {
  return "usage: acc-env [--format text|markdown|json] [--config_file FILE]\n\n"
         "Prints what a bug report should hold: versions, system, cores, memory, GPUs, Python and "
         "its\n"
         "packages, addresses, the config file, and the variables of launchers and schedulers.\n"
         "Secrets aren't shown.\n"
         "  acc-env --markdown            to be pasted into an issue\n"
         "  acc-env --json | jq .Python\n\n"
         "  --format FORMAT      text, markdown or json (default text)\n"
         "  --markdown, --json   the same, shorter\n"
         "  --config_file FILE   shows this one; default: Accelerate's default_config.yaml\n"
         "  --version            of acc\n"
         "\nexit code: 0; 1: it couldn't be written; 2: a wrong word\n";
}

}  // namespace acc::env
