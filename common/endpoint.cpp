#include "common/endpoint.hpp"

namespace acc {

std::string join_host_port(std::string_view host, std::int64_t port) {
  const bool is_v6 = host.find(':') != std::string_view::npos;
  const std::string name{host};
  return (is_v6 ? "[" + name + "]" : name) + ":" + std::to_string(port);
}

}  // namespace acc
