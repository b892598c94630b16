#pragma once

#include <span>
#include <string_view>

namespace acc::launcher {

/// A place where we differ from `accelerate launch` or torchrun on purpose. Listed in
/// docs/compatibility.md.
struct Deviation {
  std::string_view original;
  std::string_view ours;
  std::string_view reason;
};
[[nodiscard]] std::span<const Deviation> deviations();

}  // namespace acc::launcher
