#pragma once

#include "launcher/ctl/top/state.hpp"

namespace acc::ctl::top {

/// What a key does on the page and the panel that are open (pure). The keys are htop's.
[[nodiscard]] Outcome on_key(Model& model, const KeyPress& press);

/// Number of the log's line at the top of the window, whether it follows or not.
[[nodiscard]] std::uint64_t log_top(const Model& model);

}  // namespace acc::ctl::top
