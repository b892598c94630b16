#include "launcher/host_limits.hpp"

#include "common/text.hpp"

#include <sched.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <fstream>
#include <thread>

namespace acc::launcher {

std::string first_line(const std::string& path) {
  std::ifstream file{path};
  std::string line;
  std::getline(file, line);
  return line;
}

std::string cgroup_folder() {
  std::ifstream file{"/proc/self/cgroup"};
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("0::")) return "/sys/fs/cgroup" + line.substr(3);
  return {};
}

std::optional<double> cpu_quota(const std::string& cgroup) {
  const auto words = split(first_line(cgroup + "/cpu.max"), ' ');
  if (words.size() != 2) return std::nullopt;
  const auto quota = parse_number<std::uint64_t>(words[0]);
  const auto period = parse_number<std::uint64_t>(words[1]);
  if (!quota || !period || *period == 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

std::optional<std::uint64_t> memory_field(const std::string& name) {
  std::ifstream file{"/proc/meminfo"};
  std::uint64_t kib = 0;
  for (std::string field, unit; file >> field >> kib; std::getline(file, unit))
    if (field == name + ":") return kib * 1024;
  return std::nullopt;
}

std::uint32_t allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) == 0)
    return static_cast<std::uint32_t>(std::max(1, CPU_COUNT(&set)));
  return std::max(1U, std::thread::hardware_concurrency());
}

std::optional<std::uint64_t> shared_memory_size() {
  struct statvfs shm {};
  if (::statvfs("/dev/shm", &shm) != 0) return std::nullopt;
  return static_cast<std::uint64_t>(shm.f_blocks) * shm.f_frsize;
}

}  // namespace acc::launcher
