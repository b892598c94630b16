#include "rendezvous/etcd_candidate.hpp"

#include "common/log.hpp"
#include "rendezvous/own_address.hpp"

#include <boost/asio/post.hpp>

#include <utility>

namespace acc::rendezvous {

namespace {

constexpr Millis kRetry{500};
constexpr Millis kCloseLimit{2'000};

}  // namespace

EtcdCandidate::EtcdCandidate(boost::asio::io_context& io, EtcdServers servers,
                             LeadershipOptions leadership, Hooks hooks)
    : io_{io},
      servers_{std::move(servers)},
      options_{std::move(leadership)},
      hooks_{std::move(hooks)},
      timer_{io} {}

void EtcdCandidate::find_own_address(std::function<void(const std::string& own)> on_found) {
  look_up(0, std::move(on_found));
}

// Debian and its derivatives map a host's own name to 127.0.1.1 on that host: where etcd runs on
// this node, its name leads to loopback, which the other nodes can't reach.
void EtcdCandidate::look_up(std::size_t index, std::function<void(const std::string&)> on_found) {
  const auto& endpoint = servers_.endpoints[index % servers_.endpoints.size()];
  lookup_ = std::make_shared<Lookup>(io_);
  lookup_->start(
      {endpoint.host, endpoint.port},
      [this, index, endpoint, on_found = std::move(on_found)](const Lookup::Endpoints& found,
                                                              const std::string& failed) {
        std::string loopback;
        for (const auto& one : found) {
          const auto own = own_address_towards(io_, one);
          if (own.empty()) continue;
          if (!is_loopback_address(own)) return on_found(own);
          loopback = host_port(one).host;
        }
        const bool was_last = (index + 1) % servers_.endpoints.size() == 0;
        if (!loopback.empty()) {
          on_loopback_ = endpoint.host + " is " + loopback +
                         " on this machine (/etc/hosts?), which others can't reach: ";
        } else {
          const std::string why = failed.empty() ? "there is no route to it" : failed;
          trouble("etcd at " + to_string(endpoint) + ": " + why +
                  ": correct --rdzv_endpoint, or the network of this machine");
        }
        if (was_last && announce_routable(on_found)) return;
        timer_.expires_after(was_last ? kRetry : Millis{0});
        timer_.async_wait(alive_.bind([this, index, on_found](boost::system::error_code error) {
          if (!error) look_up(index + 1, on_found);
        }));
      });
}

bool EtcdCandidate::announce_routable(const std::function<void(const std::string&)>& on_found) {
  if (on_loopback_.empty()) return false;
  const auto own = routable_own_address(io_);
  const std::string etcd = "etcd's host " + std::exchange(on_loopback_, {});
  if (own.empty()) {
    trouble(etcd +
            "give --local_addr ADDRESS, or localhost in --rdzv_endpoint if all nodes run on this "
            "machine");
    return false;
  }
  hooks_.tell(etcd + "this node announces " + own + "; --local_addr names another address", false);
  on_found(own);
  return true;
}

void EtcdCandidate::seek(bool seeks, std::uint32_t lowest_term) {
  if (options_.at.port == 0 || seeks == (leadership_ != nullptr)) return;
  leadership_.reset();
  if (!seeks) return;
  options_.lowest_term = lowest_term;
  LeadershipEvents on = hooks_.events;
  on.follow = [this](const Leader& leader) {
    last_trouble_.clear();
    hooks_.events.follow(leader);
  };
  on.lead = [this](const BecomeLeader& won) {
    last_trouble_.clear();
    hooks_.events.lead(won);
  };
  on.trouble = [this](const std::string& text) { trouble(text); };
  leadership_ =
      std::make_unique<EtcdLeadership>(io_.get_executor(), servers_, options_, std::move(on));
  leadership_->begin();
}

void EtcdCandidate::trouble(const std::string& text) {
  hooks_.events.trouble(text);
  if (std::exchange(last_trouble_, text) != text) hooks_.tell(text, true);
}

void EtcdCandidate::resign() {
  if (leadership_) leadership_->resign();
}

void EtcdCandidate::commit(const RoundRecord& record) {
  if (leadership_) leadership_->commit(record);
}

std::optional<Leadership::LeadershipTerm> EtcdCandidate::leadership_term() const {
  return leadership_ ? leadership_->leadership_term() : std::nullopt;
}

void EtcdCandidate::end_job(std::function<void()> done) {
  leadership_->end(true, [done = std::move(done)](const std::optional<Error>&) { done(); });
}

void EtcdCandidate::finish(bool job_is_over, std::function<void()> done) {
  timer_.cancel();
  if (!leadership_) return boost::asio::post(io_, std::move(done));
  const auto once = std::make_shared<std::function<void()>>(std::move(done));
  const auto finish = [once] {
    if (const auto call = std::exchange(*once, {})) call();
  };
  timer_.expires_after(kCloseLimit);
  timer_.async_wait([finish](boost::system::error_code error) {
    if (!error) finish();
  });
  leadership_->end(job_is_over, [finish](const std::optional<Error>& problem) {
    if (problem)
      log::warn("this job's keys stay in etcd until their lease ends", {{"why", problem->what}});
    finish();
  });
}

}  // namespace acc::rendezvous
