#include "common/host_name.hpp"

#include <unistd.h>

#include <cstring>

namespace acc {

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "localhost";
}

const std::string& name_of_place(const std::string& node, const std::string& host) {
  const bool is_ours =
      !host.empty() && node.starts_with(host) &&
      (node.size() == host.size() || std::strchr("@-", node[host.size()]) != nullptr);
  return node.empty() || is_ours ? host : node;
}

}  // namespace acc
