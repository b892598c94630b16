#include "rendezvous/peer_text.hpp"
#include "rendezvous/rendezvous_client.hpp"

// Becoming the job's first coordinator, and the connections to it.
namespace acc::rendezvous {

namespace {

// Without TLS each peer is a process of this user, or may join any job.
bool proves(const Channel& channel, const std::string& job) {
  return !channel.is_tls() || channel.proof().job == job;
}

constexpr const char* kOtherKey = "its key is for another job";

}  // namespace

OwnListener::Options RendezvousClient::listener_options() const {
  OwnListener::Options listen;
  listen.seed = options_.client.seed_endpoint;
  listen.listen = options_.listen;
  listen.tls = options_.listen_tls;
  listen.is_insecure = options_.is_insecure;
  listen.admission = options_.admission;
  listen.heartbeat_timeout = options_.client.timings.heartbeat_timeout;
  return listen;
}

OwnListener::Events RendezvousClient::listener_events() {
  OwnListener::Events on;
  on.on_peer = [this](std::shared_ptr<Channel> channel, std::string_view first) {
    on_peer(std::move(channel), first);
  };
  on.tell = [this](std::string text, bool is_warning) { tell(std::move(text), is_warning); };
  return on;
}

void RendezvousClient::begin(std::function<void(const Error&)> cannot) {
  if (options_.etcd) return begin_with_etcd(std::move(cannot));
  if (options_.serve_seed == ServeSeed::never) return perform(client_.begin(time_of_event()));
  lookup_ = std::make_shared<Lookup>(io_);
  lookup_->start(
      listener_.seed_to_look_up(),
      [this, cannot = std::move(cannot)](const Lookup::Endpoints& found, const std::string&) {
        std::vector<std::string> addresses;
        for (const auto& one : found) addresses.push_back(host_port(one).host);
        if (const auto served = serve_seed(addresses); !served) return cannot(served.error());
        perform(client_.begin(time_of_event()));
      });
}

// ServeSeed::may: as torchrun, the node that has the endpoint's address and gets its port.
Result<void> RendezvousClient::serve_seed(const std::vector<std::string>& addresses) {
  if (options_.serve_seed == ServeSeed::may) {
    if (!listener_.serve_seed_if_here(addresses)) return {};
    client_.set_serves_seed();
  } else if (auto served = listener_.serve_seed(addresses); !served) {
    return served;
  }
  client_.set_listener(listener_.at()->port);
  become_first_coordinator();
  if (listener_.is_seed_elsewhere()) watch_for_rival();
  return {};
}

void RendezvousClient::watch_for_rival() {
  const auto& client = options_.client;
  const auto timeout = client.timings.heartbeat_timeout;
  seed_guard_->watch_for_rival({dial_options(client.seed_endpoint, timeout), client.self,
                                std::max<Millis>(timeout, Millis{1'000})});
}

void RendezvousClient::become_first_coordinator() {
  auto membership = options_.membership;
  const auto& seed = options_.client.seed_endpoint;
  if (membership.where.empty()) membership.where = describe(seed);
  client_.set_address_here(seed.host);
  seed_guard_ = std::make_unique<SeedGuard>(
      io_, membership.job, seed.port,
      SeedGuard::Hooks{[this] { return coordinator_ && coordinator_->membership().has_round(); },
                       [this](const std::string& why) {
                         if (coordinator_) perform(client_.refused_elsewhere(why));
                       }});
  const auto& times = membership.timings;
  const auto left_ago = seed_guard_->left_ago();
  membership.is_restarted_seed =
      left_ago && *left_ago < (times.lease + times.heartbeat_timeout) * 2;
  if (membership.is_restarted_seed) {
    tell("the last coordinator of this job ended " + acc::describe(*left_ago) +
             " ago without a word: no round begins before the leases that it gave are over",
         true);
  }
  coordinator_ = std::make_unique<Coordinator>(io_, std::move(membership), coordinator_hooks());
  seed_guard_->renew_file(options_.client.timings.heartbeat_timeout / 2);
}

void RendezvousClient::on_peer(std::shared_ptr<Channel> channel, std::string_view first_frame) {
  auto frame = decode_of_peer(first_frame);
  const auto turn_away = [&](const std::string& why) {
    tell("turned away a connection from " + describe(channel->peer()) + ": " + why, true);
    channel->close();
  };
  if (!frame) return turn_away(frame.error().what);
  if (const auto* moved = std::get_if<LeaderMoved>(&frame->message)) {
    if (!proves(*channel, moved->job)) return turn_away(kOtherKey);
    channel->close();
    if (moved->job != options_.membership.job) return;
    if (coordinator_) return coordinator_->moved(moved->to);
    // For example a spare at the seed endpoint that lost its coordinator: no other process notifies
    // it.
    if (frame->epoch.term >= client_.term())
      perform(client_.coordinator_is_at(moved->to, time_of_event()));
    return;
  }
  const auto* join = std::get_if<Join>(&frame->message);
  if (join == nullptr) return turn_away("it began with " + std::string{name_of(frame->message)});
  if (join->version_major == kVersionMajor && !proves(*channel, join->job))
    return turn_away(kOtherKey);
  if (join->node == options_.client.self.node) {  // the endpoint leads back here: a NAT, a service
    channel->close();
    if (seed_guard_) seed_guard_->end_rival_watch();
    return;
  }
  const PeerId peer{++last_peer_};
  auto link = link_over(std::move(channel));
  if (coordinator_) return coordinator_->admit(peer, std::move(link), *join);
  const std::string address = link->peer_address();
  Link::Handlers on;
  on.on_lost = [this, peer](const LinkLoss&) {
    votes_.erase(peer.value());
    perform(client_.vote_withdrawn(peer, time_of_event()));
  };
  votes_[peer.value()] = link;
  link->start(std::move(on));
  perform(client_.vote_received(peer, *join, address, time_of_event()));
}

}  // namespace acc::rendezvous
