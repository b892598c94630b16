#include "agent/status_text.hpp"

#include "common/round_end.hpp"
#include "common/text.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <limits>

namespace acc::agent {

namespace {

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
             " left" +
             (facts.left <= Millis{0} ? ""
              : facts.kills_next      ? ", killed in " + shown_seconds(facts.left)
                                      : ", SIGTERM in " + shown_seconds(facts.left));
    case Phase::running:
      return facts.progress;
    case Phase::finished:
      break;
  }
  return {};
}

}  // namespace

std::string shown_seconds(Millis time) {
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(time).count();
  constexpr std::int64_t kMinute = 60;
  if (seconds < kMinute) return std::to_string(seconds) + " s";
  return std::to_string(seconds / kMinute) + " min " + std::to_string(seconds % kMinute) + " s";
}

// Three digits: 0.00412, 3.14, 1234.
std::string shown_rate(double steps_per_second) {
  std::array<char, 32> text{};
  const int width = steps_per_second >= 1000 ? 0 : 3;
  if (width == 0) {
    std::snprintf(text.data(), text.size(), "%.0f", steps_per_second);
  } else {
    std::snprintf(text.data(), text.size(), "%.*g", width, steps_per_second);
  }
  return text.data();
}

// By characters: a byte 10xxxxxx goes on with one.
std::string cut_to(std::string text, std::size_t columns) {
  std::size_t width = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xC0U) == 0x80U) continue;
    if (width++ < columns) continue;
    text.resize(i);
    break;
  }
  return text;
}

const WorkerProgress& slowest_of(const std::vector<WorkerProgress>& workers) {
  const auto is_slower = [](const WorkerProgress& a, const WorkerProgress& b) {
    if (a.step != b.step) return a.step < b.step;
    // Without a rate yet it has just begun.
    const double none = std::numeric_limits<double>::max();
    return a.steps_per_second.value_or(none) < b.steps_per_second.value_or(none);
  };
  return *std::ranges::min_element(workers, is_slower);
}

std::string progress_text(const std::vector<WorkerProgress>& workers) {
  if (workers.empty()) return {};
  const auto& slowest = slowest_of(workers);
  std::string text = "step " + std::to_string(slowest.step);
  if (slowest.steps_per_second) text += ", " + shown_rate(*slowest.steps_per_second) + " steps/s";
  if (!slowest.section.empty()) text += ", in section '" + printable(slowest.section) + "'";
  if (workers.size() > 1) text += ", slowest: rank " + std::to_string(slowest.rank.value());
  constexpr double kSilent = 10;
  if (slowest.section.empty() && slowest.seconds_since_heartbeat >= kSilent) {
    const auto silent = std::chrono::duration<double>{slowest.seconds_since_heartbeat};
    text += ", no heartbeat for " + shown_seconds(std::chrono::duration_cast<Millis>(silent));
  }
  return text;
}

std::string status_text(const StatusFacts& facts, std::size_t columns) {
  const auto text = shown_status(facts);
  return text.empty() ? text : cut_to("acc-launch: " + text, columns);
}

}  // namespace acc::agent
