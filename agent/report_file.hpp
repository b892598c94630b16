#pragma once

#include "agent/guardian.hpp"
#include "common/error.hpp"

#include <string>
#include <string_view>

/// The file of --report. It is never one of an older job: from the start on it says that the job
/// runs, and an end that the agent can't tell is told by the guardian.
namespace acc::agent {

/// Whole, as write_whole_file; "-" is the standard output, which gets 30 s to take it.
Result<void> write_report_file(const std::string& path, std::string_view json);

/// A few of kReportKeys.
struct ShortReport {
  std::string_view verdict;  ///< also "running", "not_started", "agent_lost"
  int exit_code = 0;         ///< not of a job that runs
  std::string reason;
  pid_t pid = 0;  ///< of the guardian
};
[[nodiscard]] std::string to_json(const ShortReport& report);

// ---- on the board; note_report and note_refusal are in guardian.hpp ----
/// The agent has tried to write it: there is nothing to add.
void note_report_written(const GuardianLink& guardian);
/// Overwrites a report of an older job.
void write_running_report(const std::string& path, const GuardianLink& guardian);
/// The guardian's last act: the short report, where one is due and wasn't written.
/// @param lost  how the agent died; empty: it exited
void write_missing_report(const GuardianBoard& board, int exit_code, const std::string& lost);

}  // namespace acc::agent
