#pragma once

#include "common/duration.hpp"
#include "common/error.hpp"
#include "rendezvous/etcd_http.hpp"
#include "rendezvous/etcd_records.hpp"

#include <boost/asio/any_io_executor.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace acc::rendezvous {

struct LeadershipPlan {
  std::vector<EtcdEndpoint> endpoints;  ///< at least one
  std::string prefix = "/acc";          ///< of all keys
  std::string job;
  NodeId me;
  HostPort at;         ///< where agents reach the coordinator on this node
  Millis ttl{10'000};  ///< a leader that can't renew for so long steps down; at least 100 ms
};

/// How an attempt to lead ended.
struct Campaign {
  bool won = false;
  Leader leader;                        ///< oneself, or who was there already
  std::optional<CommittedTable> table;  ///< won: what the last leader of the job wrote
};

/// Told on the loop, never from within a call of ours. Each may be empty.
struct LeadershipEvents {
  /// Who leads now, oneself included; nobody: the key is free, a campaign may win.
  std::function<void(const std::optional<Leader>&)> leader_changed;
  /// This node leads no more: grant nothing from now on. Not told after resign and end_job.
  std::function<void(const Error&)> lost;
  /// etcd can't be reached; tried on. Once until it answers again.
  std::function<void(const Error&)> trouble;
};

/// Which node coordinates a job, decided by etcd: whoever holds the key PREFIX/JOB/leader, which
/// ends with its lease. The term grows with each leader (PREFIX/JOB/term), and what a leader
/// commits (PREFIX/JOB/table) is refused once another leads.
///
/// A leader's time is counted from the sending of its last renewal, so it has stepped down before
/// etcd frees the key. Takeover: ttl (at least 2 s, etcd's smallest lease) and up to 1 s.
/// One thread. Callbacks: docs of each; none after stop() or the end of this object.
class EtcdLeadership {
 public:
  EtcdLeadership(boost::asio::any_io_executor executor, LeadershipPlan plan,
                 LeadershipEvents events);
  ~EtcdLeadership();
  EtcdLeadership(const EtcdLeadership&) = delete;
  EtcdLeadership& operator=(const EtcdLeadership&) = delete;

  template <class T>
  using Done = std::function<void(Result<T>)>;

  /// From now on leader_changed tells who leads, at first what is there already. Every agent that
  /// has no coordinator yet may do this.
  void start();

  /// Tries once to lead; someone else leading is no error. The term will be above all former ones
  /// and at least `lowest_term`, for a job that is older than the contents of etcd.
  void campaign(std::uint32_t lowest_term, Millis limit, Done<Campaign> done);

  /// Ask right before each act that only a leader may do: after a pause of the whole process the
  /// event `lost` may still be on its way.
  [[nodiscard]] bool leads(Instant now) const;
  /// By boot_now(): when the newest lease was asked for, and until when it makes a leader. Nothing
  /// that a leader grants may outlive that, unless its successor waits for it.
  struct TimeInOffice {
    Instant asked;
    Instant until;
  };
  [[nodiscard]] std::optional<TimeInOffice> tenure() const;

  /// Writes the table if this node still leads; in order. An Error with Errc::not_permitted: it
  /// doesn't. Another error: nobody knows whether it was written; writing again is harmless.
  /// @param bytes  at most kMaxEtcdTable.
  void put_table(Epoch epoch, std::string bytes, Done<void> done);
  void read_table(Done<std::optional<CommittedTable>> done);

  /// Steps down at once and frees the key, so that another needn't wait for the lease.
  void resign(Done<void> done);
  /// As resign, and removes all that the job has in etcd, if this node still leads.
  void end_job(Done<void> done);

  /// Stops all without a word to etcd, as a crash would.
  void stop();

  struct Impl;

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace acc::rendezvous
