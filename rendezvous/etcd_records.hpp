#pragma once

#include "common/error.hpp"
#include "rendezvous/messages.hpp"
#include "rendezvous/round_record.hpp"

#include <cstdint>
#include <string>
#include <string_view>

/// Our records in etcd: leader and term as text that a person can read with `etcdctl get --prefix`,
/// the newest round as a RoundRecord. Pure.
namespace acc::rendezvous {

inline constexpr std::size_t kMaxRoundRecord = 1024 * 1024;  ///< bytes; of a key's value in etcd

/// The node that coordinates the job, and the address of its coordinator.
struct Leader {
  NodeId node;
  HostPort at;
  std::uint32_t term = 0;
  friend bool operator==(const Leader&, const Leader&) = default;
};

/// The keys of one job.
struct EtcdKeys {
  std::string leader;
  std::string term;
  std::string table;  ///< the newest committed round
  EtcdKeys(std::string_view prefix, std::string_view job);
};

[[nodiscard]] std::string to_etcd(const Leader& leader);
[[nodiscard]] Result<Leader> parse_leader(std::string_view value);

/// As parse_round_record(), with the cure for a key written by another program.
[[nodiscard]] Result<RoundRecord> parse_table(std::string_view value);

/// The counter of terms; it only ever grows.
[[nodiscard]] Result<std::uint32_t> parse_term(std::string_view value);

}  // namespace acc::rendezvous
