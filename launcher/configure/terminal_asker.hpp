#pragma once

#include "launcher/configure/asker.hpp"
#include "launcher/configure/raw_terminal.hpp"

#include <memory>
#include <string>
#include <vector>

namespace acc::configure {

/// Menus with arrow keys and lines to type, on a terminal. It is in raw mode only while it waits
/// for an answer.
class TerminalAsker : public Asker {
 public:
  Reply ask(const Prompt& prompt) override;
  void say(const std::string& text) override;
  Verdict confirm(const Preview& preview) override;

 private:
  Reply choose(const std::vector<std::string>& labels, std::size_t initial);
  Reply read_line(bool is_shown);

  KeyDecoder decoder_;  ///< here, so that what was typed ahead is kept for the next question
  std::unique_ptr<RawTerminal> terminal_;
};

}  // namespace acc::configure
