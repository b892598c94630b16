#pragma once

#include "launcher/configure/asker.hpp"

#include <string>

namespace acc::configure {

/// Prompts on one descriptor, a line an answer on another: for pipes, and terminals that can't move
/// their cursor. A line `?` explains, `<` goes back.
class PlainAsker : public Asker {
 public:
  PlainAsker(int in, int out) : in_{in}, out_{out} {}

  Reply ask(const Prompt& prompt) override;
  void say(const std::string& text) override;

 private:
  /// False: no more lines.
  bool read_line(std::string& line);

  int in_;
  int out_;
  std::string read_;  ///< behind the last line
  bool has_ended_ = false;
};

}  // namespace acc::configure
