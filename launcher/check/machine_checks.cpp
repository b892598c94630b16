#include "launcher/check/machine_checks.hpp"

#include "common/enum_names.hpp"
#include "common/text.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>

namespace acc::check {
namespace {

constexpr std::uint64_t kKiB = 1024, kMiB = kKiB * kKiB, kGiB = kKiB * kMiB;

std::string size_text(std::uint64_t bytes) {
  char text[32];
  if (bytes >= kGiB)
    std::snprintf(text, sizeof text, "%.1f GiB",
                  static_cast<double>(bytes) / static_cast<double>(kGiB));
  else
    std::snprintf(text, sizeof text, "%llu MiB", static_cast<unsigned long long>(bytes / kMiB));
  return text;
}

std::string cores_text(double cores) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", cores);
  return text;
}

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

Check check_interpreter(const MachineView& m) {
  if (!m.interpreter_runs)
    return {"python", Verdict::note, "'" + printable(m.interpreter) + "' can't be run",
            "only scripts need it: install python3, or name one by PYTHON_EXEC"};
  if (!m.interpreter_has_torch)
    return {"python", Verdict::note, printable(m.interpreter) + ", without torch",
            "if your scripts import torch: install it there, or name another interpreter by "
            "PYTHON_EXEC"};
  return {"python", Verdict::ok, printable(m.interpreter) + ", with torch", ""};
}

Check check_host_name(const MachineView& m, bool several) {
  const auto known =
      printable(m.host_name) +
      (m.host_addresses.empty() ? " has no address" : " is " + join(m.host_addresses, ", "));
  const bool only_loopback = std::ranges::all_of(m.host_addresses, is_loopback);
  if (!only_loopback) return {"host name", Verdict::ok, known, ""};
  return {"host name", several ? Verdict::warning : Verdict::note, known + ": loopback only",
          several ? "libraries that advertise the host's own name (gloo without "
                    "GLOO_SOCKET_IFNAME) can't be reached: give it the address of the network in "
                    "/etc/hosts"
                  : "one machine doesn't mind; on several, give it an address in /etc/hosts"};
}

Check check_port(const MachineView& m, const agent::JobPlan& plan) {
  const auto port = std::to_string(plan.master.port);
  if (plan.master.port == 0) return {"port", Verdict::ok, "a free one is picked", ""};
  if (!may_serve_master_port(plan))
    return {"port", Verdict::ok, port + " is needed by the machine of rank 0 only", ""};
  if (m.why_no_master_port.empty()) return {"port", Verdict::ok, port + " is free", ""};
  return {"port", plan.master.port_is_given ? Verdict::failed : Verdict::note,
          port + " " + m.why_no_master_port,
          plan.master.port_is_given ? "give another one with --main_process_port, or 0 for any"
                                    : "a free one is picked instead"};
}

Check check_open_files(const MachineView& m, std::uint32_t workers) {
  if (!m.open_files) return {"open files", Verdict::ok, "no limit", ""};
  // Pipes, pidfds and sockets of the agent; a data loader and a mesh of sockets in each worker.
  const std::uint64_t wanted = 1024 + 16ULL * workers;
  const auto found = std::to_string(*m.open_files) + " at a time";
  if (*m.open_files >= wanted) return {"open files", Verdict::ok, found, ""};
  const bool can_rise = !m.open_files_hard || *m.open_files_hard >= wanted;
  return {"open files", Verdict::warning, found,
          can_rise ? "ulimit -n " + std::to_string(wanted)
                   : "raise the hard limit to " + std::to_string(wanted) +
                         " or more (LimitNOFILE= of the service, /etc/security/limits.conf)"};
}

Check check_processes(const MachineView& m, std::uint32_t workers) {
  if (!m.processes) return {"processes", Verdict::ok, "no limit", ""};
  const std::uint64_t wanted = 64ULL * workers + 256;  // threads count, and data loaders
  const auto found = std::to_string(*m.processes) + " processes and threads";
  if (*m.processes >= wanted) return {"processes", Verdict::ok, found, ""};
  return {"processes", Verdict::warning, found, "ulimit -u " + std::to_string(wanted)};
}

Check check_locked(const MachineView& m) {
  if (!m.locked_bytes) return {"locked memory", Verdict::ok, "no limit", ""};
  const bool matters = m.gpus > 0 && *m.locked_bytes < 64 * kMiB;
  return {"locked memory", matters ? Verdict::warning : Verdict::ok, size_text(*m.locked_bytes),
          matters ? "InfiniBand and GPU libraries pin memory: ulimit -l unlimited "
                    "(LimitMEMLOCK=infinity)"
                  : ""};
}

Check check_shm(const MachineView& m) {
  if (!m.shm_bytes)
    return {"/dev/shm", Verdict::warning, "not there",
            "PyTorch's data loaders and NCCL need it: mount a tmpfs there"};
  const bool small = *m.shm_bytes < kGiB;
  return {"/dev/shm", small ? Verdict::warning : Verdict::ok, size_text(*m.shm_bytes),
          small ? "PyTorch's data loaders with several workers and NCCL may fill it: docker run "
                  "--shm-size=8g (acc's own collectives don't use it)"
                : ""};
}

/// runtime/shm/segment.hpp: kMaxRanks. More would each be started, to be told so.
constexpr std::uint32_t kMostRanksOfANode = 512;

Check check_cores(const MachineView& m, std::uint32_t workers) {
  const double cores = m.cpu_quota ? std::min<double>(*m.cpu_quota, m.cores) : m.cores;
  auto found = cores_text(cores) + " for " + std::to_string(workers) +
               (workers == 1 ? " worker" : " workers");
  if (m.cpu_quota && *m.cpu_quota < m.cores)
    found += " (quota of the control group; the machine shows " + std::to_string(m.cores) + ")";
  if (workers > kMostRanksOfANode)
    return {"cores", Verdict::failed, found,
            "our collectives, which acc-test runs, take up to " +
                std::to_string(kMostRanksOfANode) + " ranks on a node"};
  const bool short_of = (m.gpus == 0 || m.job_is_on_cpu) && cores < workers;
  return {"cores", short_of ? Verdict::note : Verdict::ok, found,
          short_of ? "more workers than cores: correct, but slower than it could be" : ""};
}

Check check_memory(const MachineView& m, std::uint32_t workers) {
  if (!m.memory_bytes) return {"memory", Verdict::note, "unknown", ""};
  const auto each = *m.memory_bytes / std::max(1U, workers);
  const bool little = each < 256 * kMiB;
  return {"memory", little ? Verdict::warning : Verdict::ok,
          size_text(*m.memory_bytes) + " free, " + size_text(each) + " a worker",
          little ? "a worker with PyTorch needs 300 MiB before it does anything" : ""};
}

Check check_kernel(const MachineView& m) {
  if (m.has_memfd && m.has_pidfd) return {"kernel", Verdict::ok, "memfd and pidfd work", ""};
  return {"kernel", Verdict::failed, m.has_memfd ? "no pidfd_open" : "no memfd_create",
          "Linux 5.3 or later is needed, or the sandbox (seccomp) must allow it"};
}

Check check_cgroup(const MachineView& m) {
  if (m.cgroup_writable) return {"control group", Verdict::ok, "ours to use", ""};
  return {"control group", Verdict::note, "not writable: workers are watched without one",
          "nothing is lost but the kernel's own accounting; as a service: Delegate=yes"};
}

Check check_gpus(const MachineView& m) {
  if (m.gpus == 0) return {"GPUs", Verdict::note, "none: the collectives run on the CPU", ""};
  const auto found = std::to_string(m.gpus) + " x " + printable(m.gpu_names);
  if (m.driver.empty() && m.job_is_on_cpu)
    return {"GPUs", Verdict::note, found + ", without a driver (not needed on the CPU)", ""};
  if (m.driver.empty())
    return {"GPUs", Verdict::failed, found + ", without a driver",
            "install the NVIDIA driver (in a container: run it with the NVIDIA runtime)"};
  return {"GPUs", Verdict::ok, found + ", driver " + printable(m.driver), ""};
}

Check check_nccl(const MachineView& m) {
  if (!m.nccl.empty()) return {"NCCL", Verdict::ok, printable(m.nccl), ""};
  const auto why = m.nccl_error.empty() ? std::string{"not found"} : printable(m.nccl_error, 300);
  if (m.gpus == 0) return {"NCCL", Verdict::note, why + " (not needed without a GPU)", ""};
  if (m.job_is_on_cpu) return {"NCCL", Verdict::note, why + " (not needed on the CPU)", ""};
  if (only_torch_may_have_nccl(m))
    return {"NCCL", Verdict::warning, why,
            "PyTorch may bring its own; programs of acc's runtime have none, and here the ranks "
            "are checked on the CPU: install libnccl2, or name the file in ACC_NCCL_LIBRARY"};
  return {"NCCL", Verdict::failed, why,
          "install libnccl2, or say where it is: ACC_NCCL_LIBRARY=/…/libnccl.so.2"};
}

}  // namespace

namespace {

constexpr EnumNames<Verdict, Verdict::failed> kVerdicts{{"ok", "note", "warning", "failed"}};

}  // namespace

std::string_view to_string(Verdict verdict) { return kVerdicts[verdict]; }

nlohmann::json as_json(const Check& check) {
  return {{"name", check.name},
          {"verdict", to_string(check.verdict)},
          {"found", check.found},
          {"remedy", check.remedy}};
}

std::optional<Check> check_of(const nlohmann::json& json) {
  if (!json.is_object()) return std::nullopt;
  const auto text = [&](const char* key) {
    const auto at = json.find(key);
    return at != json.end() && at->is_string() ? at->get<std::string>() : std::string{};
  };
  const auto verdict = kVerdicts.find(text("verdict"));
  if (!verdict || text("name").empty()) return std::nullopt;
  return Check{text("name"), *verdict, text("found"), text("remedy")};
}

std::vector<Check> judge(const MachineView& machine, const agent::JobPlan& plan) {
  const auto workers = plan.local_world_size;
  return {check_kernel(machine),
          check_interpreter(machine),
          check_host_name(machine, plan.cluster.several()),
          check_port(machine, plan),
          check_cores(machine, workers),
          check_memory(machine, workers),
          check_open_files(machine, workers),
          check_processes(machine, workers),
          check_locked(machine),
          check_shm(machine),
          check_cgroup(machine),
          check_gpus(machine),
          check_nccl(machine)};
}

std::string to_text(const Check& check) {
  char head[64];
  std::snprintf(head, sizeof head, "%-8s %-14s ", std::string{to_string(check.verdict)}.c_str(),
                check.name.c_str());
  auto text = head + check.found + "\n";
  if (!check.remedy.empty()) text += std::string(9, ' ') + "-> " + check.remedy + "\n";
  return text;
}

}  // namespace acc::check
