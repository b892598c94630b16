#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// The sampler: a process that asks NVML once a second what the GPUs do, and prints it, a line of
/// JSON each time, until nobody reads. A driver may block for as long as it likes: never in an
/// agent. acc-launch executes itself as one.
namespace acc::agent::gpu {

/// argv[0] of a sampler, and its name in ps.
inline constexpr const char* kSamplerName = "acc:gpus";

struct Sample {
  std::uint32_t index = 0;
  std::optional<std::uint32_t> percent;  ///< of the time in which a kernel ran; none: not supported
  std::uint64_t memory_used = 0;
  std::uint64_t memory_total = 0;
  std::vector<std::int64_t> pids;  ///< that use it; in a container those of the host, or none
  friend bool operator==(const Sample&, const Sample&) = default;
};

[[nodiscard]] std::string encode(const std::vector<Sample>& samples);
/// Total: any bytes give samples or nothing.
[[nodiscard]] std::optional<std::vector<Sample>> decode_samples(std::string_view line);

/// Which GPUs a worker uses: those that name one of its processes. Where none names a process that
/// is known here (a container), the one that has its local rank, if there are as many as workers.
/// @param workers  pid of each local rank, which leads its process group; 0: none
/// @param group_of  of a process that isn't known here 0 or less
[[nodiscard]] std::vector<std::vector<std::uint32_t>> gpus_of_workers(
    const std::vector<Sample>& samples, const std::vector<std::int64_t>& workers,
    std::int64_t (*group_of)(std::int64_t pid));

/// If argv[0] says that this process is a sampler: does its work and returns its exit code.
std::optional<int> sampler_main(int argc, char** argv);

}  // namespace acc::agent::gpu
