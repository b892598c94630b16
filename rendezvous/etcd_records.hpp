#pragma once

#include "common/error.hpp"
#include "rendezvous/messages.hpp"

#include <cstdint>
#include <string>
#include <string_view>

/// What we keep in etcd, as text that a person can read with `etcdctl get --prefix`. Pure.
namespace acc::rendezvous {

inline constexpr std::size_t kMaxEtcdTable = 1024 * 1024;  ///< bytes of a committed table

/// Who coordinates the job, and where.
struct Leader {
  NodeId node;
  HostPort at;
  std::uint32_t term = 0;
  friend bool operator==(const Leader&, const Leader&) = default;
};

/// What the leader wrote last, for the one after it.
struct CommittedTable {
  Epoch epoch;
  std::string bytes;  ///< the coordinator's own format
  friend bool operator==(const CommittedTable&, const CommittedTable&) = default;
};

/// The keys of one job.
struct EtcdKeys {
  std::string leader;
  std::string term;
  std::string table;
  EtcdKeys(std::string_view prefix, std::string_view job);
};

[[nodiscard]] std::string to_etcd(const Leader& leader);
[[nodiscard]] Result<Leader> parse_leader(std::string_view value);

[[nodiscard]] std::string to_etcd(const CommittedTable& table);
[[nodiscard]] Result<CommittedTable> parse_committed_table(std::string_view value);

/// The counter of terms; it only ever grows.
[[nodiscard]] Result<std::uint32_t> parse_term(std::string_view value);

}  // namespace acc::rendezvous
