#pragma once

#include "common/unique_fd.hpp"
#include "runtime/net/sockets.hpp"

#include <acc/process_group.hpp>
#include <chrono>
#include <cstdint>
#include <string>

/// One node's side of a measurement between two: who can open a connection to whom, how long a
/// round trip takes, and how much goes through in each direction, one after the other.
namespace acc::selftest {

struct ProbeTimes {
  runtime::Millis limit{5000};  ///< for a connection, and for silence in one
  runtime::Millis pings{200};
  runtime::Millis stream{500};  ///< measured, in each direction
};

struct ProbeTarget {
  int round = 0;  ///< numbers the measurement: a connection of an earlier one is refused
  int me = 0;     ///< of the nodes
  int other = 0;
  runtime::SocketAddress address;  ///< where the other one listens
};

struct ProbeResult {
  std::string refused;  ///< why the other one couldn't be reached; empty: it could
  std::string failure;  ///< of the measurement, seen by the node with the lower number
  double rtt_us = 0;    ///< known to the lower one, as the rates are
  double mbit_to_high = 0, mbit_to_low = 0;
};

/// Blocks for twice the limit, and for what is measured.
/// @param listener  of this node
/// @param token  32 characters that all nodes of the job have: connections of strangers are closed
[[nodiscard]] ProbeResult probe_pair(const UniqueFd& listener, const std::string& token,
                                     const ProbeTarget& target, const ProbeTimes& times);

}  // namespace acc::selftest
