#pragma once

#include "rendezvous/coordinator_client.hpp"
#include "tests/simulation/network.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

/// Checks DESIGN's promises against the events, in true time. Every breach is a Violation.
namespace acc::simulation {

/// Each Membership object of a seed has a unique number.
using MembershipId = std::uint32_t;

class Checker {
 public:
  explicit Checker(std::uint32_t max_restarts) : max_restarts_{max_restarts} {}

  // ---- events of a coordinator ----
  /// The coordinator sends a Start of that epoch.
  void start_sent(MembershipId membership, const rendezvous::Epoch& epoch, bool is_successor);
  /// etcd names a node; `knows_job`: since the start of its agent it was part of the job.
  void elected_by_etcd(bool knows_job) { is_forgotten_ = is_forgotten_ && knows_job; }
  /// The job is over, and etcd has nothing of it any more.
  void forgotten_by_etcd() { is_forgotten_ = true; }
  void stop_sent(const rendezvous::Epoch& epoch, rendezvous::Stop::Why why);
  /// The round was asked to be followed by another one, whatever ends it.
  void restart_promised(const rendezvous::Epoch& epoch);
  /// A coordinator started without agents of the job of which etcd held a round.
  void begins_anew();
  void closed(MembershipId membership, const rendezvous::Close& close);

  // ---- events of a node ----
  /// All workers of a node start.
  void started(const std::string& node, const rendezvous::RoundPlace& place, std::uint32_t slots);
  void worker_ended(const rendezvous::Epoch& epoch);
  /// That many workers can't run an instruction until they resume: the machine sleeps, or is
  /// paused.
  void fell_asleep(const rendezvous::Epoch& epoch, std::size_t workers);
  void woke_up(const std::string& node, const rendezvous::Epoch& epoch, std::size_t workers);
  /// A worker makes a checkpoint valid.
  void wrote(const std::string& node, const rendezvous::Epoch& epoch);

  // ---- for the summary ----
  [[nodiscard]] std::uint64_t rounds() const { return rounds_; }
  [[nodiscard]] std::uint64_t closes() const { return outcomes_.size(); }
  [[nodiscard]] std::size_t living() const { return living_in_all_; }
  [[nodiscard]] bool any_success() const { return any_success_; }

 private:
  struct Part {
    std::string node;
    NodeRank rank{0};
    std::uint32_t slots = 0;
  };
  /// A round as seen by its workers.
  struct Table {
    MembershipId membership = 0;
    std::uint32_t nodes = 0;
    WorldSize world{1};
    rendezvous::HostPort master;
    RestartLedger ledger;
    std::map<std::uint32_t, Part> parts;  ///< by first rank
    std::set<std::string> names;
    std::uint32_t living = 0;
  };

  void check_no_other_lives(const std::string& node, const rendezvous::Epoch& epoch,
                            const Table& table) const;
  static void check_table(const Table& table, const rendezvous::RoundPlace& place,
                          const std::string& node);
  static void check_ranks(const Table& table, std::uint32_t first, const Part& part);
  static void check_bijection(const Table& table);
  void count_round(const rendezvous::Epoch& epoch);

  std::uint32_t max_restarts_;
  std::map<rendezvous::Epoch, Table> tables_;
  std::map<MembershipId, rendezvous::Close> outcomes_;
  std::set<MembershipId> lives_;             ///< coordinators that began without history
  std::set<Round> counted_;                  ///< rounds of this job in which a worker lived
  std::set<Round> membership_;               ///< rounds that were ended because of a newcomer
  std::optional<rendezvous::Epoch> newest_;  ///< of the worker that started last
  std::size_t living_in_all_ = 0;
  std::uint64_t rounds_ = 0;
  bool any_success_ = false;
  bool is_forgotten_ =
      false;  ///< by etcd, and no node without knowledge of the job has begun it anew
};

[[nodiscard]] std::string show(const rendezvous::Epoch& epoch);

}  // namespace acc::simulation
