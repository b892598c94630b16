#include "launcher/check/machine_view.hpp"

#include "common/text.hpp"
#include "common/unique_fd.hpp"
#include "launcher/check/worker_program.hpp"
#include "launcher/host_facts.hpp"
#include "launcher/host_probes.hpp"
#include "launcher/program.hpp"

#include <netdb.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <thread>

namespace acc::check {
namespace {

std::optional<std::uint64_t> soft_limit(__rlimit_resource_t what) {
  rlimit limit{};
  if (::getrlimit(what, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return limit.rlim_cur;
}

std::optional<std::uint64_t> hard_limit(__rlimit_resource_t what) {
  rlimit limit{};
  if (::getrlimit(what, &limit) != 0 || limit.rlim_max == RLIM_INFINITY) return std::nullopt;
  return limit.rlim_max;
}

std::string first_line(const std::string& path) {
  std::ifstream file{path};
  std::string line;
  std::getline(file, line);
  return line;
}

/// The folder of our control group (version 2); empty: there is none.
std::string cgroup_folder() {
  std::ifstream file{"/proc/self/cgroup"};
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("0::")) return "/sys/fs/cgroup" + line.substr(3);
  return {};
}

/// "200000 100000" of cpu.max is two cores.
std::optional<double> cpu_quota(const std::string& folder) {
  const auto words = split(first_line(folder + "/cpu.max"), ' ');
  if (words.size() != 2) return std::nullopt;
  const auto quota = parse_number<std::uint64_t>(words[0]);
  const auto period = parse_number<std::uint64_t>(words[1]);
  if (!quota || !period || *period == 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

std::optional<std::uint64_t> available_memory(const std::string& cgroup) {
  std::optional<std::uint64_t> available;
  std::ifstream file{"/proc/meminfo"};
  for (std::string name, unit; file >> name;) {
    std::uint64_t kib = 0;
    if (!(file >> kib)) break;
    std::getline(file, unit);
    if (name == "MemAvailable:") available = kib * 1024;
  }
  const auto limit = parse_number<std::uint64_t>(first_line(cgroup + "/memory.max"));
  const auto used = parse_number<std::uint64_t>(first_line(cgroup + "/memory.current"));
  if (limit && used) {
    const auto left = *limit > *used ? *limit - *used : 0;
    available = available ? std::min(*available, left) : left;
  }
  return available;
}

std::uint32_t allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) == 0)
    return static_cast<std::uint32_t>(std::max(1, CPU_COUNT(&set)));
  return std::max(1U, std::thread::hardware_concurrency());
}

std::vector<std::string> addresses_of(const std::string& name) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(name.c_str(), nullptr, &hints, &found) != 0) return {};
  std::vector<std::string> addresses;
  for (const auto* one = found; one != nullptr; one = one->ai_next) {
    std::array<char, 128> text{};
    if (::getnameinfo(one->ai_addr, one->ai_addrlen, text.data(), text.size(), nullptr, 0,
                      NI_NUMERICHOST) == 0)
      addresses.emplace_back(text.data());
  }
  ::freeaddrinfo(found);
  return addresses;
}

bool works_memfd() { return UniqueFd{::memfd_create("acc-test", MFD_CLOEXEC)}.get() >= 0; }

bool works_pidfd() {
  return UniqueFd{static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0))}.get() >= 0;
}

void look_at_limits(MachineView& view) {
  view.open_files = soft_limit(RLIMIT_NOFILE);
  view.open_files_hard = hard_limit(RLIMIT_NOFILE);
  view.processes = soft_limit(RLIMIT_NPROC);
  view.locked_bytes = soft_limit(RLIMIT_MEMLOCK);
  struct statvfs shm {};
  if (::statvfs("/dev/shm", &shm) == 0)
    view.shm_bytes = static_cast<std::uint64_t>(shm.f_blocks) * shm.f_frsize;
  const auto cgroup = cgroup_folder();
  view.cpu_quota = cpu_quota(cgroup);
  view.memory_bytes = available_memory(cgroup);
  view.cores = allowed_cores();
  view.cgroup_writable = !cgroup.empty() && ::access(cgroup.c_str(), W_OK) == 0;
}

}  // namespace

MachineView look_at_machine(const agent::JobPlan& plan, const launcher::Environment& environment,
                            const std::string& worker_program) {
  MachineView view;
  view.host_name = launcher::full_host_name();
  view.host_addresses = addresses_of(view.host_name);
  view.interpreter = launcher::find_interpreter(environment);
  const auto program = launcher::find_program(view.interpreter, environment);
  view.interpreter_runs = !program.empty();
  view.interpreter_has_torch = view.interpreter_runs && launcher::has_module(program, "torch");
  const auto facts = launcher::detected_facts();
  view.master_port_taken = plan.master.port != 0 && facts->port_in_use(plan.master.port);
  look_at_limits(view);
  view.has_memfd = works_memfd();
  view.has_pidfd = works_pidfd();
  const auto devices = launcher::count_devices();
  view.gpus = devices.kind == "cuda" ? devices.count : 0;
  if (view.gpus > 0) {
    const auto names = launcher::nvidia_names();
    view.gpu_names = names.empty() ? "unknown" : names.front();
    view.driver = launcher::nvidia_driver();
  }
  const auto nccl = probe_nccl(worker_program);
  view.nccl = nccl.found;
  view.nccl_error = nccl.error;
  return view;
}

}  // namespace acc::check
