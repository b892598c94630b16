#pragma once

#include "common/error.hpp"
#include "launcher/ctl/top/frame.hpp"
#include "launcher/ctl/top/state.hpp"

#include <memory>
#include <string>
#include <vector>

namespace acc::ctl::top {

/// The terminal, through ncurses. Only screen.cpp knows it. While one lives, the terminal is in its
/// hands; afterwards it is as it was, also if this process dies by a fault of its own.
class Screen {
 public:
  /// Not a terminal, or one of an unknown type: bad_usage, with what to do.
  static Result<std::unique_ptr<Screen>> open();
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  [[nodiscard]] Size size() const;
  void draw(const Frame& frame);
  /// Those that were pressed since the last call.
  [[nodiscard]] std::vector<KeyPress> take_keys();
  /// SIGWINCH came.
  void resize();
  /// Ctrl-Z: gives the terminal back, and takes it again when this process goes on.
  void suspend();
  /// Draws everything anew: another program may have used the terminal.
  void redraw();

 private:
  Screen() = default;
  struct Colors;

  bool has_utf8_ = false;
  bool has_colors_ = false;
  Frame shown_;
};

}  // namespace acc::ctl::top
