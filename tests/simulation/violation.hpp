#pragma once

#include <stdexcept>
#include <string>

namespace acc::simulation {

/// A promise was broken; the seed ends here.
struct Violation : std::runtime_error {
  Violation(std::string promise_, const std::string& what)
      : std::runtime_error{promise_ + ": " + what}, promise{std::move(promise_)} {}
  std::string promise;  ///< "P1", "P3", "budget", "liveness", "wire", "outcome"
};

}  // namespace acc::simulation
