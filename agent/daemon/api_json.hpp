#pragma once

#include "agent/daemon/jobs.hpp"
#include "agent/daemon/token_issuer.hpp"

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

/// The JSON that the API answers with.
namespace acc::agent::daemon {

/// What only one job's page has. JSON of the user's processes, which is passed through if it is
/// some.
struct JobDetails {
  std::string report;  ///< empty: there is none
  std::string live;
  std::string report_left_out{};  ///< why a report that is there can't be shown
};
/// As `report`, with what else a job's page has but for `live`: what encode_job makes at most.
inline constexpr std::size_t kMostJobBytes = (std::size_t{1} << 20U) + (std::size_t{64} << 10U);
[[nodiscard]] std::string encode_job(const JobRecord& job, const JobDetails& details);
/// So much of each job's command line is in a list of jobs.
inline constexpr std::size_t kListedWordBytes = 4096;
/// About what encode_jobs makes of a job at most.
inline constexpr std::size_t kListedJobBytes = kListedWordBytes + 2048;
[[nodiscard]] std::string encode_jobs(const std::vector<JobRecord>& jobs);
[[nodiscard]] std::string encode_submitted(const JobId& id);
[[nodiscard]] std::string encode_node(const NodeFacts& node, const std::vector<JobRecord>& jobs);
[[nodiscard]] std::string encode_event(const JobEvent& event);
[[nodiscard]] std::string encode_events(const std::vector<JobEvent>& events);
/// The last event of a job's log stream.
[[nodiscard]] std::string encode_end(const JobRecord& job);
/// `complaints` may be empty. `code`: empty: that of the status.
[[nodiscard]] std::string encode_error(unsigned status, const std::string& what,
                                       const std::vector<std::string>& complaints,
                                       std::string_view code = {});
/// Of what was done, but not wholly.
[[nodiscard]] std::string encode_warning(const std::string& what);
/// One node of the list: what it says of itself, or why it says nothing.
struct NodeAnswer {
  std::string node;   ///< as in the settings
  std::string facts;  ///< JSON of its /v1/node
  std::string error;
  std::string code;
};
[[nodiscard]] std::string encode_nodes(const std::vector<NodeAnswer>& answers);
[[nodiscard]] std::string encode_check(const CheckedSubmission& checked);
[[nodiscard]] std::string encode_token(const IssuedToken& issued);

[[nodiscard]] std::string_view to_text(JobState state);
[[nodiscard]] std::string_view to_text(RestartRule rule);
/// Succeeded, failed or stopped.
[[nodiscard]] bool is_over(JobState state);

}  // namespace acc::agent::daemon
