#pragma once

#include "agent/fanout/launch_record.hpp"
#include "common/duration.hpp"
#include "launcher/ctl/job_list.hpp"

#include <nlohmann/json_fwd.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Jobs on several nodes that acc-launch --hosts started from this machine, each a job of the
/// daemon of each of its nodes.
namespace acc::ctl {

struct LaunchPartState {
  agent::LaunchPart part;     ///< its `node` as seen from here
  std::optional<JobRow> job;  ///< nothing: `why`
  std::string why;            ///< the node can't be asked; empty: it has no such job
};

struct LaunchState {
  agent::LaunchRecord record;
  std::vector<LaunchPartState> parts;
};

/// The jobs of one node, or why they aren't known.
struct NodeJobs {
  std::vector<JobRow> jobs;
  std::string why;
};
/// Our daemon, and the names of its node: as it says, and as this process sees it.
struct OwnNode {
  NodeJobs known;
  std::vector<std::string> names;
};

// ---- pure ----
/// A part whose node is that of the daemon which the launch was started through. With a home that
/// nodes share that may be another one than ours: it is asked by its name then (nothing but
/// `part.node` is set), and what it has is unknown where the record doesn't name it.
[[nodiscard]] LaunchPartState part_of_first_daemon(const agent::LaunchRecord& record,
                                                   std::size_t index, const OwnNode& own);
/// The launch of this id: no other job has it.
[[nodiscard]] const agent::LaunchRecord* find_record(
    const std::vector<agent::LaunchRecord>& records, std::string_view wanted);
/// Those whose ids begin with it.
[[nodiscard]] std::vector<agent::LaunchRecord> records_from(
    const std::vector<agent::LaunchRecord>& records, std::string_view beginning);
/// What a user means by `wanted`, of jobs of one node and launches: one of the two.
struct Meant {
  std::optional<LaunchState> launch;
  JobRow job;
};
/// As find_job, where each launch counts as one job in place of its parts; a part is meant by its
/// own id alone.
/// @param launches  those whose ids begin with `wanted`
[[nodiscard]] Result<Meant> find_meant(std::vector<JobRow> jobs,
                                       const std::vector<LaunchState>& launches,
                                       std::string_view wanted, std::string_view user);
/// The part that has this rank of the whole job, and its number there. Nothing: no part has it, or a
/// node before it can't be asked.
struct RankPlace {
  const LaunchPartState* part;
  std::uint32_t local_rank;
};
[[nodiscard]] std::optional<RankPlace> place_of(const LaunchState& launch, std::uint32_t rank);
/// The nodes that can't be asked what they have of it.
[[nodiscard]] std::vector<std::string> unknown_nodes(const LaunchState& launch);
/// Whether this part's job is known by the record alone: its node can't be asked now.
[[nodiscard]] bool is_away(const LaunchState& launch, const LaunchPartState& one);
/// One row for all parts. The state is "unknown" where no node that can be asked knows of it, or
/// those that do were lost on the way, and "gone" where all can be asked and none has it.
[[nodiscard]] JobRow row_of(const LaunchState& launch);
/// Without the local parts of launches, which have a row of their own. A job that only has the name
/// of a part, but another user, stays: a user's list hides no job of others.
[[nodiscard]] std::vector<JobRow> without_parts(std::vector<JobRow> jobs,
                                                const std::vector<LaunchState>& launches);
[[nodiscard]] std::string launch_text(const LaunchState& launch, std::int64_t now_ms,
                                      std::size_t width);
/// @param answers  of GET /v1/jobs/ID, one for each part; null: not known
[[nodiscard]] nlohmann::json launch_json(const LaunchState& launch,
                                         const std::vector<nlohmann::json>& answers);

/// A list doesn't wait longer for a node that is switched off, or was removed from the cluster.
inline constexpr Millis kListedNodePatience{1'000};
/// Asks all nodes at once. Records whose jobs are gone from all nodes are removed.
/// @param patience  for each other node; nothing: as long as our daemon waits
[[nodiscard]] std::vector<LaunchState> ask_launches(const std::vector<agent::LaunchRecord>& records,
                                                    std::optional<Millis> patience = {});
/// What each part's daemon says of it, with its ranks: GET /v1/jobs/ID; null: no answer.
[[nodiscard]] std::vector<nlohmann::json> ask_parts(const LaunchState& launch);

}  // namespace acc::ctl
