#pragma once

#include "agent/job_plan.hpp"
#include "common/error.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Words with a structure of their own. The errors say what form is expected.
namespace acc::launcher {

/// "3" or "0:1,1:3", as torchrun's --tee.
Result<agent::StreamsPerRank> parse_streams(std::string_view text);
/// "0,2"; empty text is an empty list.
Result<std::vector<LocalRank>> parse_ranks(std::string_view text);
/// "2,64-78"
Result<std::vector<agent::CodeRange>> parse_codes(std::string_view text);
/// "TERM,USR1"
Result<std::vector<int>> parse_signals(std::string_view text);
/// "4096", "64K", "10M", "1G"
Result<std::uint64_t> parse_bytes(std::string_view text);
/// "timeout=60,is_host=1"
Result<std::map<std::string, std::string>> parse_rendezvous_conf(std::string_view text);

struct NodeRange {
  std::uint32_t min = 1;
  std::uint32_t max = 1;
};
/// "2" or "2:4"
Result<NodeRange> parse_nodes(std::string_view text);

/// A host's name or number, an IPv6 one with or without brackets: "node1", "10.0.0.1", "fd00::2".
/// The result has no brackets.
Result<std::string> parse_address(std::string_view text);

struct Endpoint {
  std::string host;  ///< without brackets
  std::optional<std::uint16_t> port;
};
/// "host", "host:29400", "[fd00::2]:29400" or a bare "fd00::2"
Result<Endpoint> parse_endpoint(std::string_view text);
/// By its looks: localhost, 127.x.y.z or ::1. A name that leads there is not known to be one.
[[nodiscard]] bool is_loopback(std::string_view host);

/// torchrun's yes and no: 1, true, t, yes, y and their opposites.
Result<bool> parse_yes_no(std::string_view text);

}  // namespace acc::launcher
