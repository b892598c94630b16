#include "runtime/shm/waiting.hpp"

#include "common/text.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cmath>
#include <ctime>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

namespace acc::runtime::shm {
namespace {

// Not FUTEX_PRIVATE_FLAG: the waiters are in other processes.
long futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value,
           const timespec* limit) noexcept {
  static_assert(sizeof(word) == sizeof(std::uint32_t));
  return ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), operation, value, limit,
                   nullptr, 0);
}

std::optional<std::string> first_line(const std::string& path) {
  std::ifstream file{path};
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

/// Cores of cgroup v2's "QUOTA PERIOD"; nothing: "max".
std::optional<double> cores_of(const std::string& cpu_max) {
  const auto parts = split(cpu_max, ' ');
  if (parts.size() != 2) return std::nullopt;
  const auto quota = parse_number<long>(parts[0]);
  const auto period = parse_number<long>(parts[1]);
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

std::optional<double> cores_of_v1(const std::string& folder) {
  const auto quota = first_line(folder + "/cpu.cfs_quota_us");
  const auto period = first_line(folder + "/cpu.cfs_period_us");
  if (!quota || !period) return std::nullopt;
  return cores_of(*quota + " " + *period);
}

/// The tightest limit of a control group and its ancestors. In a container the path may be valid
/// outside only; the container's own limit is then at the root.
template <class Read>
void tighten(double& least, std::string path, Read read) {
  for (;;) {
    if (const auto cores = read(path)) least = std::min(least, *cores);
    const auto slash = path.rfind('/');
    if (slash == std::string::npos) return;
    path.resize(slash);
  }
}

double read_quota() {
  double least = std::numeric_limits<double>::infinity();
  std::ifstream groups{"/proc/self/cgroup"};
  for (std::string line; std::getline(groups, line);) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const auto controllers = split(line.substr(first + 1, second - first - 1), ',');
    std::string path = line.substr(second + 1);
    if (path == "/") path.clear();
    if (std::find(controllers.begin(), controllers.end(), "cpu") != controllers.end()) {
      tighten(least, path,
              [](const std::string& at) { return cores_of_v1("/sys/fs/cgroup/cpu" + at); });
    } else if (line.starts_with("0::")) {
      tighten(least, path, [](const std::string& at) -> std::optional<double> {
        const auto limit = first_line("/sys/fs/cgroup" + at + "/cpu.max");
        return limit ? cores_of(*limit) : std::nullopt;
      });
    }
  }
  return least;
}

}  // namespace

void wake(Word& word) noexcept { futex(word.count, FUTEX_WAKE, INT_MAX, nullptr); }

void poke(Word& word) noexcept {
  auto count = word.count.load();
  while (!word.count.compare_exchange_weak(count,
                                           (count & ~(kStep - 1)) | ((count + 1) & (kStep - 1)))) {
  }
  wake(word);
}

void sleep_on(Word& word, std::uint32_t seen, std::chrono::nanoseconds limit) noexcept {
  const auto ns = std::max<std::int64_t>(limit.count(), 1);
  const timespec time{static_cast<time_t>(ns / 1'000'000'000), ns % 1'000'000'000};
  futex(word.count, FUTEX_WAIT, seen, &time);
}

SpinPolicy spin_policy(int ranks, int cores) noexcept {
  // Spinning for less than a wake-up takes (20 µs) and then sleeping would end in a state where all
  // ranks always sleep: the yields last that long.
  if (ranks > cores) return {.pauses = 0, .yields = 50};
  return {.pauses = 100, .yields = 300};
}

int quota_cores() noexcept {
  try {
    const double cores = read_quota();
    if (cores < 1e6) return std::max(1, static_cast<int>(std::floor(cores)));
  } catch (...) {  // no memory for a file name: as if there were no limit
  }
  return std::numeric_limits<int>::max();
}

}  // namespace acc::runtime::shm
