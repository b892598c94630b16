#pragma once

#include "launcher/configure/asker.hpp"

#include <string>

namespace acc::configure {

struct Interview {
  enum class End { done, cancelled, failed };
  End end = End::done;
  std::string why{};  ///< of a failure: which question, and what about it
};

/// Asks until no question is left, from behind the answers that are there. Wrong answers are
/// explained and asked again.
[[nodiscard]] Interview interview(Asker& asker, Answers& answers);

}  // namespace acc::configure
