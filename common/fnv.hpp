#pragma once

#include <cstdint>
#include <string_view>

namespace acc {

/// FNV-1a, 64 bits: the same number for a text on every machine and in every version. It shows
/// mistakes, and no attack: two texts with the same number are easily made.
[[nodiscard]] constexpr std::uint64_t fnv1a(std::string_view text) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return hash;
}

}  // namespace acc
