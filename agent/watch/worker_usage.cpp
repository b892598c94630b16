#include "agent/watch/worker_usage.hpp"

#include "agent/containment.hpp"
#include "agent/control_protocol.hpp"
#include "agent/process_stat.hpp"
#include "agent/small_file.hpp"
#include "agent/worker_group.hpp"
#include "common/text.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <string_view>

namespace acc::agent {

namespace {

// Of a process and its children; a read that fails is nothing.
void add_usage(pid_t pid, WorkerUsage& usage, int depth) {
  static const auto ticks = static_cast<std::uint64_t>(::sysconf(_SC_CLK_TCK));
  const auto folder = "/proc/" + std::to_string(pid) + "/";
  if (const auto used = control::usage_from_stat(read_small_file(folder + "stat"), 1, ticks))
    usage.cpu_ms += static_cast<std::uint64_t>(std::llround(used->cpu_s * 1000));
  // Calls, and what the disk did: a mapped file is read without a call.
  constexpr std::array<std::string_view, 4> kCounted{"rchar", "wchar", "read_bytes", "write_bytes"};
  for (const auto& line : split(read_small_file(folder + "io"), '\n')) {
    const auto colon = line.find(": ");
    if (colon == std::string::npos ||
        std::ranges::find(kCounted, std::string_view{line}.substr(0, colon)) == kCounted.end())
      continue;
    usage.io_bytes += parse_number<std::uint64_t>(line.substr(colon + 2)).value_or(0);
  }
  constexpr int kDeepestChild = 8;
  if (depth >= kDeepestChild) return;
  for (const auto child : children_of(pid)) add_usage(child, usage, depth + 1);
}

}  // namespace

std::vector<WorkerUsage> usage_of(const std::vector<WorkerRecord>& workers) {
  std::vector<WorkerUsage> all;
  for (const auto& record : workers) {
    if (!record.is_living()) continue;
    all.emplace_back();
    add_usage(record.pid, all.back(), 0);
  }
  return all;
}

}  // namespace acc::agent
