// Any bytes in a worker's error file give a record or an error, and both can be reported.
#include "agent/error_file.hpp"
#include "agent/report.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  auto error = acc::agent::parse_error_file(text);
  acc::agent::JobReport report;
  report.outcome = acc::Outcome::failed;
  acc::agent::FailureReport failure;
  failure.worker.status = acc::Exited{1};
  failure.tail = text;
  if (error.has_value()) {
    failure.error = *error;
  } else if (error.error().what.empty()) {
    std::abort();  // an error without words helps nobody
  }
  report.failures.push_back(failure);
  if (acc::agent::to_text(report, false).empty() || acc::agent::to_json(report).empty()) std::abort();
  return 0;
}
