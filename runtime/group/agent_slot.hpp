#pragma once

#include "common/heartbeat_slot.hpp"

namespace acc::runtime {

/// This rank's place in the memory that it shares with its agent; null: there is none. Looked for
/// once, without a message to the agent: a program that reports nothing must not make it look.
[[nodiscard]] heartbeat::Slot* agent_slot();

}  // namespace acc::runtime
