#pragma once

#include "launcher/ctl/top/frame.hpp"
#include "launcher/ctl/top/state.hpp"

namespace acc::ctl::top {

/// Draws what stands before the page: menus, help, the last line.
void draw_panel(const Model& model, Frame& frame);

}  // namespace acc::ctl::top
