#include "launcher/help.hpp"

#include "common/text.hpp"
#include "launcher/config.hpp"

#include <algorithm>

namespace acc::launcher {

namespace {

constexpr std::size_t kTextColumn = 30;
constexpr std::size_t kWidth = 110;

constexpr std::string_view kOverview =
    R"(acc-launch [options] SCRIPT [script arguments]
Starts N workers of SCRIPT on this machine, supervises and restarts them, reports what broke.
A config file or command line of `accelerate launch` works as it is; so does a torchrun line.

  acc-launch --num_processes 4 train.py --lr 0.1     four workers, wherever they compute
  acc-launch --config_file job.yaml train.py         all settings from a file
  acc-launch --nproc-per-node=2 train.py             a torchrun line
  acc-launch --print_plan ... | --print_config ...   look first, start nothing

Most used:
)";

constexpr std::string_view kMostUsed[] = {"config_file",  "num_processes",   "cpu",
                                          "multi_gpu",    "mixed_precision", "num_machines",
                                          "machine_rank", "main_process_ip", "main_process_port",
                                          "max_restarts", "grace",           "log_dir",
                                          "tee",          "stdin",           "report",
                                          "module",       "no_python",       "quiet",
                                          "print_plan",   "print_config",    "version"};

/// `text` broken at blanks, from the second line on indented to the text column.
std::string wrapped(const std::string& text) {
  std::string out;
  std::size_t column = kTextColumn;
  for (const auto& word : split(text, ' ')) {
    if (column + word.size() + 1 > kWidth) {
      out += "\n" + std::string(kTextColumn, ' ');
      column = kTextColumn;
    } else if (column > kTextColumn) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
  }
  return out;
}

std::string row_text(const KeyRow& row) {
  std::string left = row.letter != 0 ? std::string{"  -"} + row.letter + ", " : "  ";
  left += row.is_flag ? "--" + std::string{row.name} : std::string{row.name} + ":";
  const auto value = metavar(row);
  if (!value.empty()) left += " " + value;
  std::string right{row.help};
  if (!row.choices.empty() && value.find('|') == std::string::npos)
    right += "; one of " + join(split(row.choices, ' '), ", ");
  const bool shows_default =
      row.initial != nullptr && row.type != Type::flag && row.initial[0] != '\0';
  if (shows_default) right += " [" + std::string{row.initial} + "]";
  if (!row.aliases.empty()) right += " (also --" + join(split(row.aliases, ' '), ", --") + ")";
  if (!row.is_flag) right += " (config file only)";
  if (left.size() + 2 > kTextColumn)
    return left + "\n" + std::string(kTextColumn, ' ') + wrapped(right) + "\n";
  return left + std::string(kTextColumn - left.size(), ' ') + wrapped(right) + "\n";
}

std::string group_text(const GroupRow& group) {
  std::string out = std::string{group.title} + ":\n";
  for (const auto& row : key_rows()) {
    if (row.group == group.group) out += row_text(row);
  }
  return out;
}

std::string overview() {
  std::string out{kOverview};
  for (const auto name : kMostUsed) out += row_text(*find_key(name));
  out += "\nMore, with --help GROUP (or --help all):\n";
  for (const auto& group : group_rows()) {
    std::string line = "  " + std::string{group.name};
    line.resize(std::max(line.size() + 2, std::size_t{17}), ' ');
    out += line + std::string{group.title} + "\n";
  }
  out +=
      "\nFlags may be written with _ or -, as --flag VALUE or --flag=VALUE. Most are\n"
      "also keys of the config file: docs/configuration.md has the table.\n";
  return out;
}

std::string source_text(const Setting& setting) {
  switch (setting.source) {
    case Source::by_default:
      return "default";
    case Source::guessed:
      return "guessed";
    case Source::flag:
      return setting.origin.empty() ? "command line" : "flag " + setting.origin;
    case Source::scheduler:
      return "scheduler " + setting.origin;
    case Source::environment:
      return "environment " + setting.origin;
    case Source::config:
      break;
  }
  return setting.origin;
}

}  // namespace

// "max_restarts", "--max-restarts" or a second spelling of it.
static const KeyRow* row_by_flag(std::string_view topic) {
  std::string name{topic.substr(std::min(topic.find_first_not_of('-'), topic.size()))};
  std::ranges::replace(name, '-', '_');
  if (const auto* row = find_key(name)) return row;
  for (const auto& row : key_rows()) {
    for (const auto& alias : split(row.aliases, ' ')) {
      if (!alias.empty() && alias == name) return &row;
    }
  }
  return nullptr;
}

static Error unknown_topic(std::string_view topic) {
  std::vector<std::string_view> names;
  for (const auto& group : group_rows()) names.push_back(group.name);
  const std::vector<std::string> all{names.begin(), names.end()};
  const auto meant = nearest(topic, names);
  return {Errc::bad_usage,
          "--help: there is no group and no flag '" + printable(topic) + "'" +
              (meant.empty() ? "" : " (did you mean " + std::string{meant} + "?)") +
              ": the groups are " + join(all, ", ") + "; or all"};
}

Result<std::string> help_text(std::string_view topic) {
  if (topic.empty()) return overview();
  std::string out;
  for (const auto& group : group_rows()) {
    if (topic == "all" || topic == group.name) out += (out.empty() ? "" : "\n") + group_text(group);
  }
  if (!out.empty()) return out;
  if (const auto* row = row_by_flag(topic)) return row_text(*row);
  return unknown_topic(topic);
}

Result<std::string> help_for(std::span<const Group> platforms) {
  if (platforms.empty()) return overview();
  constexpr Group kAlways[] = {Group::job, Group::processes, Group::precision};
  std::string out{kOverview.substr(0, kOverview.find('\n') + 1)};
  for (const auto& group : group_rows()) {
    const bool is_wanted = std::ranges::find(kAlways, group.group) != std::end(kAlways) ||
                           std::ranges::find(platforms, group.group) != platforms.end();
    if (is_wanted) out += "\n" + group_text(group);
  }
  return out + "\nThe other groups: acc-launch --help; all flags: acc-launch --help all\n";
}

std::string config_text(const JobSpec& spec, bool with_defaults) {
  std::string out =
      "# config file: " + (spec.config_path.empty() ? std::string{"none"} : spec.config_path) +
      "\n";
  for (const auto& group : group_rows()) {
    if (group.group == Group::inspect) continue;
    std::string lines;
    for (const auto& row : key_rows()) {
      if (row.group != group.group) continue;
      const auto& setting = spec[key_of(row)];
      if (setting.source == Source::by_default && !with_defaults) continue;
      std::string line =
          std::string{row.name} + " = " + printable(python_text(setting.value), 1000);
      line.resize(std::max(line.size() + 1, std::size_t{56}), ' ');
      lines += line + "# " + source_text(setting) + "\n";
    }
    if (!lines.empty()) out += "\n# " + std::string{group.title} + "\n" + lines;
  }
  return out;
}

}  // namespace acc::launcher
