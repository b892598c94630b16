#pragma once

#include "agent/job_plan.hpp"
#include "launcher/check/worker_program.hpp"
#include "launcher/config.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace acc::check {

/// What a machine has for a job. An absent value couldn't be found out.
struct MachineView {
  std::string host_name;
  std::vector<std::string> host_addresses;  ///< what the host's own name resolves to
  std::string interpreter;
  bool interpreter_runs = false;
  bool interpreter_has_torch = false;
  std::string why_no_master_port;  ///< "is already in use"; empty: it is free, or needed elsewhere
  std::optional<std::uint64_t> open_files, open_files_hard;
  std::optional<std::uint64_t> processes;     ///< RLIMIT_NPROC; absent: no limit
  std::optional<std::uint64_t> locked_bytes;  ///< RLIMIT_MEMLOCK; absent: no limit
  std::optional<std::uint64_t> shm_bytes;     ///< size of /dev/shm
  std::optional<std::uint64_t> memory_bytes;  ///< available to us: machine and cgroup
  std::optional<double> cpu_quota;            ///< of the cgroup, in cores
  std::uint32_t cores = 1;                    ///< that we may use
  bool has_memfd = true;
  bool has_pidfd = true;
  bool cgroup_writable = false;
  std::uint32_t gpus = 0;
  std::string gpu_names;
  std::string driver;
  std::string nccl;        ///< "2.28.9 (/usr/lib/…/libnccl.so.2)"; empty: none found
  std::string nccl_error;  ///< why not
  bool nccl_is_asked_for = false;  ///< by ACC_NCCL_LIBRARY or ACC_BACKEND
  bool job_is_on_cpu = false;      ///< the ranks leave the GPUs alone
  RankVariables rank_variables;    ///< what acc-test's ranks on this machine need besides
};

/// PyTorch is installed and may have an NCCL of its own linked in, but acc's runtime finds none.
[[nodiscard]] bool only_torch_may_have_nccl(const MachineView& view);

/// Whether the ranks use the cpu backend, GPUs or not, as runtime/bootstrap/launch_environment.cpp
/// chooses it: by ACC_BACKEND, else by acc-launch's --cpu (ACCELERATE_USE_CPU).
[[nodiscard]] bool is_on_cpu(const agent::JobPlan& plan, const launcher::Environment& environment);

/// Whether a worker of this machine may have to listen on the port that the job was given.
[[nodiscard]] inline bool may_serve_master_port(const agent::JobPlan& plan) {
  return plan.master.port != 0 && plan.first_rank == Rank{0};
}

/// Looks at this machine; nothing is started but `worker_program --probe`, which tells about NCCL.
[[nodiscard]] MachineView look_at_machine(const agent::JobPlan& plan,
                                          const launcher::Environment& environment,
                                          const std::string& worker_program);

/// MachineView::rank_variables alone.
[[nodiscard]] RankVariables find_rank_variables(const agent::JobPlan& plan,
                                                const launcher::Environment& environment,
                                                const std::string& worker_program);

}  // namespace acc::check
