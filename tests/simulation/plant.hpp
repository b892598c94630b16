#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace acc::simulation {

/// Enables one of the bugs in rendezvous/planted.hpp. False: there is none of that name, or this
/// program was built without them.
bool plant(std::string_view name);
/// Empty in a program without them.
[[nodiscard]] std::vector<std::string> plants();

}  // namespace acc::simulation
