#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace acc {

/// "node1:29400"; an IPv6 address gets brackets: "[fd00::1]:29400".
[[nodiscard]] std::string join_host_port(std::string_view host, std::int64_t port);

}  // namespace acc
