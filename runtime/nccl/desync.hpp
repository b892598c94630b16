#pragma once

#include "runtime/backend.hpp"

#include <acc/error.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Who is behind, and where the ranks differ: made of what each of them says of itself.
namespace acc::runtime::nccl {

/// How far one rank is.
struct Position {
  int rank = 0;
  Descriptor enqueued{};             ///< the last call, none: there was none yet
  Descriptor started{};              ///< the last one that the device has begun
  Descriptor completed{};            ///< the last one that the device is through with
  std::vector<Descriptor> recent{};  ///< what is under way, oldest first, and a little before it
  std::string trouble{};             ///< "the CUDA driver has not answered for 12 s"; empty: none
  friend bool operator==(const Position&, const Position&) = default;
};
inline constexpr std::size_t kRecent = 16;

/// As JSON, for the store. The reader is total: any bytes give a position or nothing.
[[nodiscard]] std::string to_text(const Position& position);
[[nodiscard]] std::optional<Position> parse_position(std::string_view text);

struct Stuck {
  std::string group{};
  Descriptor what{};  ///< what did not end in time
  int peer = -1;      ///< of send and recv
  Millis waited{0};
  int rank = 0;  ///< who asks
  std::vector<RankFacts> ranks{};
};

/// timed_out, or mismatch where the ranks called different things. `positions`: by rank; nothing:
/// no answer.
[[nodiscard]] Error diagnose(const Stuck& stuck,
                             const std::vector<std::optional<Position>>& positions);

}  // namespace acc::runtime::nccl
