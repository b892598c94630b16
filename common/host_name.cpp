#include "common/host_name.hpp"

#include <unistd.h>

namespace acc {

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "localhost";
}

const std::string& name_of_place(const std::string& node, const std::string& host) {
  const bool is_number = node.size() > host.size() + 1 &&
                         node.find_first_not_of("0123456789", host.size() + 1) == std::string::npos;
  const auto is_added = [&] {  // behind the host's name
    return node.size() == host.size() || node[host.size()] == '@' ||
           (node[host.size()] == '-' && is_number);
  };
  const bool is_ours = !host.empty() && node.starts_with(host) && is_added();
  return node.empty() || is_ours ? host : node;
}

}  // namespace acc
