#pragma once

#include "runtime/backend.hpp"

#include <acc/error.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Finds which ranks are behind and where their calls differ, from the progress that each reports.
namespace acc::runtime::nccl {

/// Progress of a rank.
struct RankProgress {
  int rank = 0;
  Descriptor enqueued{};             ///< the last call; none: no call yet
  Descriptor started{};              ///< the last one begun by the device
  Descriptor completed{};            ///< the last one completed by the device
  std::vector<Descriptor> recent{};  ///< calls in progress, oldest first, and a few before them
  std::string trouble{};             ///< "the CUDA driver has not answered for 12 s"; empty: none
  friend bool operator==(const RankProgress&, const RankProgress&) = default;
};
inline constexpr std::size_t kRecent = 16;

/// As JSON, for the store. The reader is total: any bytes give a value or nothing.
[[nodiscard]] std::string to_text(const RankProgress& progress);
[[nodiscard]] std::optional<RankProgress> parse_progress(std::string_view text);

struct OverdueCall {
  std::string group{};
  Descriptor what{};  ///< the call that timed out
  int peer = -1;      ///< of send and recv
  Millis waited{0};
  int rank = 0;  ///< the rank that timed out
  std::vector<RankFacts> ranks{};
};

/// timed_out, or mismatch if the ranks called different things. @param progress_of  by rank;
/// nothing: no answer.
[[nodiscard]] Error diagnose(const OverdueCall& overdue,
                             const std::vector<std::optional<RankProgress>>& progress_of);

}  // namespace acc::runtime::nccl
