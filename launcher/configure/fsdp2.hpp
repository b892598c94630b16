#pragma once

#include "launcher/value.hpp"

#include <string>
#include <vector>

namespace acc::configure {

struct Fsdp2 {
  launcher::Map map;
  std::vector<std::string> notes;  ///< what was dropped, and why nothing was changed
};

/// A file for FSDP 1 as `accelerate to-fsdp2` converts it: keys that FSDP 2 has no counterpart for
/// are dropped, the sharding strategy becomes fsdp_reshard_after_forward.
[[nodiscard]] Fsdp2 to_fsdp2(launcher::Map map);

}  // namespace acc::configure
