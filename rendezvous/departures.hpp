#pragma once

#include "common/duration.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace acc::rendezvous {

/// Nodes that have left a job whose nodes nothing starts again (pure).
class Departures {
 public:
  /// @param why       for messages, after the node's name: "left: no GPU"
  /// @param final_at  until then it may still return
  void note(const std::string& node, std::string why, Instant final_at) {
    departures_[node] = {std::move(why), final_at};
  }
  void returned(const std::string& node) { departures_.erase(node); }
  /// This process slept from `last` on: those that were still expected may have returned meanwhile.
  void slept(Instant last, Instant final_at) {
    for (auto& [node, departure] : departures_) {
      if (departure.final_at > last) departure.final_at = std::max(departure.final_at, final_at);
    }
  }
  /// A text for each node that won't return.
  [[nodiscard]] std::vector<std::string> final_ones(Instant now) const {
    std::vector<std::string> texts;
    for (const auto& [node, departure] : departures_) {
      if (now >= departure.final_at) texts.push_back(node + " " + departure.why);
    }
    return texts;
  }

 private:
  struct Departure {
    std::string why;
    Instant final_at;
  };
  std::map<std::string, Departure> departures_;  ///< by the node's name
};

}  // namespace acc::rendezvous
