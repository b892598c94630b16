#pragma once

#include "common/duration.hpp"

namespace acc::rendezvous {

inline constexpr Millis kSecond{1'000};

}  // namespace acc::rendezvous
