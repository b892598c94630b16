#pragma once

#include "agent/guardian.hpp"

namespace acc::launcher {

/// acc-launch from its command line to its exit code.
int launch(int argc, char** argv, const agent::GuardianLink& guardian);

}  // namespace acc::launcher
