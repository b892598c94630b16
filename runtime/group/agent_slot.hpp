#pragma once

#include "common/heartbeat_slot.hpp"

#include <acc/error.hpp>

namespace acc::runtime {

/// This rank's place in the memory that it shares with its agent; null: there is none. Looked for
/// once, without a message to the agent: a program that reports nothing must not make it look.
[[nodiscard]] heartbeat::Slot* agent_slot();

/// To be called as a call throws `cause` to the user, on `rank` (numbered as cause.ranks()): if
/// another rank had ended or aborted, the agent must not take this rank's exit for the first
/// failure. No effect while an exception unwinds: what failed first here is that.
void note_failed_peer(const Error& cause, int rank) noexcept;

}  // namespace acc::runtime
