#pragma once

#include "rendezvous/messages.hpp"

#include <bitset>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace acc::rendezvous {

/// Which standby an agent votes for since its coordinator was lost (pure).
///
/// All agents call the first standby (by ascending rank). Votes gather at one standby although no
/// two agents see the same: a standby that can't be reached or elected is passed over, the lost
/// coordinator isn't called as a standby, and a standby that votes for another one redirects its
/// callers there. The remaining case, a standby that can be reached but gets no majority, is solved
/// by time: it is divided into election windows of 1.5 × heartbeat timeout, and in every second one
/// the calls begin at another standby.
class StandbyChoice {
 public:
  StandbyChoice(std::string own_name, Millis heartbeat_timeout, Instant now);
  void rename(std::string own_name) { own_name_ = std::move(own_name); }
  void set_heartbeat_timeout(Millis timeout) { window_ = timeout * 3 / 2; }
  void set(std::vector<Standby> standbys) { standbys_ = std::move(standbys); }

  [[nodiscard]] const std::vector<Standby>& all() const { return standbys_; }
  /// This node's own place among them.
  [[nodiscard]] std::optional<std::size_t> own() const;
  [[nodiscard]] bool is_own(const HostPort& at) const;
  /// This node and the one at `other` are standbys, and this one is called before that one.
  [[nodiscard]] bool is_before(const HostPort& other, const std::string& name) const;

  /// There is no coordinator from now on. Reachability learnt during an earlier loss is discarded.
  void lost(Instant now);
  [[nodiscard]] Instant lost_at() const { return lost_at_; }
  [[nodiscard]] Millis lost_for(Instant now) const;
  /// The end of the running election window.
  [[nodiscard]] Instant window_end(Instant now) const;
  /// It can't be reached, or can't be elected, in this election window.
  void pass_over(const HostPort& at, Instant now);
  /// This node waits for votes until the election window ends; not again before a new loss.
  void stand(Instant now) { stands_until_ = window_end(now); }
  void stand_no_more() { stands_until_ = {}; }

  /// Whom to call for votes, in this order; nobody while this node waits for votes itself.
  /// @param lost  the coordinator that was lost
  [[nodiscard]] std::vector<HostPort> to_call(const HostPort& lost, Instant now) const;
  /// All but this node.
  [[nodiscard]] std::vector<HostPort> others() const;

 private:
  [[nodiscard]] std::size_t window(Instant now) const;
  [[nodiscard]] std::size_t first_called(Instant now) const;
  [[nodiscard]] std::size_t preferred(const HostPort& lost, Instant now) const;

  std::string own_name_;
  Millis window_;
  std::vector<Standby> standbys_;
  Instant lost_at_;
  std::bitset<kMaxStandbys> passed_;  ///< in window passed_in_
  std::size_t passed_in_ = 0;
  Instant stands_until_{};  ///< this node waits for votes, in its own window or not
};

}  // namespace acc::rendezvous
