#pragma once

#include "rendezvous/membership.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "times.hpp"

/// Plays the agents of a coordinator whose clock is moved by hand.
namespace acc::rendezvous {

/// With the default timings: from the end of a lease until its workers count as dead.
inline constexpr Millis kSlack{1'300};

inline Join join_of(const std::string& name, std::uint32_t nodes_min, std::uint32_t nodes_max) {
  Join join;
  join.job = "job";
  join.node = {name, 1};
  join.host = name;
  join.address = "address-of-" + name;
  join.listens = 29'600;
  join.slots = 2;
  join.nodes_min = nodes_min;
  join.nodes_max = nodes_max;
  return join;
}

inline MembershipOptions options_for(std::uint32_t nodes_min, std::uint32_t nodes_max,
                                     std::uint32_t max_restarts = 3) {
  MembershipOptions options;
  options.job = "job";
  options.name = "a";
  options.where = "a:29501";
  options.nodes_min = nodes_min;
  options.nodes_max = nodes_max;
  options.policy = JobPolicy{};
  options.policy->restart.max_restarts = max_restarts;
  return options;
}

inline Failure exited(std::int32_t code, std::uint32_t rank = 0) {
  Failure failure;
  failure.code = code;
  failure.rank = Rank{rank};
  failure.cause = "exited with " + std::to_string(code);
  return failure;
}

/// The agents heartbeat by themselves, with the newest stamp that they got. All else the test says
/// for them.
class Desk {
 public:
  explicit Desk(MembershipOptions options)
      : options_{std::move(options)}, membership_{options_, now} {}
  Desk(MembershipOptions options, const ElectionResult& result)
      : options_{std::move(options)}, membership_{options_, now} {
    for (const auto& vote : result.votes) {
      if (vote.peer == PeerId{0}) continue;
      auto& agent = agents_[vote.peer];
      agent.join = vote.join;
      agent.state = vote.join.state;
      agent.epoch = vote.join.epoch;
      peers_ = std::max(peers_, vote.peer.value());
    }
    MembershipActions actions;
    membership_ = Membership{options_, result, now, actions};
    take(std::move(actions));
  }

  // ---- what the agents do ----
  PeerId comes(const Join& join) {
    const PeerId peer{++peers_};
    agents_[peer].join = join;
    take(membership_.joined(peer, join, "socket-of-" + join.node.name, now));
    return peer;
  }
  PeerId comes(const std::string& name) {
    return comes(join_of(name, options_.nodes_min, options_.nodes_max));
  }
  /// The same agent by another connection.
  PeerId returns(PeerId old) {
    agents_.at(old).is_connected = false;
    const PeerId peer{++peers_};
    agents_[peer] = agents_.at(old);
    auto& agent = agents_[peer];
    agent.is_connected = true;
    agent.is_silent = false;
    agent.got.clear();
    agent.join = what_it_knows(agent);
    take(membership_.joined(peer, agent.join, "socket", now));
    return peer;
  }
  /// Another agent on the same node, which knows nothing.
  PeerId restarts(PeerId old) {
    Join join = agents_.at(old).join;
    agents_.at(old).is_connected = false;
    ++join.node.incarnation;
    join.state = NodeState::nothing;
    join.epoch = {};
    join.vote = {};
    return comes(join);
  }
  void says(PeerId peer, Message message) {
    says_of(peer, membership_.epoch(), std::move(message));
  }
  void says_of(PeerId peer, Epoch epoch, Message message) {
    if (std::holds_alternative<Stopped>(message)) agents_.at(peer).state = NodeState::stopped;
    if (std::holds_alternative<Completed>(message)) agents_.at(peer).state = NodeState::completed;
    take(membership_.said(peer, {epoch, std::move(message)}, now));
  }
  void breaks(PeerId peer, const std::string& why = "connection reset") { loses(peer, {why}); }
  void loses(PeerId peer, const LinkLoss& loss) {
    agents_.at(peer).is_connected = false;
    take(membership_.left(peer, loss, now));
  }
  /// Its connection stands, but nothing goes over it.
  void falls_silent(PeerId peer) { agents_.at(peer).is_silent = true; }
  void speaks_again(PeerId peer) { agents_.at(peer).is_silent = false; }
  /// Each heartbeat follows at once on the last answer, and never echoes a newer one than that.
  void freeze_echo(PeerId peer) { agents_.at(peer).echo_is_frozen = true; }
  void is_ready(PeerId peer, std::uint16_t port = 0) {
    auto& agent = agents_.at(peer);
    says(peer, Ready{++agent.heartbeat, agent.stamp, port});
  }
  /// Everyone who has been given a place.
  void all_ready() {
    for (const PeerId peer : all([](const Agent& a) { return a.state == NodeState::assigned; }))
      is_ready(peer, 40'000);
  }
  void all_stopped() {
    for (const PeerId peer : all([](const Agent& a) { return a.state == NodeState::running; }))
      says(peer, Stopped{});
  }

  // ---- the time ----
  void pass(Millis time) {
    constexpr Millis kStep{50};
    for (const Instant end = now + time; now < end;) {
      now += std::min(kStep, std::chrono::duration_cast<Millis>(end - now));
      if (now >= next_heartbeat_) beat_all();
      take(membership_.tick(now));
    }
  }
  void beat_all() {
    next_heartbeat_ = now + options_.timings.heartbeat_interval();
    for (const PeerId peer : all([](const Agent&) { return true; })) heartbeats(peer);
  }
  void heartbeats(PeerId peer) {
    auto& agent = agents_.at(peer);
    const Epoch epoch{membership_.epoch().term, agent.epoch.round};
    says_of(peer, epoch, Heartbeat{++agent.heartbeat, agent.stamp});
  }
  /// This process does nothing for so long: no tick, nothing read.
  void sleep(Millis time) {
    now += time;
    next_heartbeat_ = now;
    take(membership_.tick(now));
  }
  // ---- what etcd does, if options.external_leader ----
  void leads_until(Instant end) { membership_.lead_until(end); }
  void inherits(const RoundRecord& record) { take(membership_.recover(record, now)); }
  void has_written(const Epoch& epoch) { take(membership_.committed(epoch, now)); }

  void moves_to(const HostPort& to) { take(membership_.moved(to, now)); }

  /// Carries out what the membership wants.
  void take(MembershipActions actions) {
    for (auto& action : actions) {
      if (auto* one = std::get_if<SendTo>(&action)) deliver(one->peer, one->frame);
      if (auto* many = std::get_if<SendAll>(&action)) {
        for (const PeerId peer : many->peers) deliver(peer, many->frame);
      }
      if (auto* closed = std::get_if<ClosePeer>(&action)) {
        agents_.at(closed->peer).was_closed = true;
        agents_.at(closed->peer).is_connected = false;
      }
      if (auto* down = std::get_if<StepDown>(&action)) stepped_down = down->why;
      if (auto* line = std::get_if<TellHere>(&action)) told += line->text + "\n";
      if (auto* end = std::get_if<JobOver>(&action)) over = end->close;
      if (auto* commit = std::get_if<CommitRound>(&action)) commits.push_back(commit->record);
      stores_reset += std::holds_alternative<ResetStore>(action) ? 1 : 0;
    }
  }

  // ---- what came of it ----
  [[nodiscard]] Membership& membership() { return membership_; }
  [[nodiscard]] Instant next_deadline() const { return membership_.next_deadline(); }
  [[nodiscard]] MembershipPhase phase() const { return membership_.phase(); }
  [[nodiscard]] std::uint64_t round() const { return membership_.epoch().round.value(); }
  template <class Kind>
  [[nodiscard]] std::size_t count(PeerId peer) const {
    const auto& got = agents_.at(peer).got;
    return static_cast<std::size_t>(std::ranges::count_if(
        got, [](const Frame& frame) { return std::holds_alternative<Kind>(frame.message); }));
  }
  /// The newest of its kind; there must be one.
  template <class Kind>
  [[nodiscard]] Kind last(PeerId peer) const {
    const auto& got = agents_.at(peer).got;
    const auto found = std::find_if(got.rbegin(), got.rend(), [](const Frame& frame) {
      return std::holds_alternative<Kind>(frame.message);
    });
    REQUIRE(found != got.rend());
    return std::get<Kind>(found->message);
  }
  [[nodiscard]] std::size_t messages(PeerId peer) const { return agents_.at(peer).got.size(); }
  [[nodiscard]] bool was_closed(PeerId peer) const { return agents_.at(peer).was_closed; }
  [[nodiscard]] NodeState state(PeerId peer) const { return agents_.at(peer).state; }
  [[nodiscard]] Join knows(PeerId peer) const { return what_it_knows(agents_.at(peer)); }
  /// Node rank in the newest assignment.
  [[nodiscard]] std::uint32_t rank(PeerId peer) const {
    return last<Assigned>(peer).node_rank.value();
  }
  void forget_messages() {
    for (auto& [peer, agent] : agents_) agent.got.clear();
  }

  Instant now{std::chrono::hours{7}};
  std::optional<Close> over;
  std::string stepped_down;  ///< why; empty: it has not
  std::string told;          ///< all lines
  std::size_t stores_reset = 0;
  std::vector<RoundRecord> commits;

 private:
  struct Agent {
    Join join;
    std::vector<Frame> got;
    Assigned place;
    std::uint64_t stamp = 0;
    std::uint32_t heartbeat = 0;
    NodeState state = NodeState::nothing;
    Epoch epoch;
    Term term;
    bool is_connected = true;
    bool is_silent = false;
    bool echo_is_frozen = false;
    bool was_closed = false;
  };

  template <class Filter>
  [[nodiscard]] std::vector<PeerId> all(Filter filter) const {
    std::vector<PeerId> found;
    for (const auto& [peer, agent] : agents_) {
      if (agent.is_connected && !agent.is_silent && filter(agent)) found.push_back(peer);
    }
    return found;
  }

  [[nodiscard]] static Join what_it_knows(const Agent& agent) {
    Join join = agent.join;
    join.state = agent.state;
    join.epoch = agent.epoch;
    join.node_rank = agent.place.node_rank;
    join.first_rank = agent.place.first_rank;
    join.nodes = agent.place.nodes;
    join.established = agent.place.established;
    join.ledger = agent.place.ledger;
    join.vote = agent.term;
    return join;
  }

  void deliver(PeerId peer, const Frame& frame) {
    auto& agent = agents_.at(peer);
    if (!agent.is_connected || agent.is_silent) return;
    agent.got.push_back(frame);
    std::uint64_t stamp = 0;
    if (auto* welcome = std::get_if<Welcome>(&frame.message)) {
      stamp = welcome->stamp;
      agent.term = frame.epoch.term;
    }
    if (auto* ack = std::get_if<HeartbeatAck>(&frame.message)) stamp = ack->stamp;
    if (auto* place = std::get_if<Assigned>(&frame.message)) {
      stamp = place->stamp;
      if (!place->spare) {
        agent.place = *place;
        agent.epoch = frame.epoch;
        agent.state = NodeState::assigned;
      }
    }
    if (std::holds_alternative<Start>(frame.message)) {
      agent.state = NodeState::running;
      agent.place.established = {};
    }
    if (!agent.echo_is_frozen) agent.stamp = std::max(agent.stamp, stamp);
  }

  MembershipOptions options_;
  Membership membership_;
  std::map<PeerId, Agent> agents_;
  std::uint64_t peers_ = 0;
  Instant next_heartbeat_{};
};

/// A job whose first round runs on nodes a, b, c …
struct RunningJob : Desk {
  explicit RunningJob(std::uint32_t nodes, std::uint32_t max_restarts = 3)
      : RunningJob{options_for(nodes, nodes, max_restarts), nodes} {}
  RunningJob(MembershipOptions options, std::uint32_t nodes) : Desk{std::move(options)} {
    for (std::uint32_t i = 0; i < nodes; ++i)
      peers.push_back(comes(std::string(1, static_cast<char>('a' + i))));
    for (int i = 0; i < 40 && phase() == MembershipPhase::gathering; ++i) pass(kSecond);
    REQUIRE(phase() == MembershipPhase::assigning);
    all_ready();
    REQUIRE(phase() == MembershipPhase::running);
    pass(kSecond);
    forget_messages();
  }
  /// The round that follows is assigned; its members answer.
  void next_round_starts() {
    REQUIRE(phase() == MembershipPhase::assigning);
    all_ready();
    REQUIRE(phase() == MembershipPhase::running);
  }
  std::vector<PeerId> peers;
};

/// Why the last frame to a stranger was a refusal.
inline std::string refusal(const Desk& desk, PeerId peer) { return desk.last<Refused>(peer).what; }

}  // namespace acc::rendezvous
