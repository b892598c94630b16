#include "agent/status_text.hpp"

#include "common/round_end.hpp"
#include "common/text.hpp"

#include <algorithm>

namespace acc::agent {

namespace {

// Whole seconds: the line is drawn anew each second.
std::string shown_seconds(Millis time) {
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(time).count();
  constexpr std::int64_t kMinute = 60;
  if (seconds < kMinute) return std::to_string(seconds) + " s";
  return std::to_string(seconds / kMinute) + " min " + std::to_string(seconds % kMinute) + " s";
}

std::string after_reason(const StatusFacts& facts) {
  return facts.reason.empty() ? "" : ", after: " + printable(facts.reason);
}

std::string shown_status(const StatusFacts& facts) {
  switch (facts.phase) {
    case Phase::backing_off:
      return "next attempt in " + shown_seconds(facts.left) + " (" +
             restart_words(facts.ledger, facts.max_restarts) + ")" + after_reason(facts);
    case Phase::idle:
    case Phase::awaiting:
      if (!facts.is_coordinated) return {};
      return (facts.ends_for_good ? "waiting for the other nodes to end, "
                                  : "waiting for other nodes, ") +
             shown_seconds(facts.in_phase) + after_reason(facts);
    case Phase::stopping:
    case Phase::killing:
      return "stopping, " + std::to_string(facts.alive) + " of " + plural(facts.workers, "worker") +
             " left" + (facts.left > Millis{0} ? ", killed in " + shown_seconds(facts.left) : "");
    case Phase::running:
      return facts.progress;
    case Phase::finished:
      break;
  }
  return {};
}

// By characters: a byte 10xxxxxx goes on with one.
std::string cut(std::string text, std::size_t columns) {
  std::size_t width = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xC0U) == 0x80U) continue;
    if (width++ < columns) continue;
    text.resize(i);
    break;
  }
  return text;
}

}  // namespace

std::string status_text(const StatusFacts& facts, std::size_t columns) {
  const auto text = shown_status(facts);
  return text.empty() ? text : cut("acc-launch: " + text, columns);
}

}  // namespace acc::agent
