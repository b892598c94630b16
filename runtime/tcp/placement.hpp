#pragma once

#include "runtime/bootstrap/manifest.hpp"

#include <vector>

namespace acc::runtime {

/// Which ranks are on which host, and which of them exchange bytes between hosts.
///
/// Every host has the same number of proxies, its first `rails` ranks. The proxies with index r of
/// all hosts form rail r and are connected pairwise. Data of the n-th rank of a host travels on
/// rail n % rails, which spreads it over network cards and cores.
struct RankPlacement {
  struct Host {
    std::string name;
    std::vector<int> ranks;  ///< ascending
  };
  std::vector<Host> hosts;  ///< ordered by their first ranks
  int rails = 1;
  /// The ranks of each host are contiguous, so sums can go from host to host.
  bool in_order = true;
  std::size_t most = 1;  ///< ranks on one host

  // Of this rank:
  int rank = 0;
  std::size_t host = 0;   ///< index of its host
  std::size_t index = 0;  ///< among the ranks of its host

  RankPlacement(const GroupManifest& manifest, int rank);

  [[nodiscard]] const std::vector<int>& local_ranks() const { return hosts[host].ranks; }
  [[nodiscard]] bool is_leader() const { return index == 0; }
  [[nodiscard]] bool is_proxy() const { return index < static_cast<std::size_t>(rails); }
  [[nodiscard]] int size() const { return static_cast<int>(host_of_.size()); }
  [[nodiscard]] std::size_t host_of(int of) const { return host_of_[static_cast<std::size_t>(of)]; }
  [[nodiscard]] std::size_t index_of(int of) const {
    return index_of_[static_cast<std::size_t>(of)];
  }
  /// Does this rank exchange the data of rank `of`, on its own host or another?
  [[nodiscard]] bool is_proxy(int of) const {
    return index_of(of) % static_cast<std::size_t>(rails) == index;
  }
  /// One rank per host: nothing is shared within a host.
  [[nodiscard]] bool one_rank_per_host() const { return most == 1; }

 private:
  std::vector<std::size_t> host_of_, index_of_;  ///< by rank
};

}  // namespace acc::runtime
