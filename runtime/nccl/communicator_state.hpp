#pragma once

#include "common/enum_names.hpp"

#include <cstdint>
#include <string_view>

/// State machine of an NCCL communicator: pure, without CUDA, threads or a clock.
///
///   idle ──► initialising ──► ready ──► finalising ──► done
///                 │             │           │
///                 └─────────────┴───────────┴──► broken
namespace acc::runtime::nccl {

enum class Phase : std::uint8_t { idle, initialising, ready, broken, finalising, done };
inline constexpr std::size_t kPhases = 6;

enum class Happening : std::uint8_t {
  begin,      ///< the unique id is there
  succeeded,  ///< NCCL reports completion
  failed,     ///< an error, a deadline, a lost peer, abort()
  close,      ///< the owner closes it
};
inline constexpr std::size_t kHappenings = 4;

/// The next operation on NCCL's object, once.
enum class Deed : std::uint8_t { nothing, init, finalize, destroy, abort };

struct Step {
  Phase phase;
  Deed deed;
  friend bool operator==(const Step&, const Step&) = default;
};

/// Total: an event that makes no sense in a phase changes nothing. An object that was initialised
/// is either destroyed or aborted, exactly once.
[[nodiscard]] constexpr Step step(Phase phase, Happening what) noexcept {
  using enum Phase;
  using enum Deed;
  constexpr auto same = [](Phase at) { return Step{at, nothing}; };
  switch (phase) {
    case idle:
      if (what == Happening::begin) return {initialising, init};
      if (what == Happening::failed) return {broken, nothing};  // there is no object yet
      if (what == Happening::close) return {done, nothing};
      return same(phase);
    case initialising:
      if (what == Happening::succeeded) return {ready, nothing};
      if (what == Happening::failed || what == Happening::close) return {broken, abort};
      return same(phase);
    case ready:
      if (what == Happening::failed) return {broken, abort};
      if (what == Happening::close) return {finalising, finalize};
      return same(phase);
    case finalising:
      if (what == Happening::succeeded) return {done, destroy};
      if (what == Happening::failed) return {broken, abort};
      return same(phase);
    case broken:
    case done:
      return same(phase);
  }
  return same(phase);
}

[[nodiscard]] constexpr std::string_view to_string(Phase phase) noexcept {
  return EnumNames<Phase, Phase::done>{
      {"idle", "initialising", "ready", "broken", "finalising", "done"}}[phase];
}

}  // namespace acc::runtime::nccl
