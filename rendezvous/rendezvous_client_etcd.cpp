#include "common/log.hpp"
#include "rendezvous/rendezvous_client.hpp"

#include <boost/asio/ip/udp.hpp>
#include <boost/asio/post.hpp>

// Finding, and being, the coordinator with etcd. Only the coordinator and agents without one
// connect to etcd: the others keep no connection to it.
namespace acc::rendezvous {

namespace {

constexpr Millis kRetry{500};
constexpr Millis kFarewell{2'000};
/// etcd grants no less: a shorter time would make a leader step down earlier, but not let its
/// successor begin earlier.
constexpr Millis kShortestTtl{2'000};

/// The source address that this host would use towards `other`; nothing is sent.
std::string own_address_towards(boost::asio::io_context& io,
                                const boost::asio::ip::tcp::endpoint& other) {
  boost::asio::ip::udp::socket socket{io};
  boost::system::error_code error;
  const boost::asio::ip::udp::endpoint to{other.address(), other.port()};
  if (socket.open(to.protocol(), error) || socket.connect(to, error)) return {};
  const auto own = socket.local_endpoint(error);
  return error ? std::string{} : own.address().to_string();
}

}  // namespace

void RendezvousClient::begin_with_etcd(OnCannot cannot) {
  perform(client_.begin(time_of_event()));
  const auto& said = options_.client.self.address;
  if (!said.empty() || !options_.listen.empty())
    return listen_for_etcd(said.empty() ? options_.listen : said, cannot);
  look_up_etcd(0, std::move(cannot));
}

// This node's address for others is the one by which it reaches etcd.
void RendezvousClient::look_up_etcd(std::size_t index, OnCannot cannot) {
  const auto& all = options_.etcd->servers.endpoints;
  const auto& endpoint = all[index % all.size()];
  lookup_ = std::make_shared<Lookup>(io_);
  lookup_->start(
      {endpoint.host, endpoint.port},
      [this, index, endpoint, cannot = std::move(cannot)](const Lookup::Endpoints& found,
                                                          const std::string& failed) {
        for (const auto& one : found) {
          const auto own = own_address_towards(io_, one);
          if (!own.empty()) return listen_for_etcd(own, cannot);
        }
        const std::string why = failed.empty() ? "there is no route to it" : failed;
        etcd_trouble("etcd at " + to_string(endpoint) + ": " + why +
                     ": correct --rdzv_endpoint, or the network of this machine");
        const bool was_last = (index + 1) % options_.etcd->servers.endpoints.size() == 0;
        etcd_timer_.expires_after(was_last ? kRetry : Millis{0});
        etcd_timer_.async_wait(alive_.bind([this, index, cannot](boost::system::error_code error) {
          if (!error) look_up_etcd(index + 1, cannot);
        }));
      });
}

// Before this node is announced: the winner must be reachable already.
void RendezvousClient::listen_for_etcd(const std::string& own_address, const OnCannot& cannot) {
  const auto opened = listener_.open_for_all(own_address, options_.etcd->listen_port);
  if (!opened) return cannot(opened.error());
  here_ = {own_address, listener_.at()->port};
  client_.set_listener(here_.port);
  client_.set_address_here(own_address);
  seek_in_etcd();
}

// Called after each change of the client's state.
void RendezvousClient::seek_in_etcd() {
  if (!options_.etcd || here_.port == 0 || coordinator_) return;
  const bool seeks = client_.phase() != LinkPhase::joined && client_.phase() != LinkPhase::ended;
  if (seeks == (leadership_ != nullptr)) return;
  leadership_.reset();
  if (!seeks) return;
  LeadershipOptions options;
  options.prefix = options_.etcd->prefix;
  options.job = options_.membership.job;
  options.me = options_.client.self.node;
  options.at = here_;
  options.ttl = std::max(options_.client.timings.heartbeat_timeout, kShortestTtl);
  options.lowest_term = client_.term().number + 1;
  options.nodes = options_.membership.nodes_max;
  options.seed = options_.client.seed;
  LeadershipEvents on;
  on.follow = [this](const Leader& leader) { follow(leader); };
  on.lead = [this](const BecomeLeader& won) { lead(won); };
  on.stop_leading = [this](const std::string& why) {
    if (coordinator_ && !job_is_over_ && !is_ending_) coordinator_->step_down(why);
  };
  on.committed = [this](const Epoch& epoch) {
    if (coordinator_) coordinator_->committed(epoch);
  };
  on.trouble = [this](const std::string& text) { etcd_trouble(text); };
  leadership_ = std::make_unique<EtcdLeadership>(io_.get_executor(), options_.etcd->servers,
                                                 std::move(options), std::move(on));
  leadership_->begin();
}

void RendezvousClient::etcd_trouble(const std::string& text) {
  client_.set_last_failure(text);
  if (std::exchange(last_trouble_, text) != text) tell(text, true);
}

void RendezvousClient::follow(const Leader& leader) {
  last_trouble_.clear();
  if (!coordinator_ && !is_ending_) perform(client_.coordinator_is_at(leader.at, time_of_event()));
}

void RendezvousClient::lead(const BecomeLeader& won) {
  last_trouble_.clear();
  if (coordinator_ || is_ending_) return leadership_->resign();
  // The end of a job removes all its keys in etcd.
  if (!won.last && client_.state() > NodeState::assigned) {
    is_ending_ = true;
    return leadership_->end(true, [this](const std::optional<Error>&) {
      perform(client_.job_is_gone("etcd knows nothing of job '" + options_.membership.job +
                                      "' any more: it ended while this node was out of reach, or "
                                      "etcd lost its data",
                                  time_of_event()));
    });
  }
  auto membership = options_.membership;
  membership.name = node_name();
  membership.where = describe(here_);
  membership.external_leader = true;
  membership.term = {won.term, 0};
  const auto& last = won.last;
  log::info("coordinator_elected",
            {{"job", membership.job},
             {"term", won.term},
             {"round", last ? std::to_string(last->epoch.round.value()) : "none"}});
  if (last || won.term > 1) {
    tell("this node takes over as coordinator by etcd (term " + std::to_string(won.term) +
             (last ? ", round " + std::to_string(last->epoch.round.value()) : "") + ")",
         false);
  }
  coordinator_ = std::make_unique<Coordinator>(io_, std::move(membership), coordinator_hooks());
  if (last) coordinator_->inherit(*last);
  perform(client_.coordinator_is_here(here_, time_of_event()));
}

void RendezvousClient::add_etcd_hooks(Coordinator::Hooks& hooks) {
  hooks.leadership_term = [this] {
    const auto leadership_term = leadership_ ? leadership_->leadership_term() : std::nullopt;
    if (!leadership_term) return Coordinator::Hooks::LeadershipTerm{};
    return Coordinator::Hooks::LeadershipTerm{leadership_term->asked, leadership_term->until};
  };
  hooks.commit = [this](const RoundRecord& record) {
    if (leadership_) leadership_->commit(record);
  };
}

// So that no successor waits for the lease.
void RendezvousClient::resign_leadership() {
  if (leadership_) leadership_->resign();
}

void RendezvousClient::end_with_etcd(std::function<void()> done) {
  etcd_timer_.cancel();
  if (!leadership_ || !coordinator_) {
    leadership_.reset();
    return boost::asio::post(io_, std::move(done));
  }
  const auto once = std::make_shared<std::function<void()>>(std::move(done));
  const auto finish = [once] {
    if (const auto call = std::exchange(*once, {})) call();
  };
  etcd_timer_.expires_after(kFarewell);
  etcd_timer_.async_wait([finish](boost::system::error_code error) {
    if (!error) finish();
  });
  leadership_->end(job_is_over_, [finish](const std::optional<Error>& problem) {
    if (problem)
      log::warn("this job's keys stay in etcd until their lease ends", {{"why", problem->what}});
    finish();
  });
}

}  // namespace acc::rendezvous
