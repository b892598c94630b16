#include "agent/fanout/slot_wait.hpp"

#include "agent/fanout/orders.hpp"
#include "common/text.hpp"

#include <algorithm>
#include <utility>

namespace acc::agent {

namespace {

constexpr Millis kFirstPause{1'000};
constexpr Millis kLongestPause{15'000};

bool is_full(const HostTrouble& trouble) {
  const auto* exited = std::get_if<Exited>(&trouble.status);
  return trouble.what == HostTrouble::What::exited && exited != nullptr &&
         exited->code == kNoRoomExit;
}

}  // namespace

bool SlotWait::is_due(const FanOutState& state) {
  const auto has_trouble = [](const FanOutHost& host) { return host.trouble.has_value(); };
  return state.has_failed && state.stop_signal == 0 &&
         std::ranges::any_of(state.hosts, has_trouble) &&
         std::ranges::all_of(state.hosts, [](const FanOutHost& host) {
           return !host.trouble || is_full(*host.trouble);
         });
}

std::optional<std::string> SlotWait::tell(const FanOutState& state,
                                          const std::vector<std::string>& names,
                                          const std::vector<std::string>& why) {
  constexpr std::size_t kMostNames = 8;
  std::vector<HostIndex> full;
  for (HostIndex i = 0; i < state.hosts.size(); ++i) {
    if (state.hosts[i].trouble) full.push_back(i);
  }
  if (full.empty() || std::exchange(told_, full) == full) return std::nullopt;
  std::string_view first = why[full.front()];
  if (first.ends_with(kNoRoomCure)) first.remove_suffix(kNoRoomCure.size());
  std::vector<std::string> shown;
  for (std::size_t i = 0; i < std::min(full.size(), kMostNames); ++i)
    shown.push_back(names[full[i]]);
  return "waiting for room on " + join(shown, ", ") +
         (full.size() > kMostNames ? " and " + std::to_string(full.size() - kMostNames) + " more"
                                   : "") +
         " (" + names[full.front()] + ": " + std::string{first} +
         "); no slot is held meanwhile, Ctrl-C ends the wait";
}

Millis SlotWait::pause(double fraction) {
  const auto doubled = kFirstPause * (1U << std::min(tries_, 4U));
  ++tries_;
  const auto whole = std::min<Millis>(doubled, kLongestPause);
  return std::chrono::duration_cast<Millis>(whole * (0.75 + fraction / 2));
}

}  // namespace acc::agent
