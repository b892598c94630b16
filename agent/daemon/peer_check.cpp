#include "agent/daemon/peer_check.hpp"

#include <algorithm>
#include <utility>

namespace acc::agent::daemon {

using boost::asio::awaitable;
using End = Sighting::End;

PeerCheck::PeerCheck(PeerIdentity own, std::uint16_t port, Network network)
    : port_{port}, seen_{std::move(own), port}, network_{std::move(network)} {}

void PeerCheck::set_nodes(const std::vector<std::string>& nodes) {
  nodes_ = nodes;
  seen_.set_nodes(nodes);
}

void PeerCheck::note(const std::string& node, const Sighting& sighting) {
  const auto now = clock_now();
  if (sighting.end == End::answered) seen_.saw(node, sighting.identity, now);
  if (sighting.end == End::silent) seen_.was_silent(node, now);
  if (sighting.end == End::absent) seen_.was_absent(node, now);
}

awaitable<PeerCheck::Verdict> PeerCheck::judge(std::string node, Answerer from, Millis limit) {
  const auto& answered = from.identity;
  const bool leads_here = !from.is_here && seen_.is_own_in_disguise(node, answered);
  // Without nodes in the settings there is none to take this one for.
  if (leads_here && !seen_.has(node))
    co_return Verdict{seen_.is_empty() ? std::string{} : leads_back(node, seen_.own()), {}};
  const Instant due = clock_now() + limit;
  const auto suspects = seen_.suspects(node, answered, from.is_here, clock_now());
  auto left = static_cast<int>(suspects.size());
  std::string doubt;
  for (const auto& [other, blocks, was_silent] : suspects) {
    Sighting sighting{End::silent, {}};
    // A silent one doesn't use the time of those behind it.
    const Instant share = clock_now() + (due - clock_now()) / left--;
    if (!was_silent) sighting = co_await ask(other, answered, share);
    const bool is_same =
        sighting.end == End::answered && sighting.identity.identity == answered.identity;
    if (is_same) co_return Verdict{seen_.complaint(node, other, answered), {}};
    const bool is_open = sighting.end == End::silent || sighting.end == End::unknown;
    if (is_open && blocks && doubt.empty()) doubt = doubt_about(node, other, answered);
  }
  // Of a node behind an address that is translated, its name in the settings leads back, too.
  const bool is_elsewhere = leads_here && co_await has_other_own_name(node, due);
  if (is_elsewhere) co_return Verdict{leads_back(node, seen_.own()), {}};
  if (doubt.empty()) seen_.accept(node, answered);
  co_return Verdict{{}, std::move(doubt)};
}

// Now, and not once: addresses move, and daemons start again.
awaitable<Sighting> PeerCheck::ask(std::string node, PeerIdentity answered, Instant due) {
  if (seen_.is_own(answered)) {
    // Its door may be open at another address alone.
    const bool is_here = co_await network_.leads_here(node, due);
    if (is_here) co_return Sighting{End::answered, answered};
  }
  const auto sighting = co_await network_.ask(node, due);
  note(node, sighting);
  co_return sighting;
}

// Rarely asked: of a name that leads back over something else.
awaitable<bool> PeerCheck::has_other_own_name(std::string node, Instant due) {
  const auto key = node_key(node, port_);
  const auto nodes = nodes_;
  for (const auto& other : nodes) {
    if (node_key(other, port_) == key) continue;
    const bool is_here = co_await network_.leads_here(other, due);
    if (is_here) co_return true;
  }
  co_return false;
}

void PeerCheck::accept_listed(const std::string& node, const Answerer& from) {
  if (seen_.suspects(node, from.identity, from.is_here, clock_now()).empty())
    seen_.accept(node, from.identity);
}

std::string PeerCheck::complaint_in(const std::vector<std::string>& nodes,
                                    const std::vector<Answerer>& answerers, std::size_t number,
                                    Instant since) const {
  const auto& node = nodes[number];
  const auto& [answered, is_here] = answerers[number];
  for (const auto& one : seen_.suspects(node, answered, is_here, clock_now())) {
    if (seen_.is_answered_by(one.node, answered, since))
      return seen_.complaint(node, one.node, answered);
  }
  const bool leads_here = !is_here && seen_.is_own_in_disguise(node, answered);
  const bool is_elsewhere = leads_here && std::ranges::any_of(answerers, [&](const auto& one) {
                              return one.is_here && seen_.is_own(one.identity);
                            });
  return is_elsewhere ? leads_back(node, seen_.own()) : std::string{};
}

}  // namespace acc::agent::daemon
