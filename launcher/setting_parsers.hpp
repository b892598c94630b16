#pragma once

#include "agent/job_plan.hpp"
#include "common/error.hpp"

#include <cstdint>
#include <map>
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

}  // namespace acc::launcher
