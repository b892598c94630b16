#include "tests/simulation/checker.hpp"

#include "tests/simulation/violation.hpp"

#include <iterator>

namespace acc::simulation {

using rendezvous::Epoch;

namespace {

std::string ranks(std::uint32_t first, std::uint32_t count) {
  return std::to_string(first) + "-" + std::to_string(first + count - 1);
}

}  // namespace

std::string show(const Epoch& epoch) {
  return std::to_string(epoch.term.number) + "." + std::to_string(epoch.term.candidate) + "/" +
         std::to_string(epoch.round.value());
}

void Checker::start_sent(MembershipId membership, const Epoch& epoch, bool is_successor) {
  if (is_forgotten_)
    throw Violation{"outcome", "a node of the job starts " + show(epoch) + " after its end"};
  const auto found = tables_.find(epoch);
  if (found != tables_.end() && found->second.membership == membership) return;
  if (found != tables_.end() && living_in_all_ > 0) {
    throw Violation{"P1", "two coordinators start workers in " + show(epoch) + " while " +
                              std::to_string(living_in_all_) + " live"};
  }
  // A coordinator without history begins the job anew, with all its restarts; agents that knew more
  // are not in a majority.
  if (!is_successor && lives_.insert(membership).second) {
    counted_.clear();
    membership_.clear();
    if (living_in_all_ == 0) tables_.clear();
  }
  tables_[epoch] = Table{};
  tables_[epoch].membership = membership;
}

void Checker::begins_anew() {
  counted_.clear();
  membership_.clear();
}

void Checker::stop_sent(const Epoch& epoch, rendezvous::Stop::Why why) {
  if (why == rendezvous::Stop::Why::membership) membership_.insert(epoch.round);
}

void Checker::restart_promised(const Epoch& epoch) { membership_.insert(epoch.round); }

void Checker::closed(MembershipId membership, const rendezvous::Close& close) {
  any_success_ = any_success_ || close.outcome == Outcome::succeeded;
  const auto [found, is_new] = outcomes_.emplace(membership, close);
  const auto& first = found->second;
  if (!is_new && (first.outcome != close.outcome || first.exit_code != close.exit_code))
    throw Violation{"outcome", "one coordinator told two ends of the job"};
  if (close.ledger.budget_used > max_restarts_)
    throw Violation{"budget", std::to_string(close.ledger.budget_used) + " restarts booked of " +
                                  std::to_string(max_restarts_)};
}

// P1: a worker may only start beside workers of its own round.
void Checker::check_no_other_lives(const std::string& node, const Epoch& epoch,
                                   const Table& table) const {
  if (living_in_all_ == table.living) return;
  for (const auto& [other, theirs] : tables_) {
    if (other == epoch || theirs.living == 0) continue;
    // A coordinator was lost in the middle of Start; its successor continues with the same table.
    const bool same = other.round == epoch.round && theirs.world == table.world &&
                      theirs.nodes == table.nodes && theirs.ledger == table.ledger;
    if (same) continue;
    throw Violation{"P1", node + " starts workers of " + show(epoch) + " while " +
                              std::to_string(theirs.living) + " of " + show(other) + " live"};
  }
}

void Checker::check_table(const Table& table, const rendezvous::RoundPlace& place,
                          const std::string& node) {
  if (table.parts.empty()) return;
  if (table.world != place.world_size || table.nodes != place.nodes)
    throw Violation{"P3", node + " sees another world in " + show(place.epoch) + ": " +
                              std::to_string(place.world_size.value()) + " workers, others " +
                              std::to_string(table.world.value())};
  if (!(table.ledger == place.ledger))
    throw Violation{"budget", node + " was told restart " + std::to_string(place.ledger.restarts) +
                                  " in " + show(place.epoch) + ", others " +
                                  std::to_string(table.ledger.restarts)};
  if (!(table.master == place.master))
    throw Violation{"P3", node + " was told another master in " + show(place.epoch)};
}

void Checker::check_ranks(const Table& table, std::uint32_t first, const Part& part) {
  const auto complain = [&](std::uint32_t other_first, const Part& other) {
    throw Violation{"P3", part.node + " has ranks " + ranks(first, part.slots) + ", and " +
                              other.node + " has " + ranks(other_first, other.slots)};
  };
  const auto next = table.parts.lower_bound(first);
  if (next != table.parts.end() && next->first < first + part.slots)
    complain(next->first, next->second);
  if (next != table.parts.begin()) {
    const auto& [last_first, last] = *std::prev(next);
    if (last_first + last.slots > first) complain(last_first, last);
  }
  if (table.names.contains(part.node))
    throw Violation{"P3", part.node + " starts its workers twice in one round"};
}

// All nodes of the round have started: their ranks, in node order, leave no gap.
void Checker::check_bijection(const Table& table) {
  std::uint32_t next_node = 0;
  std::uint32_t next = 0;
  for (const auto& [first, part] : table.parts) {
    if (part.rank.value() != next_node++ || first != next)
      throw Violation{"P3", part.node + " (node rank " + std::to_string(part.rank.value()) +
                                ") begins at rank " + std::to_string(first) + ", expected " +
                                std::to_string(next)};
    next += part.slots;
  }
  if (next != table.world.value())
    throw Violation{"P3", "the nodes have " + std::to_string(next) + " workers, the world " +
                              std::to_string(table.world.value())};
}

void Checker::count_round(const Epoch& epoch) {
  if (!counted_.insert(epoch.round).second) return;
  ++rounds_;
  std::size_t paid = counted_.size() - 1;
  for (const auto round : membership_) paid -= counted_.contains(round) && paid > 0 ? 1 : 0;
  if (paid > max_restarts_)
    throw Violation{"budget", "round " + std::to_string(epoch.round.value()) + " is restart " +
                                  std::to_string(paid) + " of at most " +
                                  std::to_string(max_restarts_)};
}

void Checker::started(const std::string& node, const rendezvous::RoundPlace& place,
                      std::uint32_t slots) {
  const auto found = tables_.find(place.epoch);
  if (found == tables_.end())
    throw Violation{
        "P1", node + " starts workers of " + show(place.epoch) + ", which no coordinator started"};
  auto& table = found->second;
  check_table(table, place, node);
  if (table.parts.empty()) {
    table.nodes = place.nodes;
    table.world = place.world_size;
    table.master = place.master;
    table.ledger = place.ledger;
  }
  check_no_other_lives(node, place.epoch, table);
  const Part part{node, place.node_rank, slots};
  check_ranks(table, place.first_rank.value(), part);
  table.parts.emplace(place.first_rank.value(), part);
  table.names.insert(node);
  if (table.parts.size() == table.nodes) check_bijection(table);
  if (place.ledger.budget_used > max_restarts_)
    throw Violation{"budget", std::to_string(place.ledger.budget_used) + " restarts booked of " +
                                  std::to_string(max_restarts_)};
  count_round(place.epoch);
  table.living += slots;
  living_in_all_ += slots;
  newest_ = place.epoch;
}

void Checker::fell_asleep(const Epoch& epoch, std::size_t workers) {
  const auto found = tables_.find(epoch);
  if (found == tables_.end()) return;
  found->second.living -= static_cast<std::uint32_t>(workers);
  living_in_all_ -= workers;
}

void Checker::woke_up(const std::string& node, const Epoch& epoch, std::size_t workers) {
  const auto found = tables_.find(epoch);
  if (found == tables_.end() || workers == 0) return;
  check_no_other_lives(node, epoch, found->second);
  found->second.living += static_cast<std::uint32_t>(workers);
  living_in_all_ += workers;
}

void Checker::wrote(const std::string& node, const Epoch& epoch) {
  if (!newest_ || newest_->round == epoch.round) return;
  throw Violation{"P1", node + " makes a checkpoint of " + show(epoch) + " valid after " +
                            show(*newest_) + " has begun"};
}

void Checker::worker_ended(const Epoch& epoch) {
  const auto found = tables_.find(epoch);
  if (found == tables_.end()) return;
  --found->second.living;
  --living_in_all_;
}

}  // namespace acc::simulation
