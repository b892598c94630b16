#pragma once

#include "launcher/configure/asker.hpp"
#include "launcher/configure/raw_terminal.hpp"

#include <string>
#include <vector>

namespace acc::configure {

/// Menus with arrow keys and lines to type, on a terminal. It is in raw mode from the first
/// question to the last, as keys typed between two of them would else be the line discipline's:
/// Ctrl-C a signal, Ctrl-D lost.
class TerminalAsker : public Asker {
 public:
  Reply ask(const Prompt& prompt) override;
  void say(const std::string& text) override;
  Verdict confirm(const Preview& preview) override;

 private:
  Reply choose(const std::vector<std::string>& labels, std::size_t initial);
  Reply read_line(bool is_shown);

  KeyDecoder decoder_;
  RawTerminal terminal_{decoder_};
};

}  // namespace acc::configure
