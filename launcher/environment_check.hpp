#pragma once

#include "agent/job_plan.hpp"
#include "launcher/config.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

/// Does this machine have what a job needs? The first half of acc-test: what can be seen before any
/// process is started. Looking is one function, judging another, which is pure.
namespace acc::launcher {

enum class Verdict : std::uint8_t {
  ok,
  note,     ///< worth knowing, nothing to do
  warning,  ///< jobs run, but something will bite
  failed,   ///< this job can't run
};
[[nodiscard]] std::string_view to_string(Verdict verdict);

struct Check {
  std::string name;
  Verdict verdict = Verdict::ok;
  std::string found;   ///< what is so, in words
  std::string remedy;  ///< what to do; empty if there is nothing to do
};

/// What was seen. An absent value couldn't be found out.
struct MachineView {
  std::string host_name;
  std::vector<std::string> host_addresses;  ///< what the host's own name resolves to
  std::string interpreter;
  bool interpreter_runs = false;
  bool interpreter_has_torch = false;
  bool master_port_taken = false;
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
};

/// Looks at this machine; nothing is started but `worker_program --probe`, which tells about NCCL.
[[nodiscard]] MachineView look_at_machine(const agent::JobPlan& plan,
                                          const Environment& environment,
                                          const std::string& worker_program);

/// What the program that every rank runs finds wrong with its options; empty: nothing. Asked before
/// a job is started, which would fail with them on every rank.
[[nodiscard]] std::string wrong_options(const std::string& worker_program,
                                        const std::vector<std::string>& options);

/// The checks for this job on such a machine, in the order in which they are told.
[[nodiscard]] std::vector<Check> judge(const MachineView& machine, const agent::JobPlan& plan);

/// "ok       open files    1048576 may be open" and, below a warning or failure, its remedy.
[[nodiscard]] std::string to_text(const Check& check);

}  // namespace acc::launcher
