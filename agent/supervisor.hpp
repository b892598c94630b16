#pragma once

#include "agent/group_state.hpp"

#include <string_view>

/// The life of one node's workers as a pure function of state and event: no clock, process or
/// socket. The agent feeds events in and carries actions out; the time comes with the event.
///
///   idle → running → stopping → killing → finished
///              ↑          └────────┴→ backing_off ┐
///              └──────────────────────────────────┘
///
/// A job on several nodes is `coordinated`: what follows a round is then the coordinator's
/// business, and this node waits for it. Its orders come as events, its news go as actions.
///
///   idle → awaiting → running → stopping → killing
///              ↑ └───→ finished     └─────────┤
///              └──────────────────────────────┘
namespace acc::agent {

/// Takes the event in and says what is to be done, in this order. Never fails.
Actions step(GroupState& group, const Event& event);

/// Why a RestartAsked would be ignored now, for the one who asks; empty: it wouldn't.
[[nodiscard]] std::string_view why_no_restart(const GroupState& group);

/// No round will follow the one that runs, whatever comes of it.
[[nodiscard]] bool ends_for_good(const GroupState& group);

/// Until when the attempt that ends now was of use: the failure that ends it, here or on another
/// node, may have been held back for a while.
[[nodiscard]] Instant lost_since(const GroupState& group, Instant now);

}  // namespace acc::agent
