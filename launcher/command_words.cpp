#include "launcher/command_words.hpp"

#include "common/text.hpp"
#include "common/version.hpp"
#include "launcher/flag_table.hpp"

#include <algorithm>
#include <array>

namespace acc::launcher {
namespace {

constexpr std::array kWords{
    CommandWord{"launch", "acc-launch", "", "runs a script on all ranks, restarts them, reports"},
    CommandWord{"config", "acc-config", "", "asks for, checks, shows and converts config files"},
    CommandWord{"env", "acc-env", "", "describes this machine for a bug report"},
    CommandWord{"test", "acc-test", "", "checks a machine, and all ranks of a job together"},
    CommandWord{"ctl", "acc-ctl", "", "shows and steers jobs"},
    CommandWord{"top", "acc-top", "", "jobs, nodes and ranks, live"},
    CommandWord{"agent", "acc-agent", "", "the service of a node"},
    CommandWord{"rendezvous", "acc-rendezvous", "", "a meeting point for several jobs"},
    CommandWord{"to-fsdp2", "acc-config", "convert --to fsdp2",
                "makes a config file for FSDP 2 from one for FSDP 1"},
    CommandWord{"merge-weights", "acc-weights", "merge-weights",
                "makes model.safetensors of a checkpoint",
                "--max_shard_size --part --overwrite --remove_checkpoint_dir --help"},
    CommandWord{"estimate-memory", "acc-weights", "estimate-memory",
                "the memory that a model takes, by its safetensors headers",
                "--dtypes --part --json --help"},
    CommandWord{"tpu-config", "", "",
                "TPU pods aren't supported: `accelerate tpu-config` starts them"},
};

std::string joined_words() {
  std::vector<std::string> names;
  for (const auto& one : kWords)
    if (!one.program.empty()) names.emplace_back(one.word);
  return join(names, " ");
}

// Completion of another program is loaded by its own name and called with a line that begins so.
std::string bash() {
  std::string cases;
  std::string programs;
  for (const auto& one : kWords) {
    if (one.program.empty()) continue;
    const std::string word{one.word};
    if (one.flags.empty())
      programs += "    " + word + ") program=" + std::string{one.program} + " ;;\n";
    else
      cases += "    " + word + ") flags='" + std::string{one.flags} + "' ;;\n";
  }
  return "# bash completion for acc, made from its table of words\n"
         "_acc() {\n"
         "  local cur=${COMP_WORDS[COMP_CWORD]} flags= program= function\n"
         "  if ((COMP_CWORD == 1)); then\n"
         "    mapfile -t COMPREPLY < <(compgen -W '" +
         joined_words() +
         "' -- \"$cur\")\n"
         "    return\n"
         "  fi\n"
         "  case ${COMP_WORDS[1]} in\n" +
         cases + programs +
         "  esac\n"
         "  if [[ -n $program ]]; then\n"
         "    complete -p \"$program\" &>/dev/null || { declare -F _completion_loader >/dev/null "
         "&& "
         "_completion_loader \"$program\"; } &>/dev/null\n"
         "    function=$(complete -p \"$program\" 2>/dev/null)\n"
         "    if [[ $function =~ -F\\ ([^ ]+) ]]; then\n"
         "      COMP_WORDS=(\"$program\" \"${COMP_WORDS[@]:2}\")\n"
         "      ((COMP_CWORD--))\n"
         "      \"${BASH_REMATCH[1]}\" \"$program\" \"$cur\" \"${COMP_WORDS[COMP_CWORD-1]}\"\n"
         "      return\n"
         "    fi\n"
         "  fi\n"
         "  if [[ $cur == -* ]]; then\n"
         "    mapfile -t COMPREPLY < <(compgen -W \"$flags\" -- \"$cur\")\n"
         "  else\n"
         "    compopt -o default\n"
         "  fi\n"
         "}\n"
         "complete -F _acc acc\n";
}

std::string zsh() {
  std::string words;
  std::string cases;
  for (const auto& one : kWords) {
    if (one.program.empty()) continue;
    words += "    '" + std::string{one.word} + ":" + zsh_text(one.summary) + "'\n";
    if (one.flags.empty()) {
      cases += "    " + std::string{one.word} + ") words=(" + std::string{one.program} +
               " \"${(@)words[3,-1]}\"); (( CURRENT-- )); _normal ;;\n";
      continue;
    }
    cases += "    " + std::string{one.word} +
             ") shift words; (( CURRENT-- )); _arguments '*:path:_files'";
    for (const auto& flag : split(one.flags, ' ')) cases += " '" + flag + "'";
    cases += " ;;\n";
  }
  return "#compdef acc\n# made from acc's table of words\n"
         "_acc() {\n"
         "  local -a known=(\n" +
         words +
         "  )\n"
         "  if (( CURRENT == 2 )); then _describe word known; return; fi\n"
         "  case $words[2] in\n" +
         cases +
         "  esac\n"
         "}\n"
         "_acc \"$@\"\n";
}

std::string fish() {
  std::string out = "# fish completion for acc, made from its table of words\n";
  for (const auto& one : kWords) {
    if (one.program.empty()) continue;
    const std::string word{one.word};
    out += "complete -c acc -f -n __fish_use_subcommand -a " + word + " -d " +
           fish_text(one.summary) + "\n";
    const auto when = "complete -c acc -n '__fish_seen_subcommand_from " + word + "' ";
    if (one.flags.empty())
      out += when + "-f -a '(complete -C \"" + std::string{one.program} +
             " \"(string join \" \" -- (commandline -opc)[3..] (commandline -ct)))'\n";
    else
      for (const auto& flag : split(one.flags, ' ')) out += when + "-l " + flag.substr(2) + "\n";
  }
  return out;
}

std::string help_text() {
  std::string text =
      "usage: acc WORD …\n\nThe words of `accelerate`, with our programs behind them; acc WORD "
      "--help tells more.\n\n";
  for (const auto& one : kWords) {
    if (one.program.empty()) continue;
    auto line = "  " + std::string{one.word};
    line.resize(18, ' ');
    text += line + std::string{one.summary} + "\n";
  }
  return text + "\nexit code: that of the program; 2: a wrong word\n";
}

Dispatch complaint(std::string text) {
  return {.program = {}, .words = {}, .text = std::move(text), .is_complaint = true};
}

Dispatch unknown(std::string_view word) {
  std::vector<std::string_view> names;
  for (const auto& one : kWords) names.push_back(one.word);
  const auto meant = nearest(word, names);
  std::string text = "unknown word " + in_quotes(word);
  if (!meant.empty())
    text += " (did you mean " + std::string{meant} + "?)";
  else if (word.starts_with('-') || word.find('.') != std::string_view::npos)
    text += ": to run a script, acc launch " + printable(word) + " …";
  return complaint(text);
}

}  // namespace

std::span<const CommandWord> command_words() { return kWords; }

std::string word_completion(std::string_view shell) {
  if (shell == "bash") return bash();
  if (shell == "zsh") return zsh();
  return shell == "fish" ? fish() : std::string{};
}

const CommandWord* command_word(std::string_view word) {
  // `accelerate` takes both spellings.
  std::string name{word};
  std::ranges::replace(name, '_', '-');
  const auto found = std::ranges::find(kWords, name, &CommandWord::word);
  return found == kWords.end() ? nullptr : &*found;
}

Dispatch dispatch(std::span<const std::string> words) {
  if (words.empty() || words[0] == "-h" || words[0] == "--help" || words[0] == "help")
    return {.program = {}, .words = {}, .text = help_text()};
  if (words[0] == "--version")
    return {.program = {}, .words = {}, .text = std::string{"acc "} + version() + "\n"};
  if (words[0] == "--completion") {
    auto text = words.size() == 2 ? word_completion(words[1]) : std::string{};
    if (!text.empty()) return {.program = {}, .words = {}, .text = std::move(text)};
    return complaint("--completion needs a shell: bash, zsh or fish");
  }
  const auto* known = command_word(words[0]);
  if (known == nullptr) return unknown(words[0]);
  if (known->program.empty())
    return complaint(std::string{known->word} + ": " + std::string{known->summary});
  Dispatch out{.program = std::string{known->program}, .words = {}, .text = {}};
  if (!known->first.empty()) out.words = split(known->first, ' ');
  out.words.insert(out.words.end(), words.begin() + 1, words.end());
  return out;
}

}  // namespace acc::launcher
