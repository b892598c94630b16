#pragma once

#include "rendezvous/coordinator_client.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "times.hpp"

/// Plays the network, the coordinator and the supervisor around one member, with a clock moved by
/// hand.
namespace acc::rendezvous {

inline HostPort seed_endpoint() { return {"a", 29'501}; }
inline HostPort listener_of(char node) { return {std::string(1, node), 29'600}; }

inline CoordinatorClientOptions client_options(const std::string& name = "c") {
  CoordinatorClientOptions options;
  options.self.job = "job";
  options.self.node = {name, 1};
  options.self.host = name;
  options.self.slots = 2;
  options.self.listens = 29'600;
  options.seed_endpoint = seed_endpoint();
  return options;
}

class ClientDesk {
 public:
  explicit ClientDesk(CoordinatorClientOptions options = client_options())
      : client{std::move(options), now} {}

  void take(ClientActions actions) {
    for (auto& action : actions) log.push_back(std::move(action));
  }
  void forget() { log.clear(); }
  template <class Kind>
  [[nodiscard]] std::vector<Kind> all() const {
    std::vector<Kind> found;
    for (const auto& action : log) {
      if (const auto* one = std::get_if<Kind>(&action)) found.push_back(*one);
    }
    return found;
  }
  /// Frames that it sent.
  template <class Kind>
  [[nodiscard]] std::vector<Kind> sent() const {
    std::vector<Kind> found;
    for (const auto& send : all<Send>()) {
      if (const auto* one = std::get_if<Kind>(&send.frame.message)) found.push_back(*one);
    }
    return found;
  }
  template <class Kind>
  [[nodiscard]] Kind only() const {
    const auto found = all<Kind>();
    REQUIRE(found.size() == 1);
    return found[0];
  }
  template <class Kind>
  [[nodiscard]] Kind last_sent() const {
    const auto found = sent<Kind>();
    REQUIRE_FALSE(found.empty());
    return found.back();
  }
  [[nodiscard]] std::string told() const {
    std::string text;
    for (const auto& one : all<Tell>()) text += one.text + "\n";
    return text;
  }

  // ---- what comes ----
  void begins() { take(client.begin(now)); }
  void link_up() { take(client.link_up("here", now)); }
  void fails(const std::string& what = "connection refused") {
    take(client.dial_failed({false, true, what}, now));
  }
  void hears(Epoch of, Message message) { take(client.received({of, std::move(message)}, now)); }
  void hears(Message message) { hears(epoch, std::move(message)); }
  void welcome() { hears(Welcome{"a", 77, kSecond * 5, kSecond * 10}); }
  void joins() {
    begins();
    link_up();
    welcome();
  }
  /// As node rank 2 of five whose coordinator sits on node rank 0.
  void is_assigned(std::uint32_t node_rank = 2, std::uint32_t nodes = 5, bool standbys = true) {
    Assigned assigned;
    assigned.stamp = 78;
    assigned.node_rank = NodeRank{node_rank};
    assigned.nodes = nodes;
    assigned.first_rank = Rank{node_rank * 2};
    assigned.world_size = WorldSize{nodes * 2};
    for (std::uint32_t i = 1; standbys && i < nodes && i <= kMaxStandbys; ++i) {
      const char name = static_cast<char>('a' + i);
      assigned.standbys.push_back({std::string(1, name), NodeRank{i}, listener_of(name)});
    }
    hears(assigned);
    if (node_rank == 0) take(client.port_reserved(40'000, now));
  }
  void starts(Millis granted = kSecond * 10) {
    Start start;
    start.master = {"a", 40'000};
    start.heartbeat = last_sent<Ready>().heartbeat;
    start.granted = granted;
    hears(start);
  }
  void runs(std::uint32_t node_rank = 2, std::uint32_t nodes = 5) {
    joins();
    is_assigned(node_rank, nodes);
    starts();
    REQUIRE(client.state() == NodeState::running);
    forget();
  }
  void loses_link(bool is_closed_by_peer = false) {
    take(client.link_lost({"connection reset", false, is_closed_by_peer}, now));
  }
  /// Answers each heartbeat while the time passes, as a coordinator in office does.
  void pass(Millis time, bool answered = false) {
    constexpr Millis kStep{50};
    for (const Instant end = now + time; now < end;) {
      now += std::min(kStep, std::chrono::duration_cast<Millis>(end - now));
      const auto before = sent<Heartbeat>().size();
      take(client.tick(now));
      const auto heartbeats = sent<Heartbeat>();
      if (answered && heartbeats.size() > before) acks(heartbeats.back().heartbeat);
    }
  }
  /// As pass(), and nobody ever takes a call.
  void pass_in_vain(Millis time) {
    for (const Instant end = now + time; now < end;) {
      pass(Millis{50});
      for (int i = 0; i < 20 && client.phase() == LinkPhase::dialing; ++i) {
        fails();
        take(client.tick(now));
      }
    }
  }
  void acks(std::uint32_t heartbeat, Millis granted = kSecond * 10) {
    hears(HeartbeatAck{heartbeat, 80 + heartbeat, granted, 0});
  }

  Instant now{std::chrono::hours{3}};
  Epoch epoch{{1, 0}, Round{0}};
  CoordinatorClient client;
  std::vector<ClientAction> log;
};

/// An agent of the same round that lost the same coordinator.
inline Join vote_of(std::uint32_t node_rank, std::uint32_t nodes = 5, std::uint64_t round = 0) {
  Join join;
  join.job = "job";
  join.node = {std::string(1, static_cast<char>('a' + node_rank)), 1};
  join.epoch = {{1, 0}, Round{round}};
  join.vote = {1, 0};
  join.node_rank = NodeRank{node_rank};
  join.nodes = nodes;
  join.slots = 2;
  join.state = NodeState::running;
  return join;
}

}  // namespace acc::rendezvous
