#pragma once

#include "agent/evidence/rank_evidence.hpp"

#include <string>
#include <string_view>
#include <vector>

/// Dumps of torch's flight recorder (TORCH_NCCL_TRACE_BUFFER_SIZE): which collective each process
/// group was in. They are pickles, which may name any function of Python: a Python of its own reads
/// them with an unpickler that refuses all of them.
namespace acc::agent::evidence {

/// The command that reads these dumps, and writes a line of JSON for each that it could read.
[[nodiscard]] std::vector<std::string> flight_reader(const std::string& python,
                                                     const std::vector<std::string>& dumps);

struct FlightDump {
  std::string path;
  std::vector<FlightGroup> groups;
};
/// What that command wrote (pure). Total: a line that is none of its own is skipped.
[[nodiscard]] std::vector<FlightDump> decode_flight(std::string_view output);

/// For people: "0:default_pg: in all_reduce #42 (started)".
[[nodiscard]] std::string flight_words(const FlightGroup& group);
/// For each group in which some ranks wait for others, who waits in what, and who hasn't come.
[[nodiscard]] std::vector<std::string> missing_in_flight(const std::vector<RankEvidence>& ranks);

}  // namespace acc::agent::evidence
