#pragma once

#include "runtime/backend.hpp"
#include "runtime/bootstrap/circle.hpp"
#include "runtime/bootstrap/contract.hpp"
#include "runtime/bootstrap/roll.hpp"
#include "runtime/bootstrap/store.hpp"

#include <memory>
#include <string>
#include <vector>

namespace acc::runtime {

struct HostsOptions {
  int rank = 0;
  std::string group;  ///< for messages
  std::string key;    ///< prefix of keys in the store
  Roll roll;
  std::vector<RankFacts> ranks;
  Lookup lookup;  ///< for the interface variables
  std::string master_address;
};

/// The backend of ranks on several hosts: shared memory within a host, TCP between them, each rank
/// of a host carrying its share. Collective.
/// @param circle  the ranks of this host.
/// @throws Error the same on every rank.
[[nodiscard]] std::unique_ptr<Backend> make_hosts_backend(Store& store,
                                                          std::shared_ptr<Circle> circle,
                                                          HostsOptions options, Deadline deadline);

}  // namespace acc::runtime
