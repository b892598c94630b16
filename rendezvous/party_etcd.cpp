#include "common/log.hpp"
#include "rendezvous/party.hpp"

#include <boost/asio/ip/udp.hpp>
#include <boost/asio/post.hpp>

#include <cerrno>

// Finding, and being, the coordinator where etcd says who it is. Only the coordinator and agents
// that have none talk to etcd: the others keep no connection to it.
namespace acc::rendezvous {

namespace {

constexpr Millis kRetry{500};
constexpr Millis kCampaignLimit{5'000};
constexpr Millis kLongestSpread{1'000};
constexpr Millis kFarewell{2'000};
/// etcd grants no less: a shorter time would make a leader step down earlier, not its successor
/// begin earlier.
constexpr Millis kShortestTtl{2'000};

/// From where this host would speak to that one; nothing is sent.
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

void Party::begin_with_etcd(OnCannot cannot) {
  perform(member_.begin(time_of_event()));
  const auto& said = options_.member.self.address;
  if (!said.empty() || !options_.listen.empty())
    return listen_for_etcd(said.empty() ? options_.listen : said, cannot);
  look_up_etcd(0, std::move(cannot));
}

// The address of this node that others reach is the one by which it reaches etcd.
void Party::look_up_etcd(std::size_t index, OnCannot cannot) {
  const auto& all = options_.etcd->endpoints;
  const auto& endpoint = all[index % all.size()];
  lookup_ = std::make_shared<Lookup>(io_);
  lookup_->start({endpoint.host, endpoint.port},
                 [this, index, endpoint, cannot = std::move(cannot)](const Lookup::Endpoints& found,
                                                                     const std::string& failed) {
                   for (const auto& one : found) {
                     const auto own = own_address_towards(io_, one);
                     if (!own.empty()) return listen_for_etcd(own, cannot);
                   }
                   const std::string why = failed.empty() ? "there is no route to it" : failed;
                   etcd_trouble("etcd at " + to_string(endpoint) + ": " + why +
                                ": correct --rdzv_endpoint, or the network of this machine");
                   const bool was_last = (index + 1) % options_.etcd->endpoints.size() == 0;
                   etcd_timer_.expires_after(was_last ? kRetry : Millis{0});
                   etcd_timer_.async_wait(
                       [this, alive = alive_, index, cannot](boost::system::error_code error) {
                         if (!error && *alive) look_up_etcd(index + 1, cannot);
                       });
                 });
}

// Before anybody is told of this node: whoever wins must be there already.
void Party::listen_for_etcd(const std::string& own_address, const OnCannot& cannot) {
  const std::string at = options_.listen.empty() ? own_address : options_.listen;
  auto opened = open_listener(at, options_.etcd->listen_port);
  // A name for this host from outside (a NAT): then all interfaces have to do.
  const bool is_elsewhere =
      !opened && options_.listen.empty() && opened.error().errnum != EADDRINUSE;
  if (is_elsewhere) opened = open_listener(kAnyAddress, options_.etcd->listen_port);
  if (!opened && opened.error().errnum == EAFNOSUPPORT)
    opened = open_listener("0.0.0.0", options_.etcd->listen_port);
  if (!opened) return cannot(opened.error());
  here_ = {own_address, listener_->at().port};
  member_.set_address_here(own_address);
  seek_in_etcd();
}

// After each change of the member's state.
void Party::seek_in_etcd() {
  if (!options_.etcd || here_.port == 0 || coordinator_) return;
  const bool seeks = member_.phase() != LinkPhase::member && member_.phase() != LinkPhase::ended;
  if (seeks == (leadership_ != nullptr)) return;
  leader_.reset();
  leadership_.reset();
  is_campaigning_ = false;
  etcd_timer_.cancel();
  if (!seeks) return;
  LeadershipPlan plan;
  plan.endpoints = options_.etcd->endpoints;
  plan.prefix = options_.etcd->prefix;
  plan.job = options_.roster.job;
  plan.me = options_.member.self.node;
  plan.at = here_;
  plan.ttl = std::max(options_.member.timings.dead, kShortestTtl);
  LeadershipEvents on;
  on.leader_changed = [this](const std::optional<Leader>& leader) { leader_changed(leader); };
  on.lost = [this](const Error& error) {
    if (coordinator_ && !job_is_over_ && !is_ending_) coordinator_->step_down(error.what);
  };
  on.trouble = [this](const Error& error) { etcd_trouble(error.what); };
  leadership_ =
      std::make_unique<EtcdLeadership>(io_.get_executor(), std::move(plan), std::move(on));
  leadership_->start();
}

void Party::etcd_trouble(const std::string& text) {
  member_.set_last_failure(text);
  if (std::exchange(last_trouble_, text) != text) hooks_.tell(text, true);
}

void Party::leader_changed(const std::optional<Leader>& leader) {
  leader_ = leader;
  last_trouble_.clear();
  if (!leader) {
    // Not all at once: of many, few get to ask before one of them has won.
    const auto spread = std::min(Millis{options_.roster.nodes_max}, kLongestSpread);
    return campaign_after(Millis{static_cast<Millis::rep>(
        options_.member.seed % static_cast<std::uint64_t>(spread.count() + 1))});
  }
  follow(*leader);
}

void Party::follow(const Leader& leader) {
  const bool is_me = leader.node == options_.member.self.node;
  if (is_me || coordinator_ || leader.term < member_.term().number) return;
  perform(member_.coordinator_is_at(leader.at, time_of_event()));
}

void Party::campaign_after(Millis pause) {
  etcd_timer_.expires_after(pause);
  etcd_timer_.async_wait([this, alive = alive_](boost::system::error_code error) {
    if (!error && *alive) campaign();
  });
}

void Party::campaign() {
  if (!leadership_ || coordinator_ || leader_ || is_campaigning_ || is_ending_) return;
  is_campaigning_ = true;
  leadership_->campaign(member_.term().number + 1, kCampaignLimit, [this](Result<Campaign> end) {
    is_campaigning_ = false;
    if (coordinator_ || is_ending_) return;
    if (!end) {
      etcd_trouble(end.error().what);
      return campaign_after(kRetry);
    }
    if (end->won) return lead(*end);
    leader_ = end->leader;
    follow(*leader_);
  });
}

void Party::lead(const Campaign& won) {
  // An end of the job removes all that etcd has of it.
  if (!won.table && member_.holding() > Holding::assigned) {
    is_ending_ = true;
    return leadership_->end_job([this](const Result<void>&) {
      perform(member_.job_is_gone("etcd knows nothing of job '" + options_.roster.job +
                                      "' any more: it ended while this node was out of reach, or "
                                      "etcd lost its data",
                                  time_of_event()));
    });
  }
  auto roster = options_.roster;
  roster.name = node_name();
  roster.where = describe(here_);
  roster.has_witness = true;
  roster.term = {won.leader.term, 0};
  std::optional<RoundRecord> last;
  if (won.table) {
    auto record = parse_round_record(won.table->bytes);
    if (record) {
      last = std::move(*record);
    } else {
      hooks_.tell(record.error().what +
                      ": what it told is lost, and no round begins before the leases of "
                      "that job are over",
                  true);
      roster.is_second = true;
    }
  }
  log::info("coordinator_elected",
            {{"job", roster.job},
             {"term", won.leader.term},
             {"round", last ? std::to_string(last->epoch.round.value()) : "none"}});
  if (last || won.leader.term > 1) {
    hooks_.tell("this node takes over as coordinator by etcd (term " +
                    std::to_string(won.leader.term) +
                    (last ? ", round " + std::to_string(last->epoch.round.value()) : "") + ")",
                false);
  }
  coordinator_ = std::make_unique<Coordinator>(io_, std::move(roster), coordinator_hooks());
  if (last) coordinator_->inherit(*last);
  perform(member_.coordinator_is_here(here_, time_of_event()));
}

void Party::add_etcd_hooks(Coordinator::Hooks& hooks) {
  hooks.tenure = [this] {
    const auto tenure = leadership_ ? leadership_->tenure() : std::nullopt;
    if (!tenure) return Coordinator::Hooks::Tenure{};
    return Coordinator::Hooks::Tenure{tenure->asked, tenure->until};
  };
  hooks.commit = [this](const Epoch& epoch, const std::string& bytes) { commit(epoch, bytes); };
}

void Party::commit(const Epoch& epoch, const std::string& bytes) {
  if (!leadership_ || !coordinator_ || coordinator_->roster().epoch() != epoch) return;
  leadership_->put_table(epoch, bytes, [this, epoch, bytes](const Result<void>& written) {
    if (!coordinator_) return;
    if (written) return coordinator_->committed(epoch);
    if (written.error().code == Errc::not_permitted) return;  // `lost` tells
    etcd_trouble(written.error().what);
    commit_timer_.expires_after(kRetry);
    commit_timer_.async_wait([this, alive = alive_, epoch, bytes](boost::system::error_code error) {
      if (!error && *alive) commit(epoch, bytes);
    });
  });
}

// Whoever comes next needn't wait for the lease.
void Party::leave_office() {
  commit_timer_.cancel();
  if (!leadership_) return;
  leadership_->resign({});
  leader_.reset();
  if (!is_ending_) campaign_after(kRetry);
}

void Party::end_with_etcd(std::function<void()> done) {
  etcd_timer_.cancel();
  commit_timer_.cancel();
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
  const auto told = [finish](const Result<void>& freed) {
    if (!freed)
      log::warn("this job's keys stay in etcd until their lease ends", {{"why", freed.error().what}});
    finish();
  };
  job_is_over_ ? leadership_->end_job(told) : leadership_->resign(told);
}

}  // namespace acc::rendezvous
