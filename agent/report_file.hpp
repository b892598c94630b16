#pragma once

#include "agent/guardian_board.hpp"
#include "common/error.hpp"

#include <string>
#include <string_view>

/// The file of --report. It is never one of an older job: from the start on it says that the job
/// runs, and if the agent can't write the end, the guardian does.
namespace acc::agent {

/// A few of kReportKeys.
struct ShortReport {
  std::string_view verdict;  ///< also "running", "not_started", "agent_lost"
  int exit_code = 0;         ///< not of a job that runs
  std::string reason;
  pid_t pid = 0;  ///< of the guardian
};
[[nodiscard]] std::string to_json(const ShortReport& report);
/// As a string of JSON, with its quotes. What is shown by no terminal is escaped, also bytes that
/// aren't UTF-8.
[[nodiscard]] std::string json_string(std::string_view text);

/// Whole, as write_whole_file; "-" is the standard output, which gets 30 s to take it. On a disk
/// that is full it goes into the space that the report "running" reserved. Where not even that
/// works the file gets `instead`, if it can be written at all, and the error is returned.
Result<void> write_report_file(const std::string& path, std::string_view json,
                               const ShortReport& instead);

// ---- by what stands on the board ----
/// Overwrites a report of an older job.
void write_running_report(const std::string& path, const GuardianLink& guardian);
/// The guardian's last act: the short report, where one is due and wasn't written.
/// @param lost  how the agent died; empty: it exited
/// @return an error that nobody has told yet
Result<void> write_missing_report(const GuardianBoard& board, int exit_code,
                                  const std::string& lost);

}  // namespace acc::agent
