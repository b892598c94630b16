#include "agent/report_file.hpp"

#include "agent/report_keys.hpp"
#include "agent/small_file.hpp"
#include "common/exit_codes.hpp"
#include "common/foreign_file.hpp"
#include "common/host_name.hpp"
#include "common/plain_text.hpp"
#include "common/text.hpp"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace acc::agent {

namespace {

constexpr std::string_view kStandardOutput = "-";
/// A report that quotes the output of two failures has about so much.
constexpr std::size_t kReserved = 64UL * 1024;

// Never more than a pipe takes at once, so that no write blocks.
Result<void> write_to_standard_output(std::string_view text) {
  constexpr std::size_t kPiece = 4096;
  constexpr int kPatienceMs = 30'000;
  while (!text.empty()) {
    pollfd out{STDOUT_FILENO, POLLOUT, 0};
    if (::poll(&out, 1, kPatienceMs) == 0)
      return system_error(ETIMEDOUT, "write to the standard output");
    const auto n = ::write(STDOUT_FILENO, text.data(), std::min(text.size(), kPiece));
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n <= 0) return system_error(n < 0 ? errno : EIO, "write to the standard output");
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

}  // namespace

Result<void> write_report_file(const std::string& path, std::string_view json,
                               const ShortReport& instead) {
  if (path == kStandardOutput) return write_to_standard_output(json);
  // A forgotten FILE behind --report makes the script the report's file.
  if (holds_other_text(path, kReportBegin))
    return Error{Errc::not_permitted, "write the report: " + in_quotes(path) +
                                          " holds something else, and is left as it is"};
  auto written = write_whole_file(path, json);
  if (written || overwrite_file(path, json)) return {};
  (void)overwrite_file(path, to_json(instead));
  return written;
}

std::string json_string(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const auto shown = shown_character(text);
    if (shown == 0) {  // may be no UTF-8: as Latin-1
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned char>(text[0]));
      out += escaped;
    } else {
      if (text[0] == '"' || text[0] == '\\') out += '\\';
      out += text.substr(0, shown);
    }
    text.remove_prefix(std::max<std::size_t>(1, shown));
  }
  return out + '"';
}

std::string to_json(const ShortReport& report) {
  const bool ended = report.verdict != "running";
  return "{\n  \"format\": " + std::to_string(kReportFormat) +
         ",\n  \"host\": " + json_string(host_name()) +
         ",\n  \"pid\": " + std::to_string(report.pid) +
         ",\n  \"verdict\": " + json_string(report.verdict) +
         ",\n  \"exit_code\": " + (ended ? std::to_string(report.exit_code) : "null") +
         ",\n  \"reason\": " + (report.reason.empty() ? "null" : json_string(report.reason)) +
         "\n}\n";
}

void write_running_report(const std::string& path, const GuardianLink& guardian) {
  if (path.empty() || path == kStandardOutput || holds_other_text(path, kReportBegin)) return;
  const auto text = to_json({"running", 0, "", guardian.pid});
  if (write_whole_file(path, text, kReserved)) return;
  // An error here recurs at the end, and is reported then.
  (void)overwrite_file(path, text);
}

Result<void> write_missing_report(const GuardianBoard& board, int exit_code,
                                  const std::string& lost) {
  if (board.report_file[0] == '\0' || board.report_is_written) return {};
  ShortReport report{lost.empty() ? "not_started" : "agent_lost", exit_code, board.refusal,
                     ::getpid()};
  if (!lost.empty()) report.reason = "the agent was " + lost;
  auto written = write_report_file(board.report_file, to_json(report), report);
  const bool is_told = exit_code == to_int(ExitCode::output);
  return is_told ? Result<void>{} : written;
}

}  // namespace acc::agent
