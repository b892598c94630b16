#pragma once

#include "agent/job_plan.hpp"
#include "agent/output/console_facts.hpp"

#include <sys/resource.h>

#include <cstddef>
#include <optional>
#include <string>

/// How many descriptors a job needs, and how many this process may have: known before anything is
/// started, so that a limit too low costs a message and not a try.
namespace acc::agent {

/// What the agent keeps open for all workers of this node from their start on (pure).
[[nodiscard]] std::size_t descriptors_of_workers(const OutputPlan& output, std::uint32_t workers,
                                                 const ConsoleFacts& console);

/// "cannot start 64 workers: that takes 210 descriptors, and the limit is 100: raise it (ulimit -n
/// 210, LimitNOFILE=)"; empty if the limit is high enough.
[[nodiscard]] std::string describe_shortage(std::uint32_t workers, std::size_t needed,
                                            std::size_t limit);

/// The limit of this process, raised to the hard one. Workers get back what we were given.
class DescriptorLimit {
 public:
  DescriptorLimit();
  /// What the caller had; nothing if it wasn't raised.
  [[nodiscard]] const std::optional<rlimit>& before() const { return before_; }
  [[nodiscard]] std::size_t now() const { return now_; }

 private:
  std::optional<rlimit> before_;
  std::size_t now_ = 0;
};

/// Of this process.
[[nodiscard]] std::size_t count_open_descriptors();

/// The agent itself, without a worker.
inline constexpr std::size_t kAgentDescriptors = 40;

}  // namespace acc::agent
