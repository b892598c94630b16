#include "runtime/selftest/network_verdict.hpp"

#include "common/enum_names.hpp"

#include <algorithm>
#include <cstdio>
#include <set>

namespace acc::selftest {
namespace {

constexpr std::size_t at(int number) { return static_cast<std::size_t>(number); }

/// Of two in the middle the better one: half of the nodes may be in trouble.
double median_of(std::vector<double> values, bool higher_is_better) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return values[(values.size() - (higher_is_better ? 0 : 1)) / 2];
}

/// Shorter words for "this, that and the other".
std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i)
    text += (i == 0 ? "" : i + 1 == names.size() ? " and " : ", ") + names[i];
  return text;
}

bool is_slow(double mbit, const PairFacts& pair, std::span<const NodeFacts> nodes,
             const Usual& usual) {
  const auto low = nodes[at(pair.low)].nic_mbit;
  const auto high = nodes[at(pair.high)].nic_mbit;
  const double nic = low > 0 && high > 0 ? std::min(low, high) : 0;
  return mbit < usual.mbit * kSlowShare || mbit < nic * kSlowShareOfNic;
}

bool is_late(double rtt_us, const Usual& usual) {
  return rtt_us > usual.rtt_us * kSlowRttFactor && rtt_us > usual.rtt_us + kSlowRttMoreUs;
}

/// All of a node's measured pairs.
struct Partners {
  std::vector<std::size_t> pairs;
  std::vector<int> nodes;
};

class Judge {
 public:
  Judge(std::span<const NodeFacts> nodes, std::span<const PairFacts> pairs)
      : nodes_{nodes}, pairs_{pairs} {
    verdict_.usual = usual_of(nodes, pairs);
    for (const auto& pair : pairs)
      verdict_.pairs.push_back(judge_pair(pair, nodes, verdict_.usual));
  }

  NetworkVerdict run() {
    for (std::size_t i = 0; i < nodes_.size(); ++i)
      if (!nodes_[i].trouble.empty()) blame_absent(static_cast<int>(i));
    for (const auto trouble : {Trouble::broken, Trouble::one_way, Trouble::slow, Trouble::delayed})
      blame(trouble);
    return std::move(verdict_);
  }

 private:
  void blame_absent(int node) {
    verdict_.blamed.push_back({Trouble::broken,
                               {node},
                               false,
                               name(node) + " took no part: " + nodes_[at(node)].trouble,
                               "look at that machine, and at what was printed there"});
    explained_.insert(node);
  }

  void blame(Trouble trouble) {
    std::set<int> blamed;
    for (int node = 0; at(node) < nodes_.size(); ++node)
      if (!explained_.contains(node) && is_bad_node(node, trouble)) blamed.insert(node);
    for (const int node : blamed) blame_node(node, trouble);
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      const auto& pair = pairs_[i];
      if (verdict_.pairs[i].trouble != trouble || is_explained(pair) || blamed.contains(pair.low) ||
          blamed.contains(pair.high))
        continue;
      blame_pair(i);
    }
    explained_.insert(blamed.begin(), blamed.end());
  }

  [[nodiscard]] bool is_explained(const PairFacts& pair) const {
    return explained_.contains(pair.low) || explained_.contains(pair.high);
  }

  [[nodiscard]] Partners partners_of(int node) const {
    Partners partners;
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      const auto& pair = pairs_[i];
      if (is_explained(pair) || (pair.low != node && pair.high != node)) continue;
      partners.pairs.push_back(i);
      partners.nodes.push_back(pair.low == node ? pair.high : pair.low);
    }
    return partners;
  }

  /// Trouble with every partner, while one of them is well with another node: what they have in
  /// common is this one.
  [[nodiscard]] bool is_bad_node(int node, Trouble trouble) const {
    const auto partners = partners_of(node);
    return partners.pairs.size() > 1 &&
           std::ranges::all_of(
               partners.pairs,
               [&](std::size_t i) { return verdict_.pairs[i].trouble == trouble; }) &&
           std::ranges::any_of(partners.nodes,
                               [&](int other) { return is_well_with_another(other, node); });
  }
  [[nodiscard]] bool is_well_with_another(int node, int except) const {
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      const auto& pair = pairs_[i];
      const bool is_of_node = pair.low == node || pair.high == node;
      const bool is_of_other = pair.low == except || pair.high == except;
      if (is_of_node && !is_of_other && verdict_.pairs[i].trouble == Trouble::none) return true;
    }
    return false;
  }
  void blame_node(int node, Trouble trouble) {
    const auto partners = partners_of(node);
    bool sends = false, receives = false;
    double best = 0, least_rtt = 0;
    std::vector<std::string> names;
    for (std::size_t i = 0; i < partners.pairs.size(); ++i) {
      const auto& pair = pairs_[partners.pairs[i]];
      const auto& verdict = verdict_.pairs[partners.pairs[i]];
      const bool is_low = pair.low == node;
      sends = sends || (is_low ? verdict.to_high : verdict.to_low);
      receives = receives || (is_low ? verdict.to_low : verdict.to_high);
      if (verdict.to_high) best = std::max(best, pair.mbit_to_high);
      if (verdict.to_low) best = std::max(best, pair.mbit_to_low);
      least_rtt = i == 0 ? pair.rtt_us : std::min(least_rtt, pair.rtt_us);
      names.push_back(name(partners.nodes[i]));
    }
    const auto all = listed(names);
    Blame blame{trouble, {node}, false, {}, node_remedy(node)};
    if (trouble == Trouble::broken)
      blame.what = name(node) + " has no connection to any other node (" + all +
                   "): " + why(pairs_[partners.pairs.front()]);
    else if (trouble == Trouble::one_way)
      blame.what = one_way_words(node, partners, all);
    else if (trouble == Trouble::delayed)
      blame.what = name(node) + " answers late with every partner (" + all +
                   "): " + time_text(least_rtt) + " at best, where " +
                   time_text(verdict_.usual.rtt_us) + " are usual";
    else
      blame.what = name(node) +
                   (sends && receives ? " is slow"
                    : sends           ? " sends slowly"
                                      : " receives slowly") +
                   " with every partner (" + all + "): " + rate_text(best) + " at best, where " +
                   rate_text(verdict_.usual.mbit) + " are usual" + late_words(least_rtt);
    verdict_.blamed.push_back(std::move(blame));
  }

  /// Of what is slow: long round trips may be why.
  [[nodiscard]] std::string late_words(double rtt_us) const {
    if (!is_late(rtt_us, verdict_.usual)) return {};
    return "; a round trip takes " + time_text(rtt_us) +
           " (usual: " + time_text(verdict_.usual.rtt_us) + ")";
  }

  [[nodiscard]] std::string one_way_words(int node, const Partners& partners,
                                          const std::string& all) const {
    const auto& pair = pairs_[partners.pairs.front()];
    const auto& to_node = pair.low == node ? pair.high_to_low_refused : pair.low_to_high_refused;
    const auto& from_node = pair.low == node ? pair.low_to_high_refused : pair.high_to_low_refused;
    if (!to_node.empty())
      return name(node) + " takes no connection of " + all + ", but opens them: " + to_node;
    return name(node) + " can open no connection to " + all + ", but takes theirs: " + from_node;
  }

  void blame_pair(std::size_t index) {
    const auto& pair = pairs_[index];
    const auto& verdict = verdict_.pairs[index];
    const bool backwards = verdict.to_low && !verdict.to_high;
    Blame blame{verdict.trouble,
                {backwards ? pair.high : pair.low, backwards ? pair.low : pair.high},
                verdict.to_low != verdict.to_high,
                {},
                {}};
    const auto from = name(blame.nodes[0]);
    const auto to = name(blame.nodes[1]);
    blame.remedy = "look at what lies between " + from + " and " + to +
                   ": a cable, a switch, a route, a firewall";
    const auto here = backwards ? pair.mbit_to_low : pair.mbit_to_high;
    const auto back = backwards ? pair.mbit_to_high : pair.mbit_to_low;
    switch (verdict.trouble) {
      case Trouble::broken:
        blame.what = from + " and " + to + " have no connection: " + why(pair);
        break;
      case Trouble::one_way:
        blame.what = from + " can't open connections to " + to + ", but " + to + " can to " + from +
                     ": " + (backwards ? pair.high_to_low_refused : pair.low_to_high_refused);
        break;
      case Trouble::delayed:
        blame.what = "between " + from + " and " + to + " a round trip takes " +
                     time_text(pair.rtt_us) + ", where " + time_text(verdict_.usual.rtt_us) +
                     " are usual";
        break;
      default:
        blame.what = blame.is_directed
                         ? "from " + from + " to " + to + ": " + rate_text(here) + ", where " +
                               expected(pair) + " (" + to + " to " + from + ": " + rate_text(back) +
                               ")"
                         : "between " + from + " and " + to + ": " + rate_text(here) + " and " +
                               rate_text(back) + ", where " + expected(pair);
        blame.what += late_words(pair.rtt_us);
    }
    verdict_.blamed.push_back(std::move(blame));
  }

  /// "9.4 Gbit/s are usual", or what the interfaces say where there is nothing to compare with.
  [[nodiscard]] std::string expected(const PairFacts& pair) const {
    const auto best = std::max(pair.mbit_to_high, pair.mbit_to_low);
    if (std::min(pair.mbit_to_high, pair.mbit_to_low) < verdict_.usual.mbit * kSlowShare)
      return rate_text(verdict_.usual.mbit) + (pairs_.size() == 1 && best >= verdict_.usual.mbit
                                                   ? " go the other way"
                                                   : " are usual");
    return "the interfaces have " +
           rate_text(std::min(nodes_[at(pair.low)].nic_mbit, nodes_[at(pair.high)].nic_mbit));
  }

  [[nodiscard]] std::string why(const PairFacts& pair) const {
    if (!pair.failure.empty() && pair.is_connected()) return pair.failure;
    if (pair.low_to_high_refused == pair.high_to_low_refused) return pair.low_to_high_refused;
    return name(pair.low) + " to " + name(pair.high) + ": " + pair.low_to_high_refused + "; " +
           name(pair.high) + " to " + name(pair.low) + ": " + pair.high_to_low_refused;
  }

  [[nodiscard]] std::string name(int node) const { return nodes_[at(node)].name; }
  [[nodiscard]] std::string node_remedy(int node) const {
    return "look at " + name(node) +
           ": its cable, its port of the switch, its interface (ethtool), its firewall; or leave "
           "it out";
  }

  std::span<const NodeFacts> nodes_;
  std::span<const PairFacts> pairs_;
  NetworkVerdict verdict_;
  std::set<int> explained_;  ///< nodes whose pairs say nothing more
};

}  // namespace

std::string_view to_string(Trouble trouble) {
  static constexpr EnumNames<Trouble, Trouble::delayed> kNames{
      {"ok", "broken", "one-way", "slow", "delayed"}};
  return kNames[trouble];
}

PairFacts better_of(const PairFacts& one, const PairFacts& other) {
  const auto& first = one.is_measured() || !other.is_measured() ? one : other;
  const auto& second = &first == &one ? other : one;
  auto better = first;
  better.attempts = one.attempts + other.attempts;
  if (second.low_to_high_refused.empty()) better.low_to_high_refused.clear();
  if (second.high_to_low_refused.empty()) better.high_to_low_refused.clear();
  if (!second.is_measured()) return better;
  better.rtt_us = std::min(first.rtt_us, second.rtt_us);
  better.mbit_to_high = std::max(first.mbit_to_high, second.mbit_to_high);
  better.mbit_to_low = std::max(first.mbit_to_low, second.mbit_to_low);
  return better;
}

Usual usual_of(std::span<const NodeFacts> nodes, std::span<const PairFacts> pairs) {
  std::vector<double> best_mbit(nodes.size(), 0), best_rtt(nodes.size(), 0);
  for (const auto& pair : pairs) {
    if (!pair.is_measured()) continue;
    for (const int node : {pair.low, pair.high}) {
      auto& mbit = best_mbit[at(node)];
      auto& rtt = best_rtt[at(node)];
      mbit = std::max({mbit, pair.mbit_to_high, pair.mbit_to_low});
      rtt = rtt == 0 ? pair.rtt_us : std::min(rtt, pair.rtt_us);
    }
  }
  std::erase(best_mbit, 0);
  std::erase(best_rtt, 0);
  return {median_of(std::move(best_mbit), true), median_of(std::move(best_rtt), false)};
}

PairVerdict judge_pair(const PairFacts& pair, std::span<const NodeFacts> nodes,
                       const Usual& usual) {
  if (!pair.is_measured()) return {Trouble::broken, true, true};
  if (!pair.low_to_high_refused.empty()) return {Trouble::one_way, true, false};
  if (!pair.high_to_low_refused.empty()) return {Trouble::one_way, false, true};
  const bool to_high = is_slow(pair.mbit_to_high, pair, nodes, usual);
  const bool to_low = is_slow(pair.mbit_to_low, pair, nodes, usual);
  if (to_high || to_low) return {Trouble::slow, to_high, to_low};
  if (is_late(pair.rtt_us, usual)) return {Trouble::delayed, true, true};
  return {};
}

NetworkVerdict judge_network(std::span<const NodeFacts> nodes, std::span<const PairFacts> pairs) {
  return Judge{nodes, pairs}.run();
}

std::string rate_text(double mbit) {
  char text[48];
  if (mbit >= 999.5)
    std::snprintf(text, sizeof text, "%.3g Gbit/s", mbit / 1000);
  else if (mbit >= 0.9995 || mbit == 0)
    std::snprintf(text, sizeof text, "%.3g Mbit/s", mbit);
  else
    std::snprintf(text, sizeof text, "%.3g kbit/s", mbit * 1000);
  return text;
}

std::string time_text(double us) {
  char text[48];
  std::snprintf(text, sizeof text, us < 1000 ? "%.3f ms" : "%.1f ms", us / 1000);
  return text;
}

}  // namespace acc::selftest
