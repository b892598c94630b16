#include "launcher/configure/pages.hpp"

#include "common/text.hpp"
#include "launcher/configure/verbs.hpp"

#include <algorithm>
#include <vector>

namespace acc::configure {

namespace {

std::string flags_of(std::string_view verb) { return launcher::spellings_of(flag_rows(), verb); }

std::string all_verbs() {
  std::vector<std::string> names;
  for (const auto& verb : verb_rows())
    if (!verb.name.empty()) names.emplace_back(verb.name);
  return join(names, " ");
}

std::string bash() {
  std::string cases;
  for (const auto& verb : verb_rows()) {
    const auto name = verb.name.empty() ? std::string{"''"} : std::string{verb.name};
    cases += "    " + name + ") flags='" + flags_of(verb.name) + "' ;;\n";
  }
  return "# bash completion for acc-config, made from its table of verbs and flags\n"
         "_acc_config() {\n"
         "  local cur=${COMP_WORDS[COMP_CWORD]} verb= flags= i\n"
         "  for ((i = 1; i < COMP_CWORD; ++i)); do\n"
         "    if [[ ${COMP_WORDS[i]} == -- ]]; then compopt -o default; return; fi\n"
         "    if [[ -z $verb && \" " +
         all_verbs() +
         " \" == *\" ${COMP_WORDS[i]} \"* ]]; then verb=${COMP_WORDS[i]}; fi\n"
         "  done\n"
         "  case $verb in\n" +
         cases +
         "  esac\n"
         "  if [[ $cur == -* ]]; then\n"
         "    mapfile -t COMPREPLY < <(compgen -W \"$flags\" -- \"$cur\")\n"
         "  elif [[ -z $verb && ${COMP_WORDS[COMP_CWORD-1]} != -* ]]; then\n"
         "    mapfile -t COMPREPLY < <(compgen -W '" +
         all_verbs() +
         "' -- \"$cur\")\n"
         "  else\n"
         "    compopt -o default\n"
         "  fi\n"
         "}\n"
         "complete -F _acc_config acc-config\n";
}

std::string zsh() {
  std::string verbs;
  std::string cases;
  for (const auto& verb : verb_rows()) {
    if (!verb.name.empty())
      verbs += "    '" + std::string{verb.name} + ":" + launcher::zsh_text(verb.help) + "'\n";
    cases += "    " + (verb.name.empty() ? std::string{"*"} : std::string{verb.name}) +
             ")\n      _arguments \\\n";
    for (const auto& flag : flag_rows()) {
      if (!belongs_to(flag, verb.name)) continue;
      const bool takes_value = !flag.metavar.empty();
      cases += "        '" + std::string{flag.name} + (takes_value ? "=" : "") + "[" +
               launcher::zsh_text(flag.help) + "]" +
               (takes_value ? ":" + launcher::zsh_text(flag.metavar) + ":_files" : "") + "' \\\n";
    }
    cases += "        '*::word:_files'\n      ;;\n";
  }
  // `*` has to be the last case: it is the row without a verb, which stands first in the table.
  const auto begin = cases.find("    *)");
  const auto end = cases.find("      ;;\n", begin) + 9;
  cases = cases.substr(0, begin) + cases.substr(end) + cases.substr(begin, end - begin);
  return "#compdef acc-config\n# made from acc-config's table of verbs and flags\n"
         "_acc_config() {\n"
         "  local -a verbs=(\n" +
         verbs +
         "  )\n"
         "  if (( CURRENT == 2 )) && [[ $words[2] != -* ]]; then _describe verb verbs; return; fi\n"
         "  local verb=$words[2]\n"
         "  if [[ $verb != -* ]]; then shift words; (( CURRENT-- )); fi\n"
         "  case $verb in\n" +
         cases +
         "  esac\n"
         "}\n"
         "_acc_config \"$@\"\n";
}

std::string fish() {
  std::string out = "# fish completion for acc-config, made from its table of verbs and flags\n";
  for (const auto& verb : verb_rows()) {
    if (verb.name.empty()) continue;
    out += "complete -c acc-config -f -n __fish_use_subcommand -a " + std::string{verb.name} +
           " -d " + launcher::fish_text(verb.help) + "\n";
  }
  for (const auto& flag : flag_rows()) {
    std::vector<std::string> verbs;
    bool is_without_verb = false;
    for (const auto& verb : split(flag.verbs, ' ')) {
      is_without_verb = is_without_verb || verb == "-";
      if (verb != "-" && !verb.empty()) verbs.push_back(verb);
    }
    std::string when;
    if (!verbs.empty()) when = "__fish_seen_subcommand_from " + join(verbs, " ");
    if (is_without_verb) when = "__fish_use_subcommand" + (when.empty() ? "" : "; or " + when);
    out += "complete -c acc-config";
    if (!when.empty()) out += " -n '" + when + "'";
    out += launcher::fish_flag(flag) + "\n";
  }
  return out;
}

}  // namespace

std::string help_text(std::string_view verb) {
  const auto* row = find_verb(verb);
  const bool is_overview = row == nullptr || row->name.empty();
  std::string out;
  if (is_overview) {
    out =
        "usage: acc-config [VERB] [flags]\n\n"
        "Writes the config file of acc-launch and `accelerate launch`. Without a verb\n"
        "it asks: arrow keys choose, Enter takes, ? explains, < or Ctrl-B goes back,\n"
        "Ctrl-C ends without writing.\n\nverbs\n";
    for (const auto& one : verb_rows()) {
      const auto left = std::string{one.name} + " " + std::string{one.operands};
      if (!one.name.empty()) out += launcher::help_entry(std::string{trim(left)}, one.help);
    }
    out += "\nflags\n";
  } else {
    out = "usage: acc-config " + std::string{verb} + " [flags] " + std::string{row->operands} +
          "\n\n" + launcher::help_entry(std::string{verb}, row->help) + "\nflags\n";
  }
  for (const auto& flag : flag_rows()) {
    if (is_overview || belongs_to(flag, verb)) out += launcher::help_entry(flag);
  }
  return out +
         "\nexit code: 0; 2: usage, a wrong answer or a wrong file; 73: it can't be\n"
         "written; 130: Ctrl-C.\n";
}

std::string completion(std::string_view shell) {
  if (shell == "bash") return bash();
  if (shell == "zsh") return zsh();
  if (shell == "fish") return fish();
  return {};
}

}  // namespace acc::configure
