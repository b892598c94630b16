#include "launcher/ctl/pages.hpp"

#include "common/text.hpp"
#include "launcher/ctl/verbs.hpp"

#include <algorithm>
#include <vector>

namespace acc::ctl {

namespace {

std::string entry(const VerbRow& verb) {
  const std::string operands{verb.operands};
  return launcher::help_entry(std::string{verb.name} + (operands.empty() ? "" : " " + operands),
                              verb.help);
}

std::string usage_of(const VerbRow& verb) {
  return "usage: acc-ctl " + std::string{verb.name} + " [flags] " + std::string{verb.operands} +
         "\n\n";
}

constexpr std::string_view kCodes =
    "\nexit code: 0; 1: it failed; 2: usage; 3: no such job; 4: no service answers; 5: refused.\n"
    "submit and attach: the job's own (docs/exit-codes.md, man acc-launch).\n";

// ---- completions ----

std::string flags_of(std::string_view verb) { return launcher::spellings_of(flag_rows(), verb); }

std::string all_verbs() {
  std::vector<std::string> names;
  for (const auto& verb : verb_rows()) names.emplace_back(verb.name);
  return join(names, " ");
}

bool takes_id(const VerbRow& verb) { return verb.operands.find("ID") != std::string_view::npos; }

/// The ids of `acc-ctl ps`: the first word of each line behind the heading.
constexpr std::string_view kIds = "acc-ctl ps 2>/dev/null | awk 'NR > 1 { print $1 }'";

std::string bash() {
  std::string cases;
  std::string with_id;
  for (const auto& verb : verb_rows()) {
    cases += "    " + std::string{verb.name} + ") flags='" + flags_of(verb.name) + "' ;;\n";
    if (takes_id(verb)) with_id += (with_id.empty() ? "" : "|") + std::string{verb.name};
  }
  return "# bash completion for acc-ctl, made from its table of verbs and flags\n"
         "_acc_ctl() {\n"
         "  local cur=${COMP_WORDS[COMP_CWORD]} verb= flags='" +
         flags_of("") +
         "' word i\n"
         "  if [[ ${COMP_WORDS[0]##*/} == acc-top ]]; then verb=top; fi\n"
         "  for ((i = 1; i < COMP_CWORD; ++i)); do\n"
         "    word=${COMP_WORDS[i]}\n"
         "    if [[ $verb == submit && $word == -- ]]; then compopt -o default; return; fi\n"
         "    if [[ -z $verb && \" " +
         all_verbs() +
         " \" == *\" $word \"* ]]; then verb=$word; fi\n"
         "  done\n"
         "  case $verb in\n" +
         cases +
         "  esac\n"
         "  if [[ $cur == -* ]]; then\n"
         "    mapfile -t COMPREPLY < <(compgen -W \"$flags\" -- \"$cur\")\n"
         "    return\n"
         "  fi\n"
         "  case $verb in\n"
         "    '') mapfile -t COMPREPLY < <(compgen -W '" +
         all_verbs() +
         "' -- \"$cur\") ;;\n"
         "    " +
         with_id + ") mapfile -t COMPREPLY < <(compgen -W \"$(" + std::string{kIds} +
         ")\" -- \"$cur\") ;;\n"
         "    *) compopt -o default ;;\n"
         "  esac\n"
         "}\n"
         "complete -F _acc_ctl acc-ctl acc-top\n";
}

std::string zsh() {
  std::string verbs;
  std::string cases;
  for (const auto& verb : verb_rows()) {
    verbs += "    '" + std::string{verb.name} + ":" + launcher::zsh_text(verb.help) + "'\n";
    cases += "    " + std::string{verb.name} + ")\n      _arguments \\\n";
    for (const auto& flag : flag_rows()) {
      if (!belongs_to(flag, verb.name)) continue;
      for (const auto& spelled : launcher::spellings(flag)) {
        const bool is_long = spelled.starts_with("--");
        const std::string form = flag.metavar.empty() ? "" : is_long ? "=" : "+";
        const std::string value =
            flag.metavar.empty() ? "" : ":" + launcher::zsh_text(flag.metavar) + ": ";
        cases += "        '" + spelled + form + "[" + launcher::zsh_text(flag.help) + "]" + value +
                 "' \\\n";
      }
    }
    cases += takes_id(verb) ? "        '*:job:_acc_ctl_jobs'\n" : "        '*::word:_files'\n";
    cases += "      ;;\n";
  }
  return "#compdef acc-ctl acc-top\n# made from acc-ctl's table of verbs and flags\n"
         "_acc_ctl_jobs() { compadd -- $(" +
         std::string{kIds} +
         ") }\n"
         "_acc_ctl() {\n"
         "  local -a verbs=(\n" +
         verbs +
         "  )\n"
         "  if [[ $service == acc-top ]]; then words=(acc-ctl top ${words[2,-1]}); (( CURRENT++ "
         ")); fi\n"
         "  if (( CURRENT == 2 )); then _describe verb verbs; return; fi\n"
         "  local verb=$words[2]\n"
         "  shift words; (( CURRENT-- ))\n"
         "  case $verb in\n" +
         cases +
         "  esac\n"
         "}\n"
         "_acc_ctl \"$@\"\n";
}

std::string fish() {
  std::string out =
      "# fish completion for acc-ctl, made from its table of verbs and flags\n"
      "complete -c acc-ctl -f\n"
      "complete -c acc-top -w 'acc-ctl top'\n";
  std::string with_id;
  for (const auto& verb : verb_rows()) {
    out += "complete -c acc-ctl -n __fish_use_subcommand -a " + std::string{verb.name} + " -d " +
           launcher::fish_text(verb.help) + "\n";
    if (takes_id(verb)) with_id += " " + std::string{verb.name};
  }
  out += "complete -c acc-ctl -n '__fish_seen_subcommand_from" + with_id + "' -a \"(" +
         "acc-ctl ps 2>/dev/null | awk 'NR > 1 { print \\$1 }')\"\n";
  for (const auto& flag : flag_rows()) {
    out += "complete -c acc-ctl";
    if (!flag.verbs.empty())
      out += " -n '__fish_seen_subcommand_from " + std::string{flag.verbs} + "'";
    out += launcher::fish_flag(flag) + "\n";
  }
  return out;
}

}  // namespace

std::string help_text(std::string_view verb) {
  const auto* row = find_verb(verb);
  std::string out = row != nullptr ? usage_of(*row) + entry(*row) + "\n"
                                   : "usage: acc-ctl VERB [flags] [operands]\n\n"
                                     "Shows and steers jobs: of the service acc-agent, and of "
                                     "plain acc-launch of the same user.\n\n";
  if (row == nullptr) {
    for (const auto& one : verb_rows()) out += entry(one);
    out += "\nID: a job's id, a prefix of it that no other has, or its name.\n\nflags\n";
  }
  for (const auto& flag : flag_rows()) {
    if (row == nullptr || belongs_to(flag, verb)) out += launcher::help_entry(flag);
  }
  return out + std::string{kCodes};
}

std::string completion(std::string_view shell) {
  if (shell == "bash") return bash();
  if (shell == "zsh") return zsh();
  if (shell == "fish") return fish();
  return {};
}

}  // namespace acc::ctl
