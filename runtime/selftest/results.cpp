#include "runtime/selftest/results.hpp"

#include <nlohmann/json.hpp>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string_view>

namespace acc::selftest {

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string ranks_text(const runtime::ProcessGroup& group) {
  return std::to_string(group.size()) + (group.size() == 1 ? " rank" : " ranks");
}

namespace {

/// As the launcher counts: of two machines of a job on one host each has an acc-test that reads.
bool is_first_of_node(int by_group) {
  const char* local_rank = std::getenv("LOCAL_RANK");
  return local_rank != nullptr ? std::string_view{local_rank} == "0" : by_group == 0;
}

}  // namespace

Results::Results(const runtime::ProcessGroup& group, Style style)
    : Results{group.rank(), is_first_of_node(group.local_rank()), style} {}

Results::Results(int rank, Style style) : Results{rank, is_first_of_node(rank), style} {}

Results::Results(int rank, bool first_of_node, Style style)
    : style_{style},
      prints_{style != Style::silent && rank == 0},
      is_first_of_node_{first_of_node} {
  const char* file = std::getenv("ACC_TEST_RESULTS");
  if (first_of_node && file != nullptr && style != Style::marked) file_ = file;
}

void Results::print_on_every_node() {
  prints_ = prints_ || (style_ == Style::text && is_first_of_node_);
}

void Results::print(const std::string& text) const {
  if (!prints_) return;
  if (style_ == Style::marked) {
    std::istringstream lines{text};
    for (std::string line; std::getline(lines, line);)
      std::fputs((kTextMark + line + "\n").c_str(), stdout);
  } else {
    std::fputs(text.c_str(), stdout);
  }
  std::fflush(stdout);
}

void Results::write(const std::string& json) const {
  if (style_ == Style::marked && prints_) {
    std::fputs((kJsonMark + json + "\n").c_str(), stdout);
    std::fflush(stdout);
  }
  if (file_.empty()) return;
  std::ofstream{file_, std::ios::app} << json + "\n";
}

void Results::tell(const Result& result, const std::string& details) {
  char head[64];
  std::snprintf(head, sizeof head, "%-8s %-14s ", result.ok ? "ok" : "failed", result.name.c_str());
  char tail[32];
  std::snprintf(tail, sizeof tail, " (%.2f s)\n", result.seconds);
  print(head + result.found + tail);
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.3f", result.seconds);
  write("{\"name\":" + quoted(result.name) +
        ",\"verdict\":" + (result.ok ? "\"ok\"" : "\"failed\"") +
        ",\"found\":" + quoted(result.found) + ",\"remedy\":\"\",\"seconds\":" + seconds +
        (details.empty() ? "" : ",\"details\":" + details) + "}");
}

void Results::tell_remedy(const std::string& found, const std::string& remedy) {
  print("         " + found + "\n         -> " + remedy + "\n");
}

void Results::tell_row(const std::string& line, const std::string& json) {
  print(line);
  write(json);
}

}  // namespace acc::selftest
