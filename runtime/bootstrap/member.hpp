#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace acc::runtime {

/// Identity of a host. Ranks with the same key can share memory and watch each other's pid.
struct HostFacts {
  /// Boot id, user, and the namespaces of network (abstract sockets) and pids.
  std::string key;
  std::string name;  ///< for messages
  /// Boot id and network namespace: ranks with the same one reach each other over loopback, even if
  /// they can't share memory.
  std::string network;
  friend bool operator==(const HostFacts&, const HostFacts&) = default;
};
[[nodiscard]] HostFacts host_facts();

/// How a rank announces itself when a group is formed.
struct Member {
  int rank = 0;
  int size = 1;
  int job_rank = -1;  ///< its rank in the job; -1: no agent
  std::int64_t pid = 0;
  HostFacts host;
  std::string local_group;  ///< abstract name of its listener for ranks of the same host
  std::string backend;      ///< "cpu", "nccl"
  std::string group;        ///< the name of the group that it forms
  std::optional<bool> check =
      {};  ///< as its program or its environment says; nothing: neither does

  friend bool operator==(const Member&, const Member&) = default;
};

[[nodiscard]] std::string to_text(const Member& member);
/// nothing: not written by this version of the library.
[[nodiscard]] std::optional<Member> parse_member(std::string_view text);
[[nodiscard]] std::string describe(const Member& member);  ///< "2 (host b, pid 71)"

}  // namespace acc::runtime
