#pragma once

#include "agent/guardian.hpp"

namespace acc::launcher {

/// acc-launch from its command line to its exit code. `has_output`: whether the caller left us a
/// standard output, which --help and the like need.
int launch(int argc, char** argv, const agent::GuardianLink& guardian, bool has_output = true);

}  // namespace acc::launcher
