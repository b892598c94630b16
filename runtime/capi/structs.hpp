#pragma once

#include "runtime/capi/handles.hpp"

#include <algorithm>
#include <cstring>

/// Structs that the caller fills, whose first member is their size.
namespace acc::capi {

/// The caller's struct may be older (shorter) or newer (longer) than ours: what it has is used, the
/// rest has its default.
template <class T>
T known_part(const T* given, T all) {
  if (given == nullptr) return all;
  constexpr std::size_t kImplausible = 4096;
  if (given->size < sizeof(std::size_t) || given->size > kImplausible)
    refuse("the struct's `size` is " + std::to_string(given->size) +
           ": it wasn't initialised (ACC_…_INIT)");
  std::memcpy(&all, given, std::min(given->size, sizeof(T)));
  return all;
}

template <class T>
void write_defaults(T* to, size_t size, const T& defaults) {
  if (to == nullptr || size < sizeof(std::size_t)) return;
  std::memset(to, 0, size);
  std::memcpy(to, &defaults, std::min(size, sizeof(T)));
  to->size = size;
}

inline std::string text_of(const char* text) { return text != nullptr ? text : ""; }

}  // namespace acc::capi
