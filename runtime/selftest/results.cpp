#include "runtime/selftest/results.hpp"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string_view>

namespace acc::selftest {

std::string quoted(const std::string& text) {
  std::string made = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      made += '\\';
      made += c;
    } else if (byte < 0x20 || byte > 0x7E) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", byte);
      made += escape;
    } else {
      made += c;
    }
  }
  return made + '"';
}

std::string ranks_text(const runtime::ProcessGroup& group) {
  return std::to_string(group.size()) + (group.size() == 1 ? " rank" : " ranks");
}

Results::Results(const runtime::ProcessGroup& group, bool silent)
    : prints_{!silent && group.rank() == 0} {
  const char* file = std::getenv("ACC_TEST_RESULTS");
  // As the launcher counts: of two machines of a job on one host each has an acc-test that reads.
  const char* local_rank = std::getenv("LOCAL_RANK");
  const bool writes =
      local_rank != nullptr ? std::string_view{local_rank} == "0" : group.local_rank() == 0;
  if (writes && file != nullptr) file_ = file;
}

void Results::print(const std::string& text) const {
  if (!prints_) return;
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

void Results::write(const std::string& json) const {
  if (file_.empty()) return;
  std::ofstream{file_, std::ios::app} << json + "\n";
}

void Results::tell(const Result& result) {
  char head[64];
  std::snprintf(head, sizeof head, "%-8s %-14s ", result.ok ? "ok" : "failed", result.name.c_str());
  char tail[32];
  std::snprintf(tail, sizeof tail, " (%.2f s)\n", result.seconds);
  print(head + result.found + tail);
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.3f", result.seconds);
  write("{\"name\":" + quoted(result.name) +
        ",\"verdict\":" + (result.ok ? "\"ok\"" : "\"failed\"") +
        ",\"found\":" + quoted(result.found) + ",\"remedy\":\"\",\"seconds\":" + seconds + "}");
}

void Results::tell_row(const std::string& line, const std::string& json) {
  print(line);
  write(json);
}

}  // namespace acc::selftest
