#include "launcher/user_messages.hpp"

#include "common/exit_codes.hpp"
#include "common/text.hpp"
#include "launcher/key_table.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace acc::launcher {

using namespace literals;

namespace {

/// N of "FILE:N: …"; 0 for what stands in no line, so that it comes first.
std::uint32_t line_in(const std::string& what, const std::string& file) {
  if (file.empty() || !what.starts_with(file + ":")) return 0;
  const auto rest = std::string_view{what}.substr(file.size() + 1);
  return parse_number<std::uint32_t>(rest.substr(0, rest.find(':'))).value_or(0);
}

}  // namespace

int write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const auto written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return written < 0 ? errno : EIO;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

void tell(const std::string& line) { write_all(STDERR_FILENO, "acc-launch: " + line + "\n"); }

int tell_complaints(Complaints complaints, const std::string& file) {
  std::ranges::stable_sort(complaints, {},
                           [&](const Error& one) { return line_in(one.what, file); });
  std::string text;
  bool usage = false;
  bool written = false;
  for (const auto& complaint : complaints) {
    text += "acc-launch: " + complaint.what + "\n";
    usage = usage || complaint.code == Errc::bad_usage;
    written = written || complaint.code == Errc::bad_config;
  }
  if (usage) text += "acc-launch: try --help\n";
  write_all(STDERR_FILENO, text);
  return to_int(usage || written ? ExitCode::usage : ExitCode::failure);
}

std::string defaults_warning(const JobSpec& spec, bool without_python) {
  auto defaulted = spec.defaulted;
  if (without_python) {
    std::erase_if(defaulted, [](const auto& entry) {
      return entry.first == "mixed_precision" || entry.first == "dynamo_backend";
    });
  }
  if (defaulted.empty() && !spec.multi_gpu_was_guessed) return {};
  std::string text = "The following values were not given and had defaults used instead:\n";
  for (const auto& [name, value] : defaulted) {
    text.append("\t`--").append(name).append("` was set to a value of `").append(value) += "`\n";
    if (name == "num_processes" && value == "0")
      text += "\t\tno GPU was found: the script runs as one process\n";
    if (name == "num_cpu_threads_per_process") text += "\t\tto use all cores of this machine\n";
  }
  if (spec.multi_gpu_was_guessed) {
    text +=
        "\t\tMore than one GPU was found, enabling multi-GPU training.\n"
        "\t\tIf this was unintended please pass in `--num_processes=1`.\n";
  }
  return text + "To avoid this warning give these values, or write a config file.\n";
}

void tell_about_ignored(const CommandLine& line) {
  constexpr Key kIgnored[] = {"run_path"_key, "event_log_handler"_key, "signals_to_handle"_key,
                              "start_method"_key};
  for (const Key key : kIgnored) {
    const auto* option = line.given(key);
    if (option != nullptr)
      tell("note: " + option->spelled + " has no effect here (" + std::string{row_of(key).help} +
           ")");
  }
}

}  // namespace acc::launcher
