#include "agent/fanout/slot_wait.hpp"

#include "agent/fanout/orders.hpp"
#include "common/text.hpp"

#include <algorithm>
#include <utility>

namespace acc::agent {

namespace {

constexpr Millis kFirstPause{1'000};
constexpr Millis kLongestPause{15'000};

bool has_exited_with(const HostTrouble& trouble, int code) {
  const auto* exited = std::get_if<Exited>(&trouble.status);
  return trouble.what == HostTrouble::What::exited && exited != nullptr && exited->code == code;
}

bool is_full(const FanOutHost& host) {
  return host.trouble && has_exited_with(*host.trouble, kNoRoomExit);
}

// One that was prepared and then lost may have begun its part.
bool is_away(const FanOutHost& host) {
  return host.trouble && host.daemon.empty() &&
         (host.trouble->what == HostTrouble::What::silent ||
          has_exited_with(*host.trouble, kAwayExit));
}

/// "b, c (b: why)".
std::string named(const std::vector<HostIndex>& hosts, const std::vector<std::string>& names,
                  const std::vector<std::string>& why) {
  constexpr std::size_t kMostNames = 8;
  std::string_view first = why[hosts.front()];
  if (first.ends_with(kNoRoomCure)) first.remove_suffix(kNoRoomCure.size());
  std::vector<std::string> shown;
  for (std::size_t i = 0; i < std::min(hosts.size(), kMostNames); ++i)
    shown.push_back(names[hosts[i]]);
  return join(shown, ", ") +
         (hosts.size() > kMostNames ? " and " + std::to_string(hosts.size() - kMostNames) + " more"
                                    : "") +
         " (" + names[hosts.front()] + ": " + std::string{first} + ")";
}

}  // namespace

bool SlotWait::is_due(const FanOutState& state) {
  bool is_any_awaited = false;
  bool is_all_awaited = true;
  for (HostIndex i = 0; i < state.hosts.size(); ++i) {
    const auto& host = state.hosts[i];
    if (!host.daemon.empty() || is_full(host)) seen_.insert(i);
    if (!host.trouble) continue;
    is_any_awaited = true;
    is_all_awaited = is_all_awaited && (is_full(host) || (is_away(host) && seen_.contains(i)));
  }
  return state.has_failed && state.stop_signal == 0 && is_any_awaited && is_all_awaited;
}

std::optional<std::string> SlotWait::tell(const FanOutState& state,
                                          const std::vector<std::string>& names,
                                          const std::vector<std::string>& why) {
  Awaited now;
  for (HostIndex i = 0; i < state.hosts.size(); ++i) {
    if (is_full(state.hosts[i])) now.full.push_back(i);
    if (is_away(state.hosts[i])) now.away.push_back(i);
  }
  if (now == told_ || now == Awaited{}) return std::nullopt;
  told_ = now;
  std::string text = "waiting for ";
  if (!now.full.empty()) text += "room on " + named(now.full, names, why);
  if (!now.full.empty() && !now.away.empty()) text += " and for ";
  if (!now.away.empty()) text += named(now.away, names, why);
  return text + "; no slot is held meanwhile, Ctrl-C ends the wait";
}

Millis SlotWait::pause(double fraction) {
  const auto doubled = kFirstPause * (1U << std::min(tries_, 4U));
  ++tries_;
  const auto whole = std::min<Millis>(doubled, kLongestPause);
  return std::chrono::duration_cast<Millis>(whole * (0.75 + fraction / 2));
}

}  // namespace acc::agent
