#include "tests/simulation/network.hpp"

#include <algorithm>

namespace acc::simulation {

namespace {

constexpr Time kLoopback{20'000};
constexpr Time kFirstSynRetry{1'000'000'000};
constexpr double kLostTail = 0.3;  // the last packets of a dying process may be lost with it

}  // namespace

HostId Network::add_host() {
  hosts_.emplace_back();
  return static_cast<HostId>(hosts_.size() - 1);
}

bool Network::is_cut(HostId from, HostId to) const {
  if (active_cuts_ == 0 || from == to) return false;
  return std::ranges::any_of(cuts_, [&](const auto& cut) {
    return cut &&
           ((cut->from[from] && cut->to[to]) || (cut->both && cut->from[to] && cut->to[from]));
  });
}

bool Network::passes(HostId from, HostId to) const {
  return hosts_[from].up && hosts_[to].up && !is_cut(from, to);
}

Time Network::one_way(HostId from, HostId to) {
  if (from == to) return kLoopback;
  Time time = options_.delay + hosts_[from].extra + hosts_[to].extra +
              between(random_, Time{0}, options_.jitter);
  for (int tries = 0; tries < 4 && options_.loss > 0 && random_.chance(options_.loss); ++tries)
    time += options_.retransmit * (1 << tries);
  return time;
}

// ---- topology ----

void Network::host_down(HostId host) {
  hosts_[host].up = false;
  hosts_[host].listener = nullptr;
  for (auto& connection : connections_)
    for (const int side : {0, 1}) {
      if (connection->host[side] != host) continue;
      connection->open[side] = false;
      connection->stalled[side].reset();
      std::erase_if(connection->flying[side], [](const Chunk& c) { return c.arrival == kNever; });
    }
  paths_changed();
}

void Network::host_up(HostId host) {
  hosts_[host].up = true;
  paths_changed();
}

std::size_t Network::begin_cut(Cut cut) {
  cuts_.emplace_back(std::move(cut));
  ++active_cuts_;
  return cuts_.size() - 1;
}

void Network::end_cut(std::size_t number) {
  if (!cuts_[number]) return;
  cuts_[number].reset();
  --active_cuts_;
  paths_changed();
}

void Network::heal() {
  for (auto& cut : cuts_) cut.reset();
  active_cuts_ = 0;
  for (auto& host : hosts_) host.extra = Time{0};
  paths_changed();
}

// Delayed data continues where it can; pending acknowledgements may arrive.
void Network::paths_changed() {
  for (std::uint32_t id = 0; id < connections_.size(); ++id)
    for (const int side : {0, 1}) {
      auto& c = *connections_[id];
      if (!c.stalled[side] || !passes(c.host[side], c.host[1 - side])) continue;
      release(id, side);
      if (passes(c.host[1 - side], c.host[side])) c.stalled[side].reset();
    }
}

void Network::release(std::uint32_t id, int side) {
  auto& c = *connections_[id];
  // The retransmission timer has backed off in the meantime.
  const Time waited = queue_.now() - *c.stalled[side];
  const Time again =
      between(random_, Time{0}, std::max(std::min(waited, options_.user_timeout), Time{1}));
  for (auto& chunk : c.flying[side]) {
    if (chunk.arrival != kNever) continue;
    chunk.arrival = std::max(c.last_arrival[side],
                             queue_.now() + again + one_way(c.host[side], c.host[1 - side]));
    c.last_arrival[side] = chunk.arrival;
    queue_.at(chunk.arrival, [this, id, side] { deliver(id, side); });
  }
}

// ---- dialling ----

End Network::dial(SocketOwner& owner, HostId from, HostId to, Time limit) {
  const auto id = static_cast<std::uint32_t>(connections_.size());
  auto& c = *connections_.emplace_back(std::make_unique<Connection>());
  c.host[0] = from;
  c.host[1] = to;
  c.owner[0] = &owner;
  c.open[0] = true;
  try_syn(id, kFirstSynRetry);
  queue_.after(limit, [this, id] { fail_dial(id, false, "timed out"); });
  return {id, 0};
}

void Network::try_syn(std::uint32_t id, Time wait) {
  const auto& c = *connections_[id];
  if (!c.open[0] || c.state != State::dialing) return;
  if (passes(c.host[0], c.host[1]) && passes(c.host[1], c.host[0])) {
    queue_.after(one_way(c.host[0], c.host[1]), [this, id] { syn_arrived(id); });
  } else {
    queue_.after(wait, [this, id, wait] { try_syn(id, 2 * wait); });
  }
}

void Network::syn_arrived(std::uint32_t id) {
  auto& c = *connections_[id];
  if (!c.open[0] || c.state != State::dialing) return;
  const Time back = one_way(c.host[1], c.host[0]);
  auto* listener = hosts_[c.host[1]].listener;
  if (!hosts_[c.host[1]].up) return;
  if (listener == nullptr) {
    queue_.after(back, [this, id] { fail_dial(id, true, "connection refused"); });
    return;
  }
  c.state = State::shaking;
  c.owner[1] = listener;
  c.open[1] = true;
  if (!options_.handshake) queue_.after(back, [this, id] { stand(id); });
  listener->accepted({id, 1}, c.host[0]);
}

void Network::shake(End accepted) {
  if (!options_.handshake) return;
  const auto id = accepted.connection;
  const auto& c = *connections_[id];
  const Time round_trip = one_way(c.host[1], c.host[0]) + one_way(c.host[0], c.host[1]);
  queue_.after(round_trip, [this, id] { stand(id); });
}

void Network::stand(std::uint32_t id) {
  auto& c = *connections_[id];
  if (c.state != State::shaking || !c.open[0] || !c.open[1]) return;
  if (!passes(c.host[1], c.host[0])) return;  // the answer was lost: the limit ends the attempt
  c.state = State::standing;
  c.owner[0]->dialed({id, 0}, {.ok = true, .refused = false, .what = {}});
}

void Network::fail_dial(std::uint32_t id, bool refused, const std::string& what) {
  auto& c = *connections_[id];
  if (!c.open[0] || c.state == State::standing) return;
  close({id, 0});
  c.owner[0]->dialed({id, 0}, {.ok = false, .refused = refused, .what = what});
}

// ---- streams ----

void Network::send(End end, const Bytes& bytes) {
  if (!connections_[end.connection]->open[end.side]) return;
  const auto size = bytes->size();
  const auto first = options_.splits && random_.chance(0.2) ? random_.below(size) : 0;
  if (first > 0) push(end.connection, end.side, {bytes, 0, first, Time{0}});
  push(end.connection, end.side, {bytes, first, size - first, Time{0}});
}

void Network::push(std::uint32_t id, int side, Chunk chunk) {
  auto& c = *connections_[id];
  const auto from = c.host[side];
  const auto to = c.host[1 - side];
  auto& flying = c.flying[side];
  const bool is_held = !passes(from, to) || (!flying.empty() && flying.back().arrival == kNever);
  if (is_held) {
    chunk.arrival = kNever;
  } else {
    chunk.arrival = std::max(c.last_arrival[side], queue_.now() + one_way(from, to));
    if (options_.grain > Time{0})
      chunk.arrival = (chunk.arrival / options_.grain + 1) * options_.grain;
    c.last_arrival[side] = chunk.arrival;
    queue_.at(chunk.arrival, [this, id, side] { deliver(id, side); });
  }
  flying.push_back(std::move(chunk));
  if (is_held || !passes(to, from)) note_stall(id, side);
}

// Sent and unacknowledged for too long: the kernel gives up the connection.
void Network::note_stall(std::uint32_t id, int side) {
  auto& c = *connections_[id];
  if (c.stalled[side]) return;
  const Time since = queue_.now();
  c.stalled[side] = since;
  queue_.after(options_.user_timeout, [this, id, side, since] {
    auto& stalled = *connections_[id];
    if (stalled.stalled[side] != since) return;
    stalled.stalled[side].reset();
    std::erase_if(stalled.flying[side], [](const Chunk& chunk) { return chunk.arrival == kNever; });
    end(id, side, "connection timed out");
  });
}

void Network::deliver(std::uint32_t id, int side) {
  auto& c = *connections_[id];
  const int receiver = 1 - side;
  auto& flying = c.flying[side];
  while (!flying.empty() && flying.front().arrival <= queue_.now()) {
    const Chunk chunk = std::move(flying.front());
    flying.pop_front();
    if (!c.open[receiver]) {
      if (chunk.bytes) answer_reset(id, side);
    } else if (!chunk.bytes) {
      end(id, receiver, "closed by the other side");
    } else {
      c.owner[receiver]->arrived({id, static_cast<std::uint8_t>(receiver)},
                                 std::string_view{*chunk.bytes}.substr(chunk.begin, chunk.size));
    }
  }
}

void Network::answer_reset(std::uint32_t id, int to_side) {
  const auto& c = *connections_[id];
  if (!c.open[to_side] || !passes(c.host[1 - to_side], c.host[to_side])) return;
  queue_.after(one_way(c.host[1 - to_side], c.host[to_side]),
               [this, id, to_side] { end(id, to_side, "connection reset"); });
}

void Network::end(std::uint32_t id, int side, const std::string& why) {
  auto& c = *connections_[id];
  if (!c.open[side]) return;
  c.open[side] = false;
  // During an attempt to connect, this is the outcome of the attempt.
  if (side == 0 && c.state != State::standing) {
    c.owner[0]->dialed({id, 0}, {.ok = false, .refused = false, .what = why});
  } else {
    c.owner[side]->ended({id, static_cast<std::uint8_t>(side)}, why);
  }
}

void Network::close(End end) {
  auto& c = *connections_[end.connection];
  if (!c.open[end.side]) return;
  c.open[end.side] = false;
  if (c.owner[1] != nullptr) push(end.connection, end.side, {nullptr, 0, 0, Time{0}});
}

void Network::abort(End end) {
  auto& c = *connections_[end.connection];
  if (!c.open[end.side]) return;
  if (random_.chance(kLostTail)) {
    // Their delivery events find nothing, which is harmless.
    auto& flying = c.flying[end.side];
    flying.resize(random_.below(flying.size() + 1));
  }
  close(end);
}

void Network::reset(End end) {
  const auto id = end.connection;
  for (const int side : {0, 1}) {
    connections_[id]->flying[side].clear();
    this->end(id, side, "connection reset");
  }
}

}  // namespace acc::simulation
