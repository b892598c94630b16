#pragma once

#include "runtime/selftest/pair_probe.hpp"
#include "runtime/selftest/results.hpp"

#include <acc/process_group.hpp>

namespace acc::selftest {

struct NetworkOptions {
  /// Of a connection, and of silence in one.
  runtime::Millis limit{5000};
};

/// acc-test --network, on each rank: the first of each node measures its node's pairs with the
/// others, in rounds that node 0 calls through the job's store. A process group isn't formed: it
/// needs every pair to be whole, which is what is asked here.
/// @return the exit code of the rank
/// @throws runtime::Error: no launcher with nodes, or its store can't be reached
[[nodiscard]] int check_network(const NetworkOptions& options, Results& results);

}  // namespace acc::selftest
