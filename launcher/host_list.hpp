#pragma once

#include "common/error.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// The hosts of a job that one command starts: --hosts and host files (pure). Total: any bytes give
/// hosts or complaints.
namespace acc::launcher {

struct Host {
  std::string login;                   ///< as the transport takes it: "user@node1", "fd00::1"
  std::string address;                 ///< without the user and without brackets
  std::optional<std::uint32_t> slots;  ///< workers; nothing: not told
  std::string where;                   ///< "--hosts", "hosts.txt:3"
};

struct HostList {
  std::vector<Host> hosts;  ///< each once, in the order of the first mention
  Complaints complaints;
};

inline constexpr std::size_t kMaxHostfileBytes = std::size_t{16} << 20U;
inline constexpr std::size_t kMaxHosts = 100'000;
inline constexpr std::uint32_t kMaxSlots = 100'000;  ///< of one host

/// "a,b:8,user@c[1-4]:2,[fd00::1]:4": names, Slurm's ranges, slots behind a colon.
[[nodiscard]] HostList parse_hosts(std::string_view text);

/// A file of Open MPI or DeepSpeed ("node1 slots=8 max_slots=8"), MPICH ("node1:8"), a plain list,
/// or what `scontrol show hostnames` prints; `#` begins a comment. A host that is named again
/// without slots gets one more, as in $PBS_NODEFILE; slots that are given again are added.
/// @param path  for complaints
[[nodiscard]] HostList parse_hostfile(std::string_view text, const std::string& path);

/// --hosts behind --hostfile, each host once.
[[nodiscard]] HostList merge_hosts(HostList one, HostList other);

/// @param host_name  of this machine
[[nodiscard]] bool is_this_machine(const Host& host, std::string_view host_name);

}  // namespace acc::launcher
