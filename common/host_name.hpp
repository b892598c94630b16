#pragma once

#include <string>

namespace acc {

/// As `hostname` prints it; "localhost" if the system doesn't provide it.
[[nodiscard]] std::string host_name();

/// How messages name a node: by its host, which says where to look; by its own name if the user
/// gave it one (--node_name). Names that we give are the host's, or have "@…" or a number,
/// "-1", behind it.
[[nodiscard]] const std::string& name_of_place(const std::string& node, const std::string& host);

}  // namespace acc
