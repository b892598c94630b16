#include "launcher/completions.hpp"

#include "common/text.hpp"
#include "launcher/config_keys.hpp"

#include <algorithm>
#include <vector>

namespace acc::launcher {

namespace {

bool names_a_file(const KeyRow& row) { return row.type == Type::path && row.name != "log_dir"; }

bool names_a_folder(const KeyRow& row) { return row.name == "log_dir"; }

/// Those that a user would be offered: not what is only understood to be refused.
std::vector<const KeyRow*> offered() {
  std::vector<const KeyRow*> rows;
  for (const auto& row : key_rows()) {
    if (row.is_flag && row.group != Group::cloud) rows.push_back(&row);
  }
  return rows;
}

std::string flags_of(const KeyRow& row) {
  std::string flags = "--" + std::string{row.name};
  if (row.letter != 0) flags += std::string{" -"} + row.letter;
  if (!row.aliases.empty()) {
    for (const auto& alias : split(row.aliases, ' ')) flags += " --" + alias;
  }
  return flags;
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (auto at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

/// In single quotes of a shell.
std::string quoted(const std::string& text) { return "'" + replaced(text, "'", "'\\''") + "'"; }

// ---- bash ----

/// "--a|--b|-t", a pattern of case.
std::string pattern(const KeyRow& row) { return replaced(flags_of(row), " ", "|"); }

constexpr std::string_view kBashBegin =
    R"(# bash completion for acc-launch, made from its table of settings
_acc_launch() {
  local cur=${COMP_WORDS[COMP_CWORD]} flag=${COMP_WORDS[COMP_CWORD-1]} word i
  # --flag=value comes as three words
  if [[ $cur == = ]]; then cur=; elif [[ $flag == = ]]; then flag=${COMP_WORDS[COMP_CWORD-2]}; fi
  local switches with_value
)";

constexpr std::string_view kBashMiddle = R"(  # behind the script all words are its own
  for ((i = 1; i < COMP_CWORD; ++i)); do
    word=${COMP_WORDS[i]}
    [[ $word == = ]] && continue
    if [[ $word == -* ]]; then
      [[ $word == --* ]] && word=--$(tr - _ <<<"${word#--}")
      if [[ " $with_value " == *" $word "* ]]; then
        [[ ${COMP_WORDS[i+1]-} == = ]] && ((++i))
        ((++i))
      fi
    else
      compopt -o default
      return
    fi
  done
  [[ $flag == --* ]] && flag=--$(tr - _ <<<"${flag#--}")
  case $flag in
)";

constexpr std::string_view kBashEnd = R"(  esac
  if [[ " $with_value " == *" $flag "* ]]; then return; fi
  if [[ $cur == -* ]]; then
    local flags="$switches $with_value"
    # in the form that was begun: --num_processes or --num-processes
    [[ $cur == --*-* ]] && flags=$(sed 's/_/-/g' <<<"$flags")
    mapfile -t COMPREPLY < <(compgen -W "$flags" -- "$cur")
  else
    compopt -o filenames
    mapfile -t COMPREPLY < <(compgen -f -- "$cur")
  fi
}
complete -F _acc_launch acc-launch
)";

std::string bash_values(const KeyRow& row) {
  std::string action;
  if (!row.choices.empty())
    action = "mapfile -t COMPREPLY < <(compgen -W '" + std::string{row.choices} + "' -- \"$cur\")";
  if (names_a_file(row))
    action = "compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")";
  if (names_a_folder(row))
    action = "compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- \"$cur\")";
  return action.empty() ? "" : "    " + pattern(row) + ") " + action + "; return ;;\n";
}

// ---- zsh ----

/// Between brackets of an argument of _arguments.
std::string zsh_help(const KeyRow& row) {
  std::string text{row.help};
  for (const std::string_view special : {"\\", "[", "]"})
    text = replaced(std::move(text), special, "\\" + std::string{special});
  return text;
}

std::string zsh_values(const KeyRow& row) {
  if (row.type == Type::flag) return {};
  if (!row.choices.empty()) return ":value:(" + std::string{row.choices} + ")";
  if (names_a_folder(row)) return ":folder:_files -/";
  if (names_a_file(row)) return ":file:_files";
  return ":" + replaced(metavar(row), ":", "\\:") + ": ";
}

std::string zsh_line(const KeyRow& row) {
  const auto all = split(flags_of(row), ' ');
  std::string out;
  for (const auto& flag : all) {
    const std::string others = all.size() > 1 ? "(" + join(all, " ") + ")" : "";
    const std::string_view form = row.type == Type::flag ? "" : flag.starts_with("--") ? "=" : "+";
    out += "  " +
           quoted(others + flag + std::string{form} + "[" + zsh_help(row) + "]" + zsh_values(row)) +
           " \\\n";
  }
  return out;
}

// ---- fish ----

std::string fish_line(const KeyRow& row) {
  std::string out = "complete -c acc-launch";
  for (const auto& flag : split(flags_of(row), ' '))
    out += flag.starts_with("--") ? " -l " + flag.substr(2) : " -s " + flag.substr(1);
  if (row.type != Type::flag) {
    if (names_a_file(row)) {
      out += " -r -F";
    } else if (names_a_folder(row)) {
      out += " -x -a '(__fish_complete_directories)'";
    } else {
      out += " -x";
    }
    if (!row.choices.empty()) out += " -a '" + std::string{row.choices} + "'";
  }
  const auto help = replaced(replaced(std::string{row.help}, "\\", "\\\\"), "'", "\\'");
  return out + " -d '" + help + "'\n";
}

}  // namespace

std::string bash_completion() {
  std::string switches;
  std::string with_value;
  std::string values;
  for (const auto* row : offered()) {
    auto& list = row->type == Type::flag ? switches : with_value;
    list += (list.empty() ? "" : " ") + flags_of(*row);
    values += bash_values(*row);
  }
  return std::string{kBashBegin} + "  switches='" + switches + "'\n  with_value='" + with_value +
         "'\n" + std::string{kBashMiddle} + values + std::string{kBashEnd};
}

std::string zsh_completion() {
  std::string out = "#compdef acc-launch\n# made from the table of settings\n_arguments -S \\\n";
  for (const auto* row : offered()) out += zsh_line(*row);
  return out + "  '(-)1:script:_files' '*::argument of the script:_files'\n";
}

std::string fish_completion() {
  std::string out = "# fish completion for acc-launch, made from its table of settings\n";
  for (const auto* row : offered()) out += fish_line(*row);
  return out;
}

}  // namespace acc::launcher
