#pragma once

namespace acc::runtime {

/// Hints to the core that this thread spins, which spares its sibling and power.
inline void spin_pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace acc::runtime
