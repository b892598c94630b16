#pragma once

#include "launcher/ctl/top/frame.hpp"
#include "launcher/ctl/top/state.hpp"

namespace acc::ctl::top {

/// What is shown of the state (pure).
[[nodiscard]] Frame frame_of(const Model& model);

}  // namespace acc::ctl::top
