#include "rendezvous/codec.hpp"
#include "rendezvous/party.hpp"

#include <cerrno>

// Where this node takes connections, and from whom.
namespace acc::rendezvous {

namespace {

bool is_numeric(const std::string& host) {
  boost::system::error_code failed;
  boost::asio::ip::make_address(host, failed);
  return !failed;
}

}  // namespace

void Party::begin(std::function<void(const Error&)> cannot) {
  if (options_.etcd) return begin_with_etcd(std::move(cannot));
  const auto& home = options_.member.home;
  const bool looks_up = options_.host != Host::never;
  if (!looks_up) return perform(member_.begin(time_of_event()));
  lookup_ = std::make_shared<Lookup>(io_);
  const HostPort own{options_.listen.empty() ? home.host : options_.listen, home.port};
  lookup_->start(
      own, [this, cannot = std::move(cannot)](const Lookup::Endpoints& found, const std::string&) {
        std::vector<std::string> addresses;
        for (const auto& one : found) addresses.push_back(host_port(one).host);
        if (options_.host == Host::may) {
          host_if_home_is_here(addresses);
        } else if (const auto hosted = host_at_home(addresses); !hosted) {
          return cannot(hosted.error());
        }
        perform(member_.begin(time_of_event()));
      });
}

Result<void> Party::open_listener(const std::string& address, std::uint16_t port) {
  ListenOptions listen;
  listen.at = {address, port};
  listen.is_dual_stack = address == kAnyAddress;
  listen.tls = options_.listen_tls;
  listen.is_insecure = options_.is_insecure;
  listen.admission = options_.admission;
  listen.channel.dead = options_.member.timings.dead;
  auto opened = Listener::open(io_, std::move(listen));
  if (!opened) return opened.error();
  listener_ = std::move(*opened);
  member_.set_listener(listener_->at().port);
  listener_->start(
      [this](std::shared_ptr<Channel> channel, std::string_view first) {
        on_peer(std::move(channel), first);
      },
      [this](const TurnedAway& who) {
        const std::string times = who.times > 1 ? " (" + std::to_string(who.times) + " times)" : "";
        const bool by_secret = options_.listen_tls && who.what.starts_with("authentication");
        const Secret secret = options_.listen_tls ? options_.listen_tls->secret() : Secret{};
        hooks_.tell("turned away a connection from " + who.source + ": " + who.what + times +
                        (by_secret ? ": this side uses " + secret.path + ", key id " +
                                         secret.keys.front().id
                                   : ""),
                    true);
      });
  return {};
}

void Party::become_first_coordinator() {
  auto roster = options_.roster;
  if (roster.where.empty()) roster.where = describe(options_.member.home);
  member_.set_address_here(options_.member.home.host);
  note_.emplace(roster.job, options_.member.home.port);
  const auto& times = roster.timings;
  const auto left_ago = note_->age();
  roster.is_second = left_ago && *left_ago < (times.lease + times.dead) * 2;
  if (roster.is_second) {
    hooks_.tell("the last coordinator of this job ended " + acc::describe(*left_ago) +
                    " ago without a word: no round begins before the leases that it gave are over",
                true);
  }
  coordinator_ = std::make_unique<Coordinator>(io_, std::move(roster), coordinator_hooks());
  renew_note();
}

void Party::renew_note() {
  if (!coordinator_ || !note_) return;
  if (coordinator_->roster().has_round()) note_->renew();
  note_timer_.expires_after(options_.member.timings.dead / 2);
  note_timer_.async_wait([this, alive = alive_](boost::system::error_code error) {
    if (!error && *alive) renew_note();
  });
}

// The address that the others dial is one of this host's, or a name for it from outside (a service,
// a NAT): then all interfaces have to do.
Result<void> Party::host_at_home(const std::vector<std::string>& addresses) {
  const auto& home = options_.member.home;
  Result<void> opened = Error{Errc::not_found, "no address"};
  for (const auto& address : addresses) {
    opened = open_listener(address, home.port);
    if (opened || opened.error().errnum != EADDRNOTAVAIL) break;
  }
  const bool is_elsewhere =
      !opened && (addresses.empty() || opened.error().errnum == EADDRNOTAVAIL);
  if (is_elsewhere) opened = open_listener(kAnyAddress, home.port);
  if (is_elsewhere && opened) {
    hooks_.tell(
        "this node is to be the first, but " + home.host +
            " is no address of this machine: is its --node_rank right? (The name of a service "
            "or an address behind a NAT is fine.)",
        true);
  }
  if (!opened && opened.error().errnum == EAFNOSUPPORT)
    opened = open_listener("0.0.0.0", home.port);
  if (!opened) return opened;
  become_first_coordinator();
  return {};
}

// As torchrun: whoever has the endpoint's address and gets its port.
void Party::host_if_home_is_here(const std::vector<std::string>& addresses) {
  const auto& home = options_.member.home;
  for (const auto& address : addresses) {
    if (!open_listener(address, home.port)) continue;
    member_.set_hosts();
    become_first_coordinator();
    return;
  }
}

// For votes, if the coordinator is lost: on the address by which this node reaches it, at the same
// port where it is free (a firewall lets it pass already).
void Party::open_standby(const std::string& own_address) {
  if (listener_) return;
  const bool says_where = is_numeric(options_.listen);  // of a name, the link knows the address
  const std::string address = says_where            ? options_.listen
                              : own_address.empty() ? kAnyAddress
                                                    : own_address;
  if (open_listener(address, options_.member.home.port)) return;
  const auto opened = open_listener(address, 0);
  if (!opened)
    hooks_.tell("this node can't take over if the coordinator is lost: " + opened.error().what,
                true);
}

void Party::on_peer(std::shared_ptr<Channel> channel, std::string_view first_frame) {
  auto frame = decode(first_frame);
  const auto turn_away = [&](const std::string& why) {
    hooks_.tell("turned away a connection from " + describe(channel->peer()) + ": " + why, true);
    channel->close();
  };
  if (!frame) return turn_away(frame.error().what);
  if (const auto* moved = std::get_if<Moved>(&frame->message)) {
    channel->close();
    if (moved->job != options_.roster.job) return;
    if (coordinator_) return coordinator_->moved(moved->to);
    // A spare at the job's first address, say, whose coordinator is lost: nobody else tells it.
    if (frame->epoch.term >= member_.term())
      perform(member_.coordinator_is_at(moved->to, time_of_event()));
    return;
  }
  const auto* join = std::get_if<Join>(&frame->message);
  if (join == nullptr) return turn_away("it began with " + std::string{name_of(frame->message)});
  const bool proved_another_job = channel->is_tls() && join->version_major == kVersionMajor &&
                                  channel->proof().job != join->job;
  if (proved_another_job) return turn_away("its key is for another job");
  const PeerId peer{++last_peer_};
  auto link = link_over(std::move(channel));
  if (coordinator_) return coordinator_->admit(peer, std::move(link), *join);
  const std::string address = link->peer_address();
  Link::Handlers on;
  on.on_lost = [this, peer](const std::string&, bool) {
    votes_.erase(peer.value());
    perform(member_.vote_gone(peer, time_of_event()));
  };
  votes_[peer.value()] = link;
  link->start(std::move(on));
  perform(member_.vote_came(peer, *join, address, time_of_event()));
}

}  // namespace acc::rendezvous
