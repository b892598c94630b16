#pragma once

#include "runtime/shm/blame.hpp"

#include <optional>
#include <string>

namespace acc::runtime::tcp {

/// How far a rank is, as the leader of its host reports it to those of other hosts.
[[nodiscard]] std::string to_text(const shm::RankStatus& status);
/// nothing: not in this format. Its texts are printable.
[[nodiscard]] std::optional<shm::RankStatus> parse_status(const std::string& text);

}  // namespace acc::runtime::tcp
