#pragma once

#include "runtime/bootstrap/store.hpp"
#include "runtime/group/group.hpp"
#include "runtime/nccl/nccl_api.hpp"

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// How the ranks of a communicator meet before NCCL is asked: each one tells rank 0 what it has,
/// and rank 0 answers all with the unique id, or with why there will be none. So a rank that can't
/// take part is an error on all of them at once, with its name.
namespace acc::runtime::nccl {

/// What a rank brings.
struct Arrival {
  int rank = 0;
  int version = 0;        ///< of NCCL: 22809
  std::string device{};   ///< PCI bus id
  std::string machine{};  ///< what NCCL tells hosts by: NCCL_HOSTID, else the kernel's boot id
  std::string host{};     ///< for people
  std::string trouble{};  ///< why it can't take part; empty: it can
  friend bool operator==(const Arrival&, const Arrival&) = default;
};

/// As JSON. The readers are total.
[[nodiscard]] std::string to_text(const Arrival& arrival);
[[nodiscard]] std::optional<Arrival> parse_arrival(std::string_view text);

/// Errors as they go through the store.
[[nodiscard]] std::string to_text(const Error& error);
[[nodiscard]] std::optional<Error> parse_error(std::string_view text);

/// Can these ranks make a communicator? All have arrived.
[[nodiscard]] std::optional<Error> objection(const std::string& group,
                                             const std::vector<Arrival>& arrivals);

/// Tells of this rank, and waits for all. Collective.
/// @param make_id  called on rank 0 when all is well; what it throws is told to all
/// @throws Error  the same on every rank: timed_out with who hasn't come, or the objection
[[nodiscard]] UniqueId assemble(Store& store, const GroupFacts& facts, const Arrival& mine,
                                std::optional<Clock::time_point> deadline, Millis limit,
                                const std::function<UniqueId()>& make_id);

/// What NCCL takes for this host: two ranks with the same device there are refused.
[[nodiscard]] std::string machine_id();

}  // namespace acc::runtime::nccl
