// Any bytes, as --hosts, as a host file, as a line of a life line or as a mark, give a result or an
// error; and what was understood is the same when it is written and read again.
#include "agent/fanout/orders.hpp"
#include "launcher/host_list.hpp"
#include "launcher/shell_words.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

void check(const acc::launcher::HostList& list) {
  require(list.hosts.size() <= acc::launcher::kMaxHosts);
  for (const auto& host : list.hosts) {
    // ssh must not take a host for an option, nor a shell for more than a word.
    require(!host.login.empty() && host.login.front() != '-');
    require(!host.address.empty() && host.address.front() != '-');
    require(host.login.find_first_of(" \t\n;$`'\"\\&|<>(){}*?!") == std::string::npos);
    require(!host.slots || (*host.slots > 0 && *host.slots <= acc::launcher::kMaxSlots));
  }
}

void check_orders(std::string_view text) {
  const auto order = acc::agent::decode_order(text);
  if (order) {
    auto line = acc::agent::encode(*order);
    require(line.back() == '\n');
    line.pop_back();
    require(line.find('\n') == std::string::npos);
    const auto again = acc::agent::decode_order(line);
    require(again.has_value() && acc::agent::encode(*again) == line + "\n");
  }
  const auto mark = acc::agent::decode_mark(text, "token");
  if (mark) require(!acc::agent::encode(*mark, "token").empty());
}

void check_words(std::string_view text) {
  using namespace acc::launcher;
  const auto words = split_shell_words(text);
  if (!words) return;
  const auto again = split_shell_words(quote_for_shell(*words));
  require(again.has_value() && *again == *words);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  check(acc::launcher::parse_hosts(text));
  check(acc::launcher::parse_hostfile(text, "hosts"));
  check_orders(text);
  check_words(text);
  return 0;
}
