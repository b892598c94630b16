#pragma once

#include "common/error.hpp"
#include "rendezvous/messages.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// The newest round that may have been started, as a new coordinator needs it to continue the job.
/// With etcd it is committed there before any worker starts. Pure.
namespace acc::rendezvous {

struct RoundRecord {
  struct Row {
    NodeId node;
    RankRange ranks{Rank{0}, 0};
    friend bool operator==(const Row&, const Row&) = default;
  };
  Epoch epoch;
  RestartLedger ledger;
  std::vector<Row> rows;  ///< by node rank, at least one
  friend bool operator==(const RoundRecord&, const RoundRecord&) = default;
};

[[nodiscard]] std::string to_bytes(const RoundRecord& record);
/// Total: any bytes give a record or an Error (malformed).
[[nodiscard]] Result<RoundRecord> parse_round_record(std::string_view bytes);

}  // namespace acc::rendezvous
