#include "rendezvous/coordinator.hpp"

#include "common/log.hpp"
#include "rendezvous/clock_skew.hpp"
#include "rendezvous/codec.hpp"

#include <boost/asio/post.hpp>

#include <algorithm>

namespace acc::rendezvous {

Coordinator::Coordinator(boost::asio::io_context& io, MembershipOptions options, Hooks hooks)
    : io_{io},
      hooks_{std::move(hooks)},
      membership_{std::move(options), boot_now()},
      clocks_{read_clocks()},
      timer_{io, [this] { on_timer(); }},
      close_deadline_{io} {
  arm();
}

Coordinator::Coordinator(boost::asio::io_context& io, MembershipOptions options,
                         const ElectionResult& result, Links voters, Hooks hooks)
    : io_{io},
      hooks_{std::move(hooks)},
      links_{std::move(voters)},
      membership_{options, boot_now()},
      clocks_{read_clocks()},
      timer_{io, [this] { on_timer(); }},
      close_deadline_{io} {
  for (const auto& vote : result.votes) {
    if (links_.contains(vote.peer.value())) add_agent(vote.peer, vote.join);
  }
  for (const auto& [peer, link] : links_) listen_to(PeerId{peer});
  MembershipActions actions;
  membership_ = Membership{std::move(options), result, boot_now(), actions};
  perform(actions);
  arm();
}

void Coordinator::admit(PeerId peer, std::shared_ptr<Link> link, const Join& join) {
  const std::string address = link->peer_address();
  links_.emplace(peer.value(), std::move(link));
  add_agent(peer, join);
  listen_to(peer);
  if (restored_.is_complete(join.node)) whole_.insert(peer.value());
  const Alive::Watch watch = alive_.watch();
  perform(membership_.joined(peer, join, address, time_of_event()));
  if (!watch.is_alive()) return;
  await_replay(peer);
  if (uninformed_.erase(join.node.name) > 0) check_left();
}

// The members of a round are among these agents, so the store is large enough for its barriers.
void Coordinator::add_agent(PeerId peer, const Join& join) {
  if (agents_.emplace(peer.value(), Agent{join}).second) workers_ += join.slots;
  store_.allow_workers(workers_);
}

void Coordinator::listen_to(PeerId peer) {
  Link::Handlers on;
  on.on_frame = alive_.bind([this, peer](const Frame& frame) { on_frame(peer, frame); });
  on.on_lost = alive_.bind([this, peer](const LinkLoss& loss) { on_lost(peer, loss); });
  const auto& link = links_.at(peer.value());
  link->start(std::move(on));
  // A set wakes all that wait for its key: the values for one node's workers are no sign that it
  // reads too slowly.
  const auto agent = agents_.find(peer.value());
  if (agent != agents_.end()) link->allow_queued(kv_bytes_in_flight(agent->second.workers));
}

void Coordinator::on_frame(PeerId peer, const Frame& frame) {
  if (log::enabled(log::Level::trace)) {
    log::write(log::Level::trace, "coordinator_got",
               {{"peer", peer.value()}, {"message", name_of(frame.message)}});
  }
  const bool is_of_round =
      membership_.is_member(peer) && frame.epoch.round == membership_.epoch().round;
  if (const auto* request = std::get_if<KvRequest>(&frame.message)) {
    if (request->op == KvRequest::Op::current) {
      const Instant at = time_of_event();
      return perform(membership_.asked_current(peer, frame.epoch.round, request->id, at));
    }
    if (is_of_round && is_restoring()) {
      held_.push_back({peer.value(), *request});
      return;
    }
    if (is_of_round) return carry_out(peer.value(), *request);
    KvReply reply;
    reply.id = request->id;
    reply.status = KvReply::Status::wrong_round;
    return answer({{peer.value(), reply}});
  }
  if (const auto* part = std::get_if<KvRestore>(&frame.message)) return restore(peer, frame, *part);
  if (std::holds_alternative<Heartbeat>(frame.message)) note_replay_end(peer);
  perform(membership_.said(peer, frame, time_of_event()));
}

// It keeps the node alive, too: its heartbeats wait behind the rest of the replay.
void Coordinator::restore(PeerId peer, const Frame& frame, const KvRestore& part) {
  const auto agent = agents_.find(peer.value());
  const bool is_of_round =
      membership_.is_member(peer) && frame.epoch.round == membership_.epoch().round;
  if (is_of_round && agent != agents_.end() && restored_.take(agent->second.node, part))
    answer(store_.restore(part));
  // Normally none: there are thousands of parts.
  const auto actions = membership_.said(peer, frame, time_of_event());
  if (!actions.empty()) perform(actions);
}

void Coordinator::note_replay_end(PeerId peer) {
  if (!restored_.is_expecting() || !membership_.is_member(peer)) return;
  const auto link = links_.find(peer.value());
  if (link != links_.end()) link->second->allow_frames(0);
  const auto agent = agents_.find(peer.value());
  if (!whole_.insert(peer.value()).second || agent == agents_.end()) return;
  restored_.complete(agent->second.node);
}

// At its usual rate a large replay would take longer than the silence after which a node is lost.
void Coordinator::await_replay(PeerId peer) {
  constexpr std::size_t kFrames = 2 * KvLimits{}.keys;  // a value, and what was added since
  const auto link = links_.find(peer.value());
  const bool is_awaited =
      restored_.is_expecting() && membership_.is_member(peer) && link != links_.end();
  if (is_awaited) link->second->allow_frames(kFrames);
}

// After an election the store is refilled with each agent's writes. Requests before that could only
// get wrong answers: "missing", a counter too low.
bool Coordinator::is_restoring() const {
  const auto has_replayed = [this](const Place& place) {
    const auto peer = membership_.peer_of(place);
    return peer && whole_.contains(peer->value());
  };
  return membership_.is_recovering(boot_now()) &&
         !std::ranges::all_of(membership_.places(), has_replayed);
}

void Coordinator::answer_held() {
  if (held_.empty() || is_restoring()) return;
  for (auto& [peer, request] : std::exchange(held_, {})) carry_out(peer, std::move(request));
}

void Coordinator::on_lost(PeerId peer, const LinkLoss& loss) {
  log::debug("agent_link_lost", {{"peer", peer.value()}, {"why", loss.why}});
  links_.erase(peer.value());
  forget(peer);
  perform(membership_.left(peer, loss, time_of_event()));
  check_left();
}

void Coordinator::forget(PeerId peer) {
  if (const auto agent = agents_.extract(peer.value())) workers_ -= agent.mapped().workers;
  store_.peer_gone(peer.value());
  whole_.erase(peer.value());
  std::erase_if(held_, [&](const Held& held) { return held.peer == peer.value(); });
}

// By our clock a coordinator elected by etcd may have lost its term before this process is
// notified.
Instant Coordinator::time_of_event() {
  const Clocks clocks = read_clocks();
  if (hooks_.leadership_term) {
    const auto leadership_term = hooks_.leadership_term();
    membership_.lead_until(leadership_term.until, leadership_term.asked);
  }
  if (clocks_.look(clocks)) perform(membership_.clock_doubted(clocks.boot));
  return clocks.boot;
}

void Coordinator::inherit(const RoundRecord& last) {
  perform(membership_.recover(last, time_of_event()));
}
void Coordinator::committed(const Epoch& epoch) {
  perform(membership_.committed(epoch, time_of_event()));
}
void Coordinator::moved(const HostPort& to) { perform(membership_.moved(to, time_of_event())); }

void Coordinator::perform(const MembershipActions& actions) {
  // A hook may end this object.
  const Alive::Watch watch = alive_.watch();
  for (const auto& action : actions) {
    std::visit([this](const auto& a) { act(a); }, action);
    if (!watch.is_alive()) return;
  }
  answer_held();
  arm();
  check_dispensable();
}

void Coordinator::act(const SendTo& a) {
  const auto found = links_.find(a.peer.value());
  if (found == links_.end()) return;
  const auto* ack = std::get_if<HeartbeatAck>(&a.frame.message);
  if (ack == nullptr) return found->second->send(a.frame);
  // The membership knows no wall clock.
  auto dated = *ack;
  dated.clock_ms = static_cast<std::uint64_t>(wall_clock_ms());
  found->second->send({a.frame.epoch, dated});
}

void Coordinator::act(const SendAll& a) {
  const std::string encoded = encode(a.frame.epoch, a.frame.message);
  for (const PeerId peer : a.peers) {
    const auto found = links_.find(peer.value());
    if (found != links_.end()) found->second->send(a.frame, encoded);
  }
}

void Coordinator::act(const ClosePeer& a) {
  const auto found = links_.find(a.peer.value());
  if (found == links_.end()) return;
  const auto link = found->second;
  links_.erase(found);
  forget(a.peer);
  link->close();
  perform(membership_.left(a.peer, {"closed by us"}, boot_now()));
}

void Coordinator::act(const ResetStore& a) {
  for (const auto& [peer, request] : std::exchange(held_, {})) {
    KvReply reply;
    reply.id = request.id;
    reply.status = KvReply::Status::wrong_round;
    answer({{peer, reply}});
  }
  answer(store_.reset(a.epoch));
  answered_.forget();
  restored_.begin(a.is_inherited);
  whole_.clear();
  if (!a.is_inherited) return;
  for (const auto& [peer, link] : links_) await_replay(PeerId{peer});
}
void Coordinator::act(const CommitRound& a) {
  if (hooks_.commit) hooks_.commit(a.record);
}
void Coordinator::act(const TellHere& a) { hooks_.tell(a.text, a.is_warning); }

void Coordinator::act(const StepDown& a) {
  for (auto& [peer, link] : links_) link->close();
  links_.clear();
  hooks_.stepped_down(a.why);
}

// Its agents receive the end over their links; one without a link hears it when it returns.
void Coordinator::act(const JobOver& a) {
  const auto& places = membership_.places();
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    if (places[rank].link_lost && !places[rank].gone) uninformed_.insert(places.name_of(rank));
  }
  hooks_.job_over(a.close);
}

void Coordinator::carry_out(std::uint64_t peer, KvRequest request) {
  if (const auto agent = agents_.find(peer); agent != agents_.end()) {
    const auto reply = answered_.find(agent->second.node, request.id);
    if (reply) return send(peer, *reply);
  }
  answer(store_.request(peer, std::move(request), clock_now()));
}

void Coordinator::answer(const KvStore::Answers& answers) {
  for (const auto& [peer, reply] : answers) {
    const auto agent = agents_.find(peer);
    if (agent != agents_.end()) answered_.note(agent->second.node, agent->second.workers, reply);
    send(peer, reply);
  }
  arm();
}

void Coordinator::send(std::uint64_t peer, const KvReply& reply) {
  const auto found = links_.find(peer);
  if (found != links_.end()) found->second->send({membership_.epoch(), reply});
}

// A time of the membership's clock, for a timer.
void Coordinator::arm() {
  Instant next = timer_time(membership_.next_deadline());
  if (const auto store = store_.next_deadline()) next = std::min(next, *store);
  timer_.fire_by(next);
}

void Coordinator::on_timer() {
  const Alive::Watch watch = alive_.watch();
  answer(store_.tick(clock_now()));
  perform(membership_.tick(time_of_event()));
  if (watch.is_alive()) arm();
}

// Two nodes can't elect a successor, and a spare that waits knows no other address.
void Coordinator::when_dispensable(std::function<void()> done) {
  dispensable_ = std::move(done);
  if (!membership_.is_dispensable())
    hooks_.tell("this node goes on as the job's coordinator until the others can do without it",
                false);
  check_dispensable();
}

void Coordinator::check_dispensable() {
  if (dispensable_ && membership_.is_dispensable())
    boost::asio::post(io_, std::exchange(dispensable_, {}));
}

void Coordinator::when_all_left(Millis limit, std::function<void()> done) {
  all_left_ = std::move(done);
  close_deadline_.expires_after(limit);
  close_deadline_.async_wait(alive_.bind([this](boost::system::error_code error) {
    if (error) return;
    for (auto& [peer, link] : links_) link->close();
    links_.clear();
    uninformed_.clear();
    check_left();
  }));
  check_left();
}

bool Coordinator::is_deserted() const {
  return links_.empty() && !membership_.has_round() && !membership_.in_takeover_delay(boot_now());
}

void Coordinator::check_left() {
  if (!all_left_ || !links_.empty() || !uninformed_.empty()) return;
  close_deadline_.cancel();
  boost::asio::post(io_, std::exchange(all_left_, {}));
}

}  // namespace acc::rendezvous
