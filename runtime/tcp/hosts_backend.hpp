#pragma once

#include "runtime/backend.hpp"
#include "runtime/bootstrap/launch_environment.hpp"
#include "runtime/bootstrap/local_group.hpp"
#include "runtime/bootstrap/manifest.hpp"
#include "runtime/net/store.hpp"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace acc::runtime {

struct HostsOptions {
  int rank = 0;
  std::string group;  ///< for messages
  std::string key;    ///< prefix of keys in the store
  GroupManifest manifest;
  std::vector<RankFacts> ranks;
  Lookup lookup;  ///< for the interface variables
  std::string master_address;
  std::function<void()> check_parties = {};  ///< as Gather::Options::check_parties
};

/// The backend of ranks on several hosts: shared memory within a host, TCP between them, spread
/// over the ranks of each host. Collective.
/// @param local_group  the ranks of this host.
/// @throws Error the same on every rank
[[nodiscard]] std::unique_ptr<Backend> make_hosts_backend(Store& store,
                                                          std::shared_ptr<LocalGroup> local_group,
                                                          HostsOptions options, Deadline deadline);

}  // namespace acc::runtime
