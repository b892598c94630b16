#pragma once

#include <acc/error.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace acc::runtime {

/// Ranks with the same key can share memory and watch each other's pid.
struct HostFacts {
  /// Boot id, user, and the namespaces of network (abstract sockets) and pids.
  std::string key;
  std::string name;  ///< for people
  /// Boot id and namespace of the network: where this is the same, loopback leads from one to the
  /// other, also if they can't share memory.
  std::string network;
  friend bool operator==(const HostFacts&, const HostFacts&) = default;
};
[[nodiscard]] HostFacts host_facts();

/// What a rank says of itself when a group is formed.
struct Member {
  int rank = 0;
  int size = 1;
  int job_rank = -1;  ///< as the agent counts; -1: no agent
  std::int64_t pid = 0;
  HostFacts host;
  std::string circle;   ///< abstract name of its socket for those on the same host
  std::string backend;  ///< "cpu", "nccl"

  friend bool operator==(const Member&, const Member&) = default;
};

[[nodiscard]] std::string to_text(const Member& member);
/// nothing: not written by this version of the library.
[[nodiscard]] std::optional<Member> parse_member(std::string_view text);
[[nodiscard]] std::string describe(const Member& member);  ///< "2 (host b, pid 71)"

/// An error on its way to another rank.
[[nodiscard]] std::string to_text(const Error& error);
[[nodiscard]] std::optional<Error> parse_error(std::string_view text);

}  // namespace acc::runtime
