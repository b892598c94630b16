#include "rendezvous/codec.hpp"
#include "tests/simulation/process.hpp"
#include "tests/simulation/violation.hpp"
#include "tests/simulation/world.hpp"

#include <type_traits>

// Connections of a process: its own one to the coordinator, and those opened by others.
namespace acc::simulation {

using namespace rendezvous;

namespace {

constexpr std::size_t kKept = 12;  // frames for replay()

// Messages that must be harmless in an old epoch. The others concern a connection or the whole job.
bool is_of_a_round(const Message& message) {
  return std::visit(
      [](const auto& m) {
        using Kind = std::decay_t<decltype(m)>;
        return std::is_same_v<Kind, Ready> || std::is_same_v<Kind, Heartbeat> ||
               std::is_same_v<Kind, WorkerFailed> || std::is_same_v<Kind, Completed> ||
               std::is_same_v<Kind, Stopped> || std::is_same_v<Kind, Assigned> ||
               std::is_same_v<Kind, Start> || std::is_same_v<Kind, HeartbeatAck> ||
               std::is_same_v<Kind, Stop>;
      },
      message);
}

void keep(std::deque<Frame>& recent, const Frame& frame) {
  if (!is_of_a_round(frame.message)) return;
  recent.push_back(frame);
  if (recent.size() > kKept) recent.pop_front();
}

std::string show(const Frame& frame) {
  std::string text = std::string{name_of(frame.message)} + " " + simulation::show(frame.epoch);
  if (const auto* join = std::get_if<Join>(&frame.message)) {
    text += " state " + std::to_string(static_cast<int>(join->state)) + " of " +
            simulation::show(join->epoch) + " vote " + std::to_string(join->vote.number);
  } else if (const auto* refused = std::get_if<Refused>(&frame.message)) {
    text += " \"" + refused->what + "\"";
  } else if (const auto* stop = std::get_if<Stop>(&frame.message)) {
    text += " \"" + stop->reason + "\"";
  } else if (const auto* start = std::get_if<Start>(&frame.message)) {
    text += " granted " + std::to_string(start->granted.count()) + " ms";
  } else if (const auto* close = std::get_if<Close>(&frame.message)) {
    text += " outcome " + std::to_string(static_cast<int>(close->outcome));
  }
  return text;
}

}  // namespace

// ---- events of the network wait while the process sleeps ----

void Process::accepted(End end, HostId from) {
  dispatch([this, end, from] { on_accepted(end, from); });
}

void Process::dialed(End end, const DialOutcome& outcome) {
  dispatch([this, end, outcome] { on_dialed(end, outcome); });
}

void Process::arrived(End end, std::string_view bytes) {
  if (ended_) return;
  if (is_frozen()) {
    inbox_.emplace_back([this, end, kept = std::string{bytes}] { on_arrived(end, kept); });
    return;
  }
  on_arrived(end, bytes);
  settle();
}

void Process::ended(End end, const std::string& why) {
  dispatch([this, end, why] { on_ended(end, why); });
}

// ---- and are handled afterwards ----

void Process::on_accepted(End end, HostId from) {
  const PeerId id{next_peer_++};
  peers_.emplace(end, Peer{id, from, FrameSplitter{}, Peer::Role::fresh, {}});
  end_of_peer_.emplace(id, end);
  world_.network().shake(end);
}

void Process::on_dialed(End end, const DialOutcome& outcome) {
  if (home_link_ == end) {
    if (outcome.ok && membership_) {
      const HostPort here{world_.address(host_), World::kPort};
      const Frame moved{membership_->epoch(), LeaderMoved{spec_.membership.job, here}};
      send(end, moved, std::make_shared<const std::string>(encode(moved.epoch, moved.message)));
      world_.network().close(end);
    }
    home_link_.reset();
    return;
  }
  if (uplink_ != end || !client_) return;
  if (!outcome.ok) {
    uplink_.reset();
    note_dial("cannot reach " + dialed_ + ": " + outcome.what);
    carry_out(client_->dial_failed({false, outcome.refused, outcome.what}, now()));
    return;
  }
  last_dial_.clear();
  carry_out(client_->link_up(world_.address(host_), now()));
}

void Process::on_arrived(End end, std::string_view bytes) {
  if (uplink_ == end) return on_uplink_bytes(bytes);
  if (peers_.contains(end)) on_peer_bytes(end, bytes);
}

void Process::on_ended(End end, const std::string& why) {
  if (uplink_ == end) {
    uplink_.reset();
    note("its connection to the coordinator ended: " + why);
    if (client_) carry_out(client_->link_lost({why}, now()));
    return;
  }
  drop_peer(end, why);
}

// The peer is gone; the state machines that used the connection are notified.
void Process::drop_peer(End end, const std::string& why) {
  const auto found = peers_.find(end);
  if (found == peers_.end()) return;
  const auto id = found->second.id;
  const auto role = found->second.role;
  peers_.erase(found);
  end_of_peer_.erase(id);
  if (role == Peer::Role::voter && client_) carry_out(client_->vote_withdrawn(id, now()));
  if (role != Peer::Role::fresh && membership_)
    carry_out(membership_->left(id, {why}, membership_time()));
}

std::optional<Frame> Process::read(std::string_view bytes, FrameSplitter& splitter,
                                   bool& is_first) {
  if (is_first) splitter.feed(bytes);
  is_first = false;
  auto cut = splitter.next();
  if (!cut) throw Violation{"wire", spec_.name + " cannot cut a frame: " + cut.error().what};
  if (!*cut) return std::nullopt;
  auto frame = decode(**cut);
  if (!frame) throw Violation{"wire", spec_.name + " cannot read a frame: " + frame.error().what};
  return *std::move(frame);
}

void Process::on_uplink_bytes(std::string_view bytes) {
  bool is_first = true;
  const auto link = uplink_;
  while (uplink_ == link && !ended_) {
    const auto frame = read(bytes, uplink_splitter_, is_first);
    if (!frame) return;
    if (world_.history().is_on() && !is_beat(frame->message)) note("hears " + show(*frame));
    if (const auto* reply = std::get_if<KvReply>(&frame->message)) {
      on_inquiry_answer(*reply);
      continue;
    }
    if (world_.keeps_frames()) keep(uplink_recent_, *frame);
    note_place(frame->message);
    const bool was_connected = client_->is_connected();
    carry_out(client_->received(*frame, now()));
    if (!ended_ && !was_connected && client_->is_connected()) send_inquiry();
  }
}

void Process::note_place(const Message& message) {
  if (std::holds_alternative<Welcome>(message)) welcomed_at_ = world_.queue().now();
  if (std::holds_alternative<Welcome>(message) || std::holds_alternative<Start>(message))
    knows_its_place_ = false;
  if (std::holds_alternative<Assigned>(message)) knows_its_place_ = true;
}

void Process::on_peer_bytes(End end, std::string_view bytes) {
  bool is_first = true;
  while (!ended_) {
    const auto found = peers_.find(end);
    if (found == peers_.end()) return;
    auto& peer = found->second;
    const auto frame = read(bytes, peer.splitter, is_first);
    if (!frame) return;
    peer.splitter.set_max_frame(kMaxFrame);
    if (world_.history().is_on() && !is_beat(frame->message))
      note("as coordinator hears " + show(*frame) + " from " + world_.address(peer.from));
    if (peer.role == Peer::Role::fresh) {
      on_first_frame(end, peer, *frame);
    } else {
      on_peer_frame(peer, *frame);
    }
  }
}

// The recipient: the membership of this process if there is one, else the votes for this node.
void Process::on_first_frame(End end, Peer& peer, const Frame& frame) {
  if (const auto* moved = std::get_if<LeaderMoved>(&frame.message)) {
    world_.network().close(end);
    end_of_peer_.erase(peer.id);
    peers_.erase(end);
    const HostPort to = moved->to;
    // For example a spare at the seed endpoint that lost its coordinator: no other process notifies
    // it.
    if (!membership_ && client_ && frame.epoch.term >= client_->term())
      carry_out(client_->coordinator_is_at(to, now()));
    if (!membership_) return;
    carry_out(membership_->moved(to, membership_time()));
    if (!membership_ && client_) carry_out(client_->coordinator_is_at(to, now()));
    return;
  }
  const auto* join = std::get_if<Join>(&frame.message);
  if (join == nullptr) throw Violation{"wire", "a connection does not begin with Join"};
  const auto address = world_.address(peer.from);
  if (membership_) {
    peer.role = Peer::Role::of_membership;
    carry_out(membership_->joined(peer.id, *join, address, membership_time()));
  } else if (client_) {
    peer.role = Peer::Role::voter;
    carry_out(client_->vote_received(peer.id, *join, address, now()));
  }
}

void Process::on_peer_frame(Peer& peer, const Frame& frame) {
  if (!membership_) return;  // a voter has nothing else to send
  if (const auto* request = std::get_if<KvRequest>(&frame.message))
    return on_inquiry(peer, frame, *request);
  if (world_.keeps_frames()) keep(peer.recent, frame);
  carry_out(membership_->said(peer.id, frame, membership_time()));
}

// ---- sending ----

void Process::send(End end, const Frame& frame, const Bytes& bytes) {
  const auto peer = peers_.find(end);
  world_.count_frame(peer == peers_.end() ? host_ : peer->second.from, frame);
  world_.network().send(end, bytes);
}

std::optional<End> Process::end_of(PeerId peer) const {
  const auto found = end_of_peer_.find(peer);
  return found != end_of_peer_.end() ? std::optional{found->second} : std::nullopt;
}

// The process at the seed endpoint may have restarted with an empty membership: it must learn the
// coordinator's address.
void Process::announce_to_seed() {
  if (ended_ || !membership_ || !elected_ || !spec_.client) return;
  const auto seed_endpoint = world_.host_at(spec_.client->seed_endpoint);
  if (!seed_endpoint || *seed_endpoint == host_) return;
  if (!home_link_ && !is_frozen())
    home_link_ = world_.network().dial(*this, host_, *seed_endpoint, Time{1'000'000'000});
  world_.queue().after(spec_.membership.timings.heartbeat_timeout, [this] { announce_to_seed(); });
}

// ---- faults ----

bool Process::replay() {
  if (ended_ || is_frozen()) return false;
  for (auto& [end, peer] : peers_) {
    if (!membership_ || peer.role == Peer::Role::fresh) continue;
    for (const auto& frame : peer.recent) {
      if (!(frame.epoch < membership_->epoch())) continue;
      const Frame copy = frame;
      note("as coordinator hears once more " + show(copy) + " from " + world_.address(peer.from));
      carry_out(membership_->said(peer.id, copy, membership_time()));
      settle();
      return true;
    }
  }
  for (const auto& frame : uplink_recent_) {
    if (!client_ || !uplink_ || !(frame.epoch < client_->epoch())) continue;
    const Frame copy = frame;
    note("hears once more " + show(copy));
    carry_out(client_->received(copy, now()));
    settle();
    return true;
  }
  return false;
}

void Process::reset_connection() {
  if (uplink_ && world_.network().is_open(*uplink_)) world_.network().reset(*uplink_);
}

}  // namespace acc::simulation
