#include "launcher/command_words.hpp"

#include "common/text.hpp"
#include "common/version.hpp"

#include <algorithm>
#include <array>

namespace acc::launcher {
namespace {

constexpr std::string_view kOfTheOriginal =
    "there is none here: `accelerate` itself does it, beside acc";

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
    CommandWord{"merge-weights", "", "", kOfTheOriginal},
    CommandWord{"estimate-memory", "", "", kOfTheOriginal},
    CommandWord{"tpu-config", "", "",
                "TPU pods aren't supported: `accelerate tpu-config` starts them"},
};

std::string help_text() {
  std::string text =
      "usage: acc WORD …\n\nThe words of `accelerate`, with our programs behind them; acc WORD "
      "--help tells more.\n\n";
  for (const auto& one : kWords) {
    if (one.program.empty()) continue;
    auto line = "  " + std::string{one.word};
    line.resize(16, ' ');
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
