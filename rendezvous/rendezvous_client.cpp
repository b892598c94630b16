#include "rendezvous/rendezvous_client.hpp"

#include "common/log.hpp"
#include "rendezvous/codec.hpp"

#include <boost/asio/post.hpp>

// Carries out the decisions of CoordinatorClient. Becoming the first coordinator is in
// rendezvous_client_seed.cpp, etcd in rendezvous_client_etcd.cpp.
namespace acc::rendezvous {

namespace {

// Sent before the link's first heartbeat, which declares the replay complete. All of it at once:
// that heartbeat must not be late.
void send_replay(Link& link, const Epoch& epoch, std::vector<KvRestore> replay) {
  constexpr std::size_t kOverhead = 64;  // of a frame, at most: header, lengths, number
  std::size_t bytes = 0;
  for (const auto& part : replay) bytes += part.key.size() + part.value.size() + kOverhead;
  link.allow_queued(bytes);
  for (auto& part : replay) link.send({epoch, std::move(part)});
}

}  // namespace

RendezvousClient::RendezvousClient(boost::asio::io_context& io, RendezvousClientOptions options,
                                   OnOrder on_order)
    : io_{io},
      options_{std::move(options)},
      on_order_{std::move(on_order)},
      client_{options_.client, boot_now()},
      clocks_{read_clocks()},
      skew_{options_.clock_skew},
      timer_{io, [this] { perform(client_.tick(time_of_event())); }},
      listener_{io, listener_options(), listener_events()},
      questions_{[this](Message message) {
        if (link_ && client_.is_connected())
          link_->send({{client_.term(), client_.epoch().round}, std::move(message)});
      }} {
  if (options_.etcd) be_candidate();
}

RendezvousClient::~RendezvousClient() {
  alive_.end();
  listener_.stop();
}

void RendezvousClient::port_reserved(std::uint16_t port) {
  perform(client_.port_reserved(port, time_of_event()));
}
void RendezvousClient::worker_failed(const Failure& failure) {
  perform(client_.worker_failed(failure, time_of_event()));
}
void RendezvousClient::workers_completed(bool progress) {
  perform(client_.workers_completed(progress, time_of_event()));
}
void RendezvousClient::workers_stopped(bool progress) {
  perform(client_.workers_stopped(progress, time_of_event()));
}
void RendezvousClient::signal_received(int signo) { perform(client_.signal_received(signo)); }

void RendezvousClient::restart_asked(RestartAnswer answer) {
  restart_answers_.push_back(std::move(answer));
  perform(client_.restart_asked());
  if (!client_.is_connected())
    answer_restarts("the coordinator of its nodes isn't reached now: try again");
}

void RendezvousClient::answer_restarts(const std::string& why_not) {
  for (const auto& answer : std::exchange(restart_answers_, {})) answer(why_not);
}

void RendezvousClient::leave(const std::string& why) {
  perform(client_.leaves(why, time_of_event()));
}
bool RendezvousClient::may_run() const { return client_.may_run(boot_now()); }

void RendezvousClient::perform(const ClientActions& actions) {
  for (const auto& action : actions) std::visit([this](const auto& a) { act(a); }, action);
  if (const auto change = client_.take_link_change()) order(*change);
  seek_in_etcd();
  arm();
}

void RendezvousClient::arm() { timer_.fire_by(timer_time(client_.next_deadline())); }

// ---- time ----

Instant RendezvousClient::time_of_event() {
  const Clocks clocks = read_clocks();
  if (const auto step = clocks_.look(clocks)) doubt_clock(*step, clocks.boot);
  return clocks.boot;
}

void RendezvousClient::doubt_clock(Millis step, Instant now) {
  log::info("clock_doubted", {{"job", options_.membership.job}, {"step_ms", step.count()}});
  if (client_.state() == NodeState::running)
    tell("the wall clock went forward by " + acc::describe(step) +
             " at once: it was set, or this machine was paused; the coordinator must "
             "confirm the lease within " +
             acc::describe(client_.timings().confirmation()),
         true);
  perform(client_.clock_doubted(now));
  questions_.ask_current_anew(now);
}

// ---- links ----

void RendezvousClient::act(const DialTo& a) {
  if (a.here) {
    if (!coordinator_)
      return perform(client_.dial_failed({false, true, "no coordinator here"}, time_of_event()));
    auto [ours, theirs] = link_inside(io_);
    inside_ = std::move(theirs);
    take_link(std::move(ours));
    return;
  }
  dial_ = dial(io_, dial_options(a.to, a.limit), [this](Dialled dialled) {
    const auto finished = std::exchange(dial_, nullptr);
    if (dialled.has_value()) return take_link(link_over(std::move(*dialled)));
    const auto& error = dialled.error();
    using Kind = DialError::Kind;
    perform(client_.dial_failed(
        {error.kind == Kind::authentication || error.kind == Kind::has_no_secret,
         error.kind == Kind::refused, error.what},
        time_of_event()));
  });
}

DialOptions RendezvousClient::dial_options(const HostPort& to, Millis limit) const {
  DialOptions how;
  how.to = to;
  how.tls = options_.dial_tls;
  how.limit = limit;
  how.is_insecure = options_.is_insecure;
  how.channel.heartbeat_timeout = options_.client.timings.heartbeat_timeout;
  return how;
}

void RendezvousClient::take_link(std::shared_ptr<Link> link) {
  link_ = std::move(link);
  Link::Handlers on;
  on.on_frame = [this](const Frame& frame) { on_link_frame(frame); };
  on.on_lost = [this](const LinkLoss& loss) {
    link_.reset();
    perform(client_.link_lost(loss, time_of_event()));
    answer_restarts("the coordinator of its nodes was lost before it answered: try again");
  };
  link_->start(std::move(on));
  link_->allow_queued(kv_bytes_in_flight(options_.client.self.slots));
  const std::string address = link_->own_address();
  listener_.open_standby(address);
  if (const auto at = listener_.at()) client_.set_listener(at->port);
  perform(client_.link_up(address, time_of_event()));
}

void RendezvousClient::on_link_frame(const Frame& frame) {
  if (const auto* reply = std::get_if<KvReply>(&frame.message)) {
    const Instant now = time_of_event();  // after a doubt it answers an outdated question
    return questions_.answered(*reply, now);
  }
  if (const auto* part = std::get_if<Table>(&frame.message)) return questions_.received(*part);
  if (const auto* ack = std::get_if<HeartbeatAck>(&frame.message)) take_ack(*ack);
  if (const auto* reply = std::get_if<RestartReply>(&frame.message))
    return answer_restarts(reply->why_not);
  const bool was_connected = client_.is_connected();
  if (!was_connected && std::holds_alternative<Welcome>(frame.message))
    replay_store(frame.epoch.term);
  perform(client_.received(frame, time_of_event()));
  if (!was_connected && client_.is_connected()) questions_.ask_again();
}

void RendezvousClient::take_ack(const HeartbeatAck& ack) {
  questions_.replay_arrived();
  if (!options_.on_clock_skew) return;
  const auto trip = client_.round_trip_of(ack.heartbeat, boot_now());
  if (!trip) return;
  const auto ahead = skew_.judge(static_cast<std::int64_t>(ack.clock_ms), wall_clock_ms(), *trip);
  if (ahead) options_.on_clock_skew(*ahead);
}

void RendezvousClient::replay_store(const Term& term) {
  if (!link_ || term < client_.term()) return;
  auto replay = questions_.take_replay(term);
  if (!replay) return;
  if (!questions_.remembers_all())
    tell(
        "the workers of this node put more into the key-value store than is remembered for "
        "a loss of the coordinator: the new one's store lacks some of it",
        true);
  send_replay(*link_, {term, client_.epoch().round}, std::move(*replay));
}

void RendezvousClient::act(const Hang&) {
  dial_.reset();
  inside_.reset();
  if (const auto link = std::exchange(link_, nullptr)) link->close();
}

void RendezvousClient::act(const Send& a) {
  const auto* said = std::get_if<Join>(&a.frame.message);
  if (said == nullptr) {
    if (link_) link_->send(a.frame);
    return;
  }
  Join join = *said;
  if (!inside_) {
    if (link_) link_->send({a.frame.epoch, std::move(join)});
    return;
  }
  // Later, like everything received over a link.
  boost::asio::post(io_, alive_.bind([this, theirs = std::move(inside_), join = std::move(join)] {
    if (coordinator_) coordinator_->admit(PeerId{++last_peer_}, theirs, join);
  }));
}

// ---- orders to the agent ----

void RendezvousClient::order(NodeOrder order) {
  boost::asio::post(io_, alive_.bind([this, order = std::move(order)] { on_order_(order); }));
}

void RendezvousClient::act(const OrderRound& a) {
  questions_.end_round();
  order(a);
}

void RendezvousClient::tell(std::string text, bool is_warning) {
  on_order_(Tell{std::move(text), is_warning});
}

// ---- votes and leadership ----

void RendezvousClient::act(const RefuseVote& a) {
  const auto found = votes_.find(a.peer.value());
  if (found == votes_.end()) return;
  const auto link = found->second;
  votes_.erase(found);
  link->send({{client_.term(), client_.epoch().round}, a.refused});
  link->close();
}

void RendezvousClient::act(const TakeOver& a) {
  log::info("coordinator_elected", {{"job", options_.membership.job},
                                    {"term", a.result.term.number},
                                    {"round", a.result.last.round.value()}});
  auto membership = options_.membership;
  membership.name = node_name();
  membership.timings = client_.timings();
  if (const auto at = listener_.at()) {
    const auto& said = options_.client.self.address;
    membership.where = describe({said.empty() ? at->host : said, at->port});
  }
  coordinator_ = std::make_unique<Coordinator>(io_, std::move(membership), a.result,
                                               std::exchange(votes_, {}), coordinator_hooks());
  announce_to_seed();
}

Coordinator::Hooks RendezvousClient::coordinator_hooks() {
  Coordinator::Hooks hooks;
  hooks.tell = [this](const std::string& text, bool is_warning) { tell(text, is_warning); };
  hooks.stepped_down = [this](const std::string& why) { retire(why); };
  if (etcd_) add_etcd_hooks(hooks);
  hooks.job_over = [this](const Close& close) {
    job_is_over_ = true;
    log::info("job_over", {{"exit_code", close.exit_code}, {"reason", close.reason}});
  };
  return hooks;
}

void RendezvousClient::retire(const std::string& why) {
  if (seed_guard_) seed_guard_->stop();
  if (etcd_) etcd_->resign();
  successor_notice_.reset();
  // The coordinator is still on the stack.
  std::shared_ptr<Coordinator> retired{std::move(coordinator_)};
  boost::asio::post(io_, alive_.bind([this, retired, why] {
    perform(client_.stepped_down(why, time_of_event()));
  }));
}

// Otherwise a process restarted at the job's seed endpoint would wait there forever.
void RendezvousClient::announce_to_seed() {
  const auto seed_endpoint = options_.client.seed_endpoint;
  if (!coordinator_ || !listener_.at() || seed_endpoint.port == 0 || client_.options().serves_seed)
    return;
  const auto timeout = options_.client.timings.heartbeat_timeout;
  SuccessorNotice::Options notice{dial_options(seed_endpoint, timeout),
                                  std::max<Millis>(timeout, Millis{1'000})};
  successor_notice_ = std::make_unique<
      SuccessorNotice>(io_, std::move(notice), [this](const std::string& host) {
    const HostPort here{host, listener_.at()->port};
    return encode(coordinator_->membership().epoch(), LeaderMoved{options_.membership.job, here});
  });
}

void RendezvousClient::when_dispensable(std::function<void()> done) {
  // Later: the coordinator has yet to receive that its own node leaves.
  boost::asio::post(io_, alive_.bind([this, done = std::move(done)] {
    coordinator_ && !etcd_ ? coordinator_->when_dispensable(done) : done();
  }));
}

void RendezvousClient::end(std::function<void()> done) {
  if (seed_guard_) seed_guard_->stop();
  is_ending_ = true;
  // A coordinator that leaves in the middle of the job has nothing to announce: the others detect
  // its loss, and elect.
  const bool has_news =
      coordinator_ && coordinator_->membership().phase() == MembershipPhase::closed;
  if (!has_news) {
    listener_.stop();
    if (etcd_) etcd_->withdraw();
    successor_notice_.reset();
    std::shared_ptr<Coordinator> ended{std::move(coordinator_)};  // it may be on the stack
    boost::asio::post(io_, [ended, done = std::move(done)] { done(); });
    return;
  }
  if (seed_guard_) seed_guard_->remove_file();
  if (etcd_) done = [this, after = std::move(done)]() mutable { end_with_etcd(std::move(after)); };
  constexpr Millis kCloseLimit{2'000};
  coordinator_->when_all_left(kCloseLimit, std::move(done));
}

}  // namespace acc::rendezvous
