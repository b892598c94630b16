#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

/// What measured pairs of nodes say about the network: which node, link or direction is slow or
/// broken (pure).
namespace acc::selftest {

struct NodeFacts {
  std::string name;
  std::string address;  ///< where it was reached
  double nic_mbit = 0;  ///< what its interface says that it can; 0: unknown
  std::string trouble;  ///< why it couldn't take part; empty: it did
};

/// Of a pair of nodes, `low` and `high` by their numbers.
struct PairFacts {
  int low = 0, high = 0;
  /// Why a connection that the first opens to the second failed; empty: it works.
  std::string low_to_high_refused, high_to_low_refused;
  std::string failure;  ///< why there are no figures though a connection was made; empty: there are
  double rtt_us = 0;    ///< the least round trip
  double mbit_to_high = 0, mbit_to_low = 0;
  int attempts = 1;

  [[nodiscard]] bool is_connected() const {
    return low_to_high_refused.empty() || high_to_low_refused.empty();
  }
  [[nodiscard]] bool is_measured() const { return is_connected() && failure.empty(); }
};

/// The better of two measurements of a pair: what is slow because a machine was busy isn't slow
/// twice.
[[nodiscard]] PairFacts better_of(const PairFacts& one, const PairFacts& other);

/// What is usual among these nodes.
struct Usual {
  double mbit = 0;    ///< the median of what each node reaches with its best partner
  double rtt_us = 0;  ///< likewise
};
[[nodiscard]] Usual usual_of(std::span<const NodeFacts> nodes, std::span<const PairFacts> pairs);

/// A direction is slow below a third of what is usual, or below a twentieth of what the slower
/// interface says.
inline constexpr double kSlowShare = 1.0 / 3;
inline constexpr double kSlowShareOfNic = 1.0 / 20;
/// A round trip is slow above three times what is usual, and this much longer.
inline constexpr double kSlowRttFactor = 3;
inline constexpr double kSlowRttMoreUs = 300;

enum class Trouble : std::uint8_t {
  none,
  broken,   ///< no connection, or it broke
  one_way,  ///< only one of them can open connections
  slow,     ///< bandwidth, in a direction or both
  delayed,  ///< round trips
};
[[nodiscard]] std::string_view to_string(Trouble trouble);

struct PairVerdict {
  Trouble trouble = Trouble::none;
  bool to_high = false, to_low = false;  ///< directions in which it is; both for broken, delayed
};
[[nodiscard]] PairVerdict judge_pair(const PairFacts& pair, std::span<const NodeFacts> nodes,
                                     const Usual& usual);

/// One thing to look at.
struct Blame {
  Trouble trouble = Trouble::none;
  std::vector<int> nodes;  ///< one: that node; two: what lies between, in the direction of their
                           ///< order if `is_directed`
  bool is_directed = false;
  std::string what;  ///< in words: who, and how slow against what
  std::string remedy;
};

struct NetworkVerdict {
  Usual usual;
  std::vector<PairVerdict> pairs;  ///< of the pairs given, in their order
  std::vector<Blame> blamed;       ///< empty: all is well
};
/// A node is blamed that has trouble with every partner, of two or more, some of whom have none
/// among each other; else the pairs.
[[nodiscard]] NetworkVerdict judge_network(std::span<const NodeFacts> nodes,
                                           std::span<const PairFacts> pairs);

/// "9.41 Gbit/s", "4.8 Mbit/s", "12 kbit/s"
[[nodiscard]] std::string rate_text(double mbit);
/// "0.052 ms", "104 ms"
[[nodiscard]] std::string time_text(double us);

}  // namespace acc::selftest
