#pragma once

namespace acc::selftest {

/// Prints "nccl VERSION PATH" or "no-nccl WHY". @return 0
int probe();

}  // namespace acc::selftest
