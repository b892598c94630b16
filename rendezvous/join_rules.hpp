#pragma once

#include "rendezvous/node_table.hpp"
#include "rendezvous/timings.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

/// Rules for joining a job (pure): the same protocol, job, sizes and facts; one agent per node name
/// and, in a static job, wanted rank. Script and arguments may differ, and the users of both nodes
/// are told.
namespace acc::rendezvous {

/// Terms of a job for its agents; open ones are taken from the first agent that joins.
struct JobTerms {
  std::string job;
  std::string name;             ///< the coordinator's node, for messages
  std::string where;            ///< "10.0.0.1:29501", for messages
  std::uint32_t nodes_min = 0;  ///< 0: taken from the first agent
  std::uint32_t nodes_max = 0;
  std::vector<JobFact> facts;   ///< of the coordinator's node; empty: taken from the first agent
  std::string facts_of;         ///< that agent's node; empty: the coordinator's
  std::uint32_t differing = 0;  ///< agents that differed so far (take_difference())
  bool has_shared_rank = false;  ///< two nodes want one rank (take_shared_rank())
};

/// Takes what the terms leave open from an agent that has joined.
void learn(JobTerms& terms, const Join& join);

/// Why the agent doesn't fit the job, with both values and the cure; nothing: it does.
[[nodiscard]] std::optional<Refused> objection(const JobTerms& terms, const Join& join);

/// What an agent that may join was started with otherwise than the terms say.
struct Difference {
  std::string here;   ///< for the user on the coordinator's node; empty for all but the first ones
  std::string there;  ///< for the agent's
};
/// Counts the agent if it differs: once for each.
[[nodiscard]] std::optional<Difference> take_difference(JobTerms& terms, const Join& join);

/// Where ranks are wishes (all but static): that another node wants this one's rank, too, for the
/// user on the coordinator's node. Once for the job.
[[nodiscard]] std::optional<std::string> take_shared_rank(JobTerms& terms, const NodeTable& nodes,
                                                          const Join& join);

struct Duplicate {
  Refused refused;
  /// The name was derived from the host's: the agent joins again under another one by itself.
  bool is_renamed = false;
  /// The holder has the newcomer's name, host and address: as likely the node's last agent, which
  /// is still ending its workers, as a second one.
  std::optional<NodeIndex> predecessor{};
};

/// The refusal if another agent has its node name or, in a static job, rank already. The agent that
/// joined first and is still heard keeps it. `address`: the newcomer's, as reported by its socket.
[[nodiscard]] std::optional<Duplicate> duplicate(const JobTerms& terms, const NodeTable& nodes,
                                                 const Join& join, const std::string& address,
                                                 const Timings& timings, Instant now);

/// Why no round was formed within `limit`: too few nodes, or too few of those of the last round.
[[nodiscard]] std::string too_few_text(std::size_t present, std::uint32_t needed, bool has_round,
                                       Millis limit);

}  // namespace acc::rendezvous
