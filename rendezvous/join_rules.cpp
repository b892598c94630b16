#include "rendezvous/join_rules.hpp"

#include "common/job_facts.hpp"
#include "common/text.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace acc::rendezvous {

namespace {

std::string version_text(unsigned major, unsigned minor) {
  return std::to_string(major) + "." + std::to_string(minor);
}

std::string nodes_text(std::uint32_t min, std::uint32_t max) {
  return min == max ? std::to_string(min) : std::to_string(min) + ":" + std::to_string(max);
}

bool versions_agree(const Join& join) {
  const int gap = int{join.version_minor} - int{kVersionMinor};
  return join.version_major == kVersionMajor && gap >= -1 && gap <= 1;
}

/// Facts that usually differ by mistake, and by intention in a script with --log log.$(hostname).
constexpr std::array kMayDiffer{job_facts::kScript, job_facts::kArguments};
/// At the coordinator: with --rank $N every node differs, and there may be thousands.
constexpr std::uint32_t kNamedDifferences = 8;

bool may_differ(const JobFact& fact) {
  return std::ranges::find(kMayDiffer, fact.name) != kMayDiffer.end();
}

bool has_fact(const std::vector<JobFact>& facts, std::string_view name) {
  return std::ranges::find(facts, name, &JobFact::name) != facts.end();
}

/// Only the lines of a static job tell its world size, which follows from the ranks. torchrun's
/// other backends ignore --node_rank, so that lines and config files of all nodes may give one.
bool ranks_are_firm(const JobTerms& terms, const Join& join) {
  const auto& facts = terms.facts.empty() ? join.facts : terms.facts;
  return facts.empty() || has_fact(facts, job_facts::kWorldSize);
}

std::optional<Refused> compare_facts(const JobTerms& terms, const Join& join) {
  const bool both_count_per_node =
      has_fact(terms.facts, job_facts::kPerNode) && has_fact(join.facts, job_facts::kPerNode);
  for (const auto& ours : terms.facts) {
    if (may_differ(ours) || ours.name == job_facts::kPerNode) continue;
    if (both_count_per_node && ours.name == job_facts::kWorldSize) continue;
    const auto theirs = std::ranges::find(join.facts, ours.name, &JobFact::name);
    if (theirs != join.facts.end() && theirs->hash == ours.hash) continue;
    const std::string value = theirs != join.facts.end() ? in_quotes(theirs->value) : "nothing";
    return Refused{Refusal::mismatch,
                   "node " + in_quotes(join.node.name) + " was started with " + ours.name + " " +
                       value + ", the coordinator on " + terms.name + " with " +
                       in_quotes(ours.value) + ": all nodes of a job need the same",
                   {},
                   true};
  }
  return std::nullopt;
}

/// "its arguments differ: '--log n1' here, '--log n0' on a"
std::string difference_text(const JobFact& ours, const JobFact& theirs, std::string_view where,
                            const std::string& of) {
  const auto shown = [](const std::string& value) {
    return value.empty() ? std::string{"none"} : in_quotes(value);
  };
  const std::string verb = ours.name.ends_with('s') ? " differ" : " differs";
  const std::string mine = shown(theirs.value) + " " + std::string{where};
  if (ours.value == theirs.value)
    return "its " + ours.name + verb + " behind what is shown: " + mine + " and on " + of;
  return "its " + ours.name + verb + ": " + mine + ", " + shown(ours.value) + " on " + of;
}

}  // namespace

void learn(JobTerms& terms, const Join& join) {
  if (terms.nodes_max == 0) {
    terms.nodes_min = join.nodes_min;
    terms.nodes_max = join.nodes_max;
  }
  if (!terms.facts.empty()) return;
  terms.facts = join.facts;
  terms.facts_of = join.node.name;
}

std::optional<Difference> take_difference(JobTerms& terms, const Join& join) {
  const auto& of = terms.facts_of.empty() ? terms.name : terms.facts_of;
  std::vector<std::string> here;
  std::vector<std::string> there;
  for (const auto& ours : terms.facts) {
    if (!may_differ(ours)) continue;
    const auto theirs = std::ranges::find(join.facts, ours.name, &JobFact::name);
    if (theirs == join.facts.end() || theirs->hash == ours.hash) continue;
    here.push_back(difference_text(ours, *theirs, "there", of));
    there.push_back(difference_text(ours, *theirs, "here", of));
  }
  if (here.empty()) return std::nullopt;
  const std::string cure = ". If that is a mistake, stop the job";
  Difference found{{}, "this node joined, but " + acc::join(there, "; ") + cure};
  if (++terms.differing > kNamedDifferences) return found;
  found.here = "node " + in_quotes(join.node.name) + " joined, but " + acc::join(here, "; ") + cure;
  if (terms.differing == kNamedDifferences)
    found.here += ". Further nodes that differ aren't named here";
  return found;
}

std::optional<std::string> take_shared_rank(JobTerms& terms, const NodeTable& nodes,
                                            const Join& join) {
  if (terms.has_shared_rank || !join.wanted) return std::nullopt;
  const auto same_rank = nodes.by_wanted(*join.wanted);
  if (!same_rank || nodes[*same_rank].join.node.name == join.node.name || !nodes[*same_rank].peer)
    return std::nullopt;
  terms.has_shared_rank = true;
  return "node rank " + std::to_string(join.wanted->value()) + " was given to node " +
         in_quotes(nodes[*same_rank].join.node.name) + " and to node " + in_quotes(join.node.name) +
         ": without --rdzv_backend static that is no error, and nodes of one rank are ordered by "
         "their host names";
}

std::optional<Refused> objection(const JobTerms& terms, const Join& join) {
  const std::string who = "node " + in_quotes(join.node.name);
  const auto refused = [](Refusal code, std::string what) {
    return Refused{code, std::move(what), {}, true};
  };
  if (!versions_agree(join)) {
    return refused(Refusal::version,
                   "this agent speaks version " +
                       version_text(join.version_major, join.version_minor) +
                       " of the protocol, the coordinator on " + terms.name + " version " +
                       version_text(kVersionMajor, kVersionMinor) + " (it takes " +
                       version_text(kVersionMajor, kVersionMinor == 0 ? 0 : kVersionMinor - 1) +
                       " to " + version_text(kVersionMajor, kVersionMinor + 1) +
                       "): install the same acc-launch on all nodes");
  }
  if (join.job != terms.job) {
    return refused(Refusal::wrong_job, "this agent belongs to job " + in_quotes(join.job) +
                                           ", the coordinator on " + terms.name + " to job " +
                                           in_quotes(terms.job) +
                                           ": give the same --rdzv_id, or another port");
  }
  const bool counts_differ = terms.nodes_max != 0 && (join.nodes_min != terms.nodes_min ||
                                                      join.nodes_max != terms.nodes_max);
  if (counts_differ) {
    return refused(Refusal::mismatch, who + " was started for " +
                                          nodes_text(join.nodes_min, join.nodes_max) +
                                          " nodes, the coordinator on " + terms.name + " for " +
                                          nodes_text(terms.nodes_min, terms.nodes_max));
  }
  if (join.slots == 0) return refused(Refusal::mismatch, who + " has no worker to start");
  const bool has_room = !join.wanted || join.wanted->value() < join.nodes_max;
  if (!has_room && ranks_are_firm(terms, join)) {
    return refused(Refusal::mismatch, who + " wants rank " + std::to_string(join.wanted->value()) +
                                          " of " + std::to_string(join.nodes_max) + " nodes");
  }
  return compare_facts(terms, join);
}

std::optional<Duplicate> duplicate(const JobTerms& terms, const NodeTable& nodes, const Join& join,
                                   const std::string& address, const Timings& timings,
                                   Instant now) {
  const auto speaks = [&](const NodeTable::Node& node) {
    return node.peer && now - node.heard < timings.heartbeat_interval() * 3;
  };
  const auto where = [&](const Join& one, const std::string& by_socket) {
    const auto& said = by_socket.empty() ? one.address : by_socket;
    return printable(one.host) + " (" + (said.empty() ? terms.where : said) + ")";
  };
  const auto refused = [&](const NodeTable::Node& holder, const std::string& what,
                           std::string_view flag) {
    return Refused{Refusal::duplicate,
                   what + " is taken by node " + in_quotes(holder.join.node.name) + " on " +
                       where(holder.join, holder.address) + "; this agent is on " +
                       where(join, address) + ": give each machine its own " + std::string{flag},
                   {},
                   true};
  };
  const auto rank_taken = [&](const NodeTable::Node& holder) {
    return Duplicate{refused(holder, "node rank " + std::to_string(join.wanted->value()),
                             "--node_rank (--machine_rank)")};
  };
  const auto name_taken = [&](const NodeTable::Node& holder) {
    return Duplicate{refused(holder, "the node name " + in_quotes(join.node.name), "--node_name"),
                     !join.host.empty() && join.node.name.starts_with(join.host)};
  };
  const bool is_firm = ranks_are_firm(terms, join);
  const auto same_name = nodes.by_name(join.node.name);
  if (same_name) {
    const auto& node = nodes[*same_name];
    if (node.join.node.incarnation != join.node.incarnation && speaks(node)) {
      const bool by_rank = is_firm && join.wanted && node.join.wanted == join.wanted;
      auto found = by_rank ? rank_taken(node) : name_taken(node);
      const bool is_here = node.address == address || node.address.empty();
      if (is_here && node.join.host == join.host) found.predecessor = same_name;
      return found;
    }
  }
  if (!join.wanted || !is_firm) return std::nullopt;
  const auto same_rank = nodes.by_wanted(*join.wanted);
  if (!same_rank) return std::nullopt;
  const auto& node = nodes[*same_rank];
  if (node.join.node.name == join.node.name || !speaks(node)) return std::nullopt;
  return rank_taken(node);
}

std::string too_few_text(std::size_t present, std::uint32_t needed, bool has_round, Millis limit) {
  const auto within = (has_round ? " rejoined within " : " joined within ") + describe(limit);
  if (present < needed)
    return "only " + std::to_string(present) + " of " + plural(needed, "node") + within;
  return "too few nodes of the last round are here to go on, as those that are missing could do so "
         "without them; no more" +
         within;
}

}  // namespace acc::rendezvous
