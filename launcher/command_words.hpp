#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

/// The words behind `acc`, and behind `accelerate`, whose programs are ours under other names
/// (pure).
namespace acc::launcher {

struct CommandWord {
  std::string_view word;  ///< as typed behind acc
  std::string_view
      program;  ///< of ours, in the folder of acc; empty: there is none, `summary` says why
  std::string_view first;  ///< words in front of the user's; separated by spaces
  std::string_view summary;
  /// For completion, separated by spaces, of programs without completions of their own.
  std::string_view flags{};
};

/// In the order of the help text.
[[nodiscard]] std::span<const CommandWord> command_words();
[[nodiscard]] const CommandWord* command_word(std::string_view word);

/// What acc does with its words: print help, be another program, or complain.
struct Dispatch {
  std::string program;             ///< its name; empty: `text` is to be printed
  std::vector<std::string> words;  ///< argv behind the program's name
  std::string text;
  bool is_complaint = false;
};
[[nodiscard]] Dispatch dispatch(std::span<const std::string> words);

/// For bash, zsh or fish; behind the word the program's own are used. Empty: another shell.
[[nodiscard]] std::string word_completion(std::string_view shell);

}  // namespace acc::launcher
