#pragma once

#include "rendezvous/majority.hpp"
#include "rendezvous/timings.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

/// Whether a coordinator may act (pure): form a round, grant leases, permit writes. It may as long
/// as no other coordinator of the job can exist. QuorumAuthority proves that by the echoes of the
/// round's members, ExternalAuthority by a lease in etcd.
namespace acc::rendezvous {

class Authority {
 public:
  Authority() = default;
  Authority(const Authority&) = delete;
  Authority& operator=(const Authority&) = delete;
  virtual ~Authority() = default;

  /// True if no other coordinator of an established round, one whose members have all answered
  /// (docs/decisions/0010), can exist at `now`.
  [[nodiscard]] virtual bool may_act(Instant now) const = 0;
  /// True if it may take part in the protocol at all. A coordinator by quorum must, to hear its
  /// members; one by etcd is silent while it may not act: a successor may already be acting.
  [[nodiscard]] virtual bool may_speak(Instant now) const = 0;
  /// The longest lease that workers may get at `now`; 0: none.
  [[nodiscard]] virtual Millis grant(Instant now) const = 0;
  /// The latest time of this clock at which provably no other coordinator existed.
  [[nodiscard]] virtual Instant proved_at() = 0;
  /// True if a round may follow that keeps `kept` of the `nodes` members of an earlier one.
  [[nodiscard]] virtual bool may_continue_with(std::size_t kept, std::size_t nodes) const = 0;
  /// True if the ends of all leases granted by earlier coordinators are known.
  [[nodiscard]] virtual bool knows_older_leases() const = 0;
  /// True if every member of the newest round has seen what was written after `since`.
  [[nodiscard]] virtual bool is_followed_by_all(Instant since) const = 0;
  /// Why this coordinator must step down, as a sentence; nothing: it need not. `since`: the start
  /// of its phase; from then on its members have the time of a lease to answer.
  [[nodiscard]] virtual std::optional<std::string> loss(Instant now, Instant since) const = 0;

  // ---- events; each kind ignores those of the other ----
  /// Our clock may have stopped: nothing learnt before `now` counts.
  void doubt(Instant now) { doubted_at_ = now; }
  /// Elected by the members of a round of `nodes` nodes.
  virtual void elected(std::size_t /*nodes*/, EstablishedMajority /*before*/, Instant /*now*/) {}
  /// This coordinator assigned a round of `nodes` nodes.
  virtual void assigned(std::size_t /*nodes*/) {}
  /// The member with this node rank has seen what was written at `stamp`, so it followed this
  /// coordinator then. The arrival time of its answer proves nothing: the answer may have been in
  /// the network while the member left. @return whether this confirms an election
  virtual bool echoed(std::size_t /*node_rank*/, Instant /*stamp*/) { return false; }
  /// etcd's lease lasts until `end`; it was requested at `asked`.
  virtual void extended(Instant /*end*/, Instant /*asked*/) {}
  /// Drops results computed from older echoes.
  virtual void refresh() {}

 protected:
  std::optional<Instant> doubted_at_;
};

/// Based on the members of the newest round: while a quorum of them follows this coordinator, the
/// rest is too small to elect another one.
class QuorumAuthority final : public Authority {
 public:
  explicit QuorumAuthority(Timings timings) : timings_{timings} {}

  [[nodiscard]] bool may_act(Instant now) const override;
  [[nodiscard]] bool may_speak(Instant) const override { return true; }
  [[nodiscard]] Millis grant(Instant now) const override;
  [[nodiscard]] Instant proved_at() override;
  [[nodiscard]] bool may_continue_with(std::size_t kept, std::size_t nodes) const override;
  [[nodiscard]] bool knows_older_leases() const override { return is_confirmed_; }
  [[nodiscard]] bool is_followed_by_all(Instant since) const override;
  [[nodiscard]] std::optional<std::string> loss(Instant now, Instant since) const override;

  void elected(std::size_t nodes, EstablishedMajority before, Instant now) override;
  void assigned(std::size_t nodes) override;
  bool echoed(std::size_t node_rank, Instant stamp) override;
  void refresh() override { quorum_cache_.reset(); }

 private:
  [[nodiscard]] Instant nth_contact(std::uint32_t n) const;
  [[nodiscard]] Instant quorum_contact() const;
  [[nodiscard]] bool have_majorities_answered() const;

  Timings timings_;
  std::vector<Instant> contacts_;  ///< by node rank: the newest stamp that the member echoed
  Instant elected_at_{};
  EstablishedMajority before_;  ///< of that election
  /// elected, and a majority has answered: only then no other coordinator can exist
  bool is_confirmed_ = true;
  mutable std::optional<Instant> quorum_cache_;
};

/// Based on etcd, which limits the time in which no other node can be elected. No votes, no quorum.
class ExternalAuthority final : public Authority {
 public:
  explicit ExternalAuthority(Timings timings) : timings_{timings} {}

  [[nodiscard]] bool may_act(Instant now) const override;
  [[nodiscard]] bool may_speak(Instant now) const override { return may_act(now); }
  [[nodiscard]] Millis grant(Instant now) const override;
  [[nodiscard]] Instant proved_at() override { return asked_; }
  [[nodiscard]] bool may_continue_with(std::size_t, std::size_t) const override { return true; }
  [[nodiscard]] bool knows_older_leases() const override { return true; }
  [[nodiscard]] bool is_followed_by_all(Instant) const override { return true; }
  [[nodiscard]] std::optional<std::string> loss(Instant, Instant) const override { return {}; }

  void extended(Instant end, Instant asked) override;

 private:
  Timings timings_;
  Instant end_ = Instant::min();
  Instant asked_ = Instant::min();
};

}  // namespace acc::rendezvous
