#pragma once

#include "launcher/ctl/top/state.hpp"

namespace acc::ctl::top {

/// What acc-top does about keys and answers (pure): an event changes the state, and perhaps asks
/// for something.
[[nodiscard]] Outcome step(Model& model, const Event& event, std::int64_t now_ms);
/// What each round of questions asks for.
[[nodiscard]] Wish wish_of(const Model& model);

}  // namespace acc::ctl::top
