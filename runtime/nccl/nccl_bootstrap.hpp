#pragma once

#include "runtime/group/group.hpp"
#include "runtime/nccl/nccl_api.hpp"
#include "runtime/net/store.hpp"

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Out-of-band bootstrap of a communicator: each rank reports its setup to rank 0, which answers
/// with the unique id or with an error. So a rank that can't take part fails all of them
/// immediately, by name.
namespace acc::runtime::nccl {

/// What a rank contributes.
struct RankSetup {
  int rank = 0;
  int version = 0;       ///< of NCCL: 22809
  std::string device{};  ///< PCI bus id
  std::string
      machine{};       ///< by what NCCL distinguishes hosts: NCCL_HOSTID, else the kernel's boot id
  std::string host{};  ///< for messages
  std::string trouble{};  ///< why it can't take part; empty: it can
  friend bool operator==(const RankSetup&, const RankSetup&) = default;
};

/// Text for the store.
[[nodiscard]] std::string to_text(const RankSetup& setup);
[[nodiscard]] std::optional<RankSetup> parse_setup(std::string_view text);

/// Why these ranks can't form a communicator; nothing: they can.
[[nodiscard]] std::optional<Error> incompatibility(const std::string& group,
                                                   const std::vector<RankSetup>& setups);

/// Reports this rank and waits for all. Collective.
/// @param make_id  called on rank 0 if all are compatible; what it throws is reported to all
/// @param check_parties  as Gather::Options::check_parties
/// @throws Error  the same on every rank: timed_out naming the missing ranks, or the
///   incompatibility
[[nodiscard]] UniqueId bootstrap(Store& store, const GroupFacts& facts, const RankSetup& mine,
                                 std::optional<Clock::time_point> deadline, Millis limit,
                                 const std::function<UniqueId()>& make_id,
                                 const std::function<void()>& check_parties = {});

/// The identity of this host for NCCL, which refuses two ranks with the same device on it.
[[nodiscard]] std::string machine_id();

}  // namespace acc::runtime::nccl
