#include "agent/memory_limit.hpp"

#include "agent/small_file.hpp"
#include "common/text.hpp"

#include <unistd.h>

#include <algorithm>

namespace acc::agent {

namespace {

struct Place {
  std::string folder;
  bool is_v2 = false;
};

// /proc/self/cgroup: "4:memory:/path" (v1) and "0::/path" (v2). A folder counts when its file of
// kills is there.
Place find_memory_cgroup() {
  for (const auto& line : split(read_small_file("/proc/self/cgroup"), '\n')) {
    const auto fields = split(line, ':');
    if (fields.size() < 3) continue;
    const std::string path = line.substr(fields[0].size() + fields[1].size() + 2);
    if (fields[1].empty()) {
      const std::string folder = "/sys/fs/cgroup" + path;
      if (::access((folder + "/memory.events").c_str(), R_OK) == 0) return {folder, true};
      continue;
    }
    bool is_memory = false;
    for (const auto& controller : split(fields[1], ','))
      is_memory = is_memory || controller == "memory";
    const std::string folder = "/sys/fs/cgroup/memory" + path;
    if (is_memory && ::access((folder + "/memory.oom_control").c_str(), R_OK) == 0)
      return {folder, false};
  }
  return {};
}

std::optional<std::uint64_t> number_in(const std::string& path) {
  return parse_number<std::uint64_t>(trim(read_small_file(path)));
}

// "MemAvailable:   123 kB", "inactive_file 4096": the number after `key`.
std::optional<std::uint64_t> entry_in(const std::string& path, std::string_view key) {
  for (const auto& line : split(read_small_file(path), '\n')) {
    if (!line.starts_with(key)) continue;
    const auto words = split(trim(std::string_view{line}.substr(key.size())), ' ');
    return parse_number<std::uint64_t>(words.front());
  }
  return std::nullopt;
}

}  // namespace

std::uint64_t free_memory_bytes() {
  const std::uint64_t machine = entry_in("/proc/meminfo", "MemAvailable:").value_or(0) * 1024;
  const auto place = find_memory_cgroup();
  if (place.folder.empty()) return machine;
  const auto file = [&place](const char* v2, const char* v1) {
    return number_in(place.folder + (place.is_v2 ? v2 : v1));
  };
  const auto limit = file("/memory.max", "/memory.limit_in_bytes");
  const auto used = file("/memory.current", "/memory.usage_in_bytes");
  if (!limit || !used) return machine;
  // Pages of files that nothing uses are given up when memory is needed.
  const char* const idle_files = place.is_v2 ? "inactive_file " : "total_inactive_file ";
  const auto idle = entry_in(place.folder + "/memory.stat", idle_files).value_or(0);
  const auto held = *used > idle ? *used - idle : 0;
  return std::min(machine, *limit > held ? *limit - held : 0);
}

std::optional<std::uint64_t> MemoryWatch::kills() const {
  if (folder_.empty()) return std::nullopt;
  for (const auto& line : split(
           read_small_file(folder_ + (is_v2_ ? "/memory.events" : "/memory.oom_control")), '\n')) {
    const std::string_view key = "oom_kill ";
    if (line.starts_with(key))
      return parse_number<std::uint64_t>(std::string_view{line}.substr(key.size()));
  }
  return std::nullopt;
}

MemoryFacts MemoryWatch::now() const {
  MemoryFacts facts;
  if (folder_.empty()) return facts;
  facts.oom_kills = kills();
  facts.limit_bytes = number_in(folder_ + (is_v2_ ? "/memory.max" : "/memory.limit_in_bytes"));
  facts.peak_bytes = number_in(folder_ + (is_v2_ ? "/memory.peak" : "/memory.max_usage_in_bytes"));
  constexpr std::uint64_t kUnlimited = 1ULL << 60U;  // v1 says "none" by a very large number
  if (facts.limit_bytes && *facts.limit_bytes >= kUnlimited) facts.limit_bytes.reset();
  return facts;
}

void MemoryWatch::find() {
  if (looked_) return;
  auto place = find_memory_cgroup();
  folder_ = std::move(place.folder);
  is_v2_ = place.is_v2;
  looked_ = true;
}

}  // namespace acc::agent
