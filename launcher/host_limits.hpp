#pragma once

#include <cstdint>
#include <optional>
#include <string>

/// What this process may use of the machine: its control group, cores and memory. Absent values
/// couldn't be found out, or there is no limit.
namespace acc::launcher {

/// The first line of a file without its end; empty if it can't be read.
[[nodiscard]] std::string first_line(const std::string& path);

/// The folder of our control group (version 2); empty: there is none.
[[nodiscard]] std::string cgroup_folder();

/// In cores: "200000 100000" of cpu.max is 2.
[[nodiscard]] std::optional<double> cpu_quota(const std::string& cgroup);

/// A field of /proc/meminfo, as "MemTotal", in bytes.
[[nodiscard]] std::optional<std::uint64_t> memory_field(const std::string& name);

/// Hardware threads of our affinity mask; at least 1.
[[nodiscard]] std::uint32_t allowed_cores();

/// Size of /dev/shm in bytes.
[[nodiscard]] std::optional<std::uint64_t> shared_memory_size();

}  // namespace acc::launcher
