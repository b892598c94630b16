#pragma once

#include "launcher/configure/keys.hpp"

#include <csignal>
#include <cstddef>
#include <string>

namespace acc::configure {

/// The terminal of the standard input without echo and line editing, from construction to
/// destruction. Signals that end this process restore it first; one at a time.
class RawTerminal {
 public:
  /// @param decoder  keeps what was typed ahead; outlives this object
  explicit RawTerminal(KeyDecoder& decoder);
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;
  ~RawTerminal();

  /// Waits for a key. Ctrl-Z stops this process with the terminal as it was, and is then reported.
  [[nodiscard]] KeyPress read_key();
  void write(const std::string& text);

 private:
  void enter();
  void leave();

  KeyDecoder& decoder_;
  sigset_t mask_{};  ///< signals that were blocked before
};

struct ScreenSize {
  std::size_t rows = 24;
  std::size_t columns = 80;
};
[[nodiscard]] ScreenSize screen_size();

}  // namespace acc::configure
