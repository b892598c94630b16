#include "agent/descriptor_limit.hpp"

#include "agent/output/routes.hpp"

#include <dirent.h>

namespace acc::agent {

std::size_t descriptors_of_workers(const OutputPlan& output, std::uint32_t workers,
                                   const ConsoleFacts& console) {
  const auto of_stream = [](const Route& route) -> std::size_t {
    if (route.inherit) return 0;
    return route.file ? 2 : 1;
  };
  std::size_t sum = 0;
  for (std::uint32_t i = 0; i < workers; ++i) {
    const auto routes = routes_of(output, LocalRank{i}, workers, console);
    sum += 1 + of_stream(routes.out) + (routes.one_pipe ? 0 : of_stream(routes.err));  // 1: pidfd
  }
  return sum;
}

std::string describe_shortage(std::uint32_t workers, std::size_t needed, std::size_t limit) {
  if (needed <= limit) return {};
  const std::string number = std::to_string(needed);
  return "cannot start " + std::to_string(workers) + (workers == 1 ? " worker" : " workers") +
         ": that takes " + number + " descriptors, and the limit is " + std::to_string(limit) +
         ": raise it (ulimit -n " + number + ", LimitNOFILE=" + number + ")";
}

DescriptorLimit::DescriptorLimit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlimit given = limit;
  limit.rlim_cur = limit.rlim_max;
  if (given.rlim_cur < given.rlim_max && ::setrlimit(RLIMIT_NOFILE, &limit) == 0) {
    before_ = given;
    now_ = limit.rlim_cur;
  } else {
    now_ = given.rlim_cur;
  }
}

std::size_t count_open_descriptors() {
  DIR* const folder = ::opendir("/proc/self/fd");
  if (folder == nullptr) return kAgentDescriptors;
  std::size_t count = 0;
  while (::readdir(folder) != nullptr) ++count;
  ::closedir(folder);
  constexpr std::size_t kNotOurs = 3;  // ".", ".." and the folder itself
  return count > kNotOurs ? count - kNotOurs : 0;
}

}  // namespace acc::agent
