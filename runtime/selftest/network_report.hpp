#pragma once

#include "runtime/selftest/network_verdict.hpp"

#include <nlohmann/json_fwd.hpp>

#include <span>
#include <string>
#include <vector>

/// The report of a network check: the JSON object that node 0 writes into the job's store, and the
/// lines in which every node prints it (pure).
namespace acc::selftest {

/// @param nodes, pairs  what was judged; `verdict` is that of judge_network()
/// @param rounds  how many were measured
[[nodiscard]] nlohmann::json network_json(std::span<const NodeFacts> nodes,
                                          std::span<const PairFacts> pairs,
                                          const NetworkVerdict& verdict, int rounds);
/// In one line. Bytes of a name that aren't UTF-8 are replaced.
[[nodiscard]] std::string line_of(const nlohmann::json& value);

struct NetworkReport {
  struct Row {
    std::string line;  ///< of the table that is printed; ends with a line feed
    std::string json;  ///< that pair of network_json()
  };
  struct Remedy {
    std::string found, remedy;
  };
  std::vector<Row> rows;  ///< one for each pair
  std::vector<Remedy> remedies;
  bool ok = true;
  std::string found;    ///< "2 pairs, 9.4 Gbit/s and 0.05 ms are usual"; "b to c: slow; d: broken"
  std::string details;  ///< network_json() without its pairs
};
/// @param network  what network_json() made, as it arrived
/// @throws nlohmann::json::exception  it is something else
[[nodiscard]] NetworkReport network_report(const nlohmann::json& network);

}  // namespace acc::selftest
