#pragma once

#include "runtime/bootstrap/roll.hpp"

#include <vector>

namespace acc::runtime {

/// Which ranks are on which host, and who carries bytes between the hosts.
///
/// Every host has the same number of carriers, its first `columns` ranks; the carriers number c of
/// all hosts are column c, connected each with each. What belongs to the n-th rank of a host
/// travels in column n % columns, so all network cards and cores have their share.
struct Placement {
  struct Host {
    std::string name;
    std::vector<int> ranks;  ///< ascending
  };
  std::vector<Host> hosts;  ///< in the order of their first ranks
  int columns = 1;
  /// The ranks of each host follow each other: then sums over hosts can go from host to host.
  bool in_order = true;
  std::size_t most = 1;  ///< ranks on one host

  // Of this rank:
  int rank = 0;
  std::size_t host = 0;   ///< index of its host
  std::size_t index = 0;  ///< among the ranks of its host

  Placement(const Roll& roll, int rank);

  [[nodiscard]] const std::vector<int>& near() const { return hosts[host].ranks; }
  [[nodiscard]] bool leads() const { return index == 0; }
  [[nodiscard]] bool carries() const { return index < static_cast<std::size_t>(columns); }
  [[nodiscard]] int size() const { return static_cast<int>(host_of_.size()); }
  [[nodiscard]] std::size_t host_of(int of) const { return host_of_[static_cast<std::size_t>(of)]; }
  [[nodiscard]] std::size_t index_of(int of) const {
    return index_of_[static_cast<std::size_t>(of)];
  }
  /// Does this rank carry what belongs to rank `of`, on its own host or another?
  [[nodiscard]] bool carries(int of) const {
    return index_of(of) % static_cast<std::size_t>(columns) == index;
  }
  /// One rank a host: nothing is to be shared within hosts.
  [[nodiscard]] bool alone() const { return most == 1; }

 private:
  std::vector<std::size_t> host_of_, index_of_;  ///< by rank
};

}  // namespace acc::runtime
