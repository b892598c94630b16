#include "launcher/launcher.hpp"

#include "agent/agent.hpp"

namespace acc::launcher {

int launch(int, char**, const agent::GuardianLink& guardian) { return agent::run({}, guardian); }

}  // namespace acc::launcher
