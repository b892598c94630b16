#pragma once

#include "tests/support/exact_collectives.hpp"

#include <acc/process_group.hpp>

/// Checks of acc-gpu-check beside those of single collectives.
namespace acc::testing {

/// Calls with counts of each rank's own, messages at once, coalesced calls.
void check_counts(runtime::ProcessGroup& group, Verdicts& verdicts);
/// Kernels: optimizers, clipping and conversions leave the bits of the host's.
void check_training(runtime::ProcessGroup& group, Verdicts& verdicts);

}  // namespace acc::testing
