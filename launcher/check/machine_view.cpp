#include "launcher/check/machine_view.hpp"

#include "agent/memory_limit.hpp"
#include "common/text.hpp"
#include "common/unique_fd.hpp"
#include "launcher/check/worker_program.hpp"
#include "launcher/host_facts.hpp"
#include "launcher/host_limits.hpp"
#include "launcher/host_probes.hpp"
#include "launcher/program.hpp"

#include <netdb.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>

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
  view.shm_bytes = launcher::shared_memory_size();
  const auto cgroup = launcher::cgroup_folder();
  view.cpu_quota = launcher::cpu_quota(cgroup);
  if (const auto free = agent::free_memory_bytes(); free != 0) view.memory_bytes = free;
  view.cores = launcher::allowed_cores();
  view.cgroup_writable = !cgroup.empty() && ::access(cgroup.c_str(), W_OK) == 0;
}

/// As a worker of the plan sees it; empty: it isn't set.
std::string variable_of(const agent::JobPlan& plan, const launcher::Environment& environment,
                        const std::string& name) {
  if (const auto of_plan = plan.env.find(name); of_plan != plan.env.end()) return of_plan->second;
  const auto inherited = environment.find(name);
  return inherited == environment.end() ? std::string{} : inherited->second;
}

void look_at_interpreter(MachineView& view, const launcher::Environment& environment) {
  view.interpreter = launcher::find_interpreter(environment);
  const auto program = launcher::find_program(view.interpreter, environment);
  view.interpreter_runs = !program.empty();
  view.interpreter_has_torch = view.interpreter_runs && launcher::has_module(program, "torch");
}

void look_at_gpus(MachineView& view, const agent::JobPlan& plan,
                  const launcher::Environment& environment) {
  view.job_is_on_cpu = is_on_cpu(plan, environment);
  const auto devices = launcher::count_devices();
  view.gpus = devices.kind == "cuda" ? devices.count : 0;
  if (view.gpus == 0) return;
  const auto names = launcher::nvidia_names();
  view.gpu_names = names.empty() ? "unknown" : names.front();
  view.driver = launcher::nvidia_driver();
}

void look_at_nccl(MachineView& view, const agent::JobPlan& plan,
                  const launcher::Environment& environment, const std::string& worker_program) {
  auto nccl = probe_nccl(worker_program, view.interpreter);
  view.nccl = std::move(nccl.found);
  view.nccl_error = std::move(nccl.error);
  const auto backend = to_lower(trim(variable_of(plan, environment, "ACC_BACKEND")));
  view.nccl_is_asked_for = backend == "nccl" || backend == "cuda" ||
                           !variable_of(plan, environment, "ACC_NCCL_LIBRARY").empty();
  if (view.gpus == 0 || view.job_is_on_cpu) return;
  view.rank_variables = std::move(nccl.variables);
  if (only_torch_may_have_nccl(view)) view.rank_variables = {{"ACC_BACKEND", "cpu"}};
}

}  // namespace

bool only_torch_may_have_nccl(const MachineView& view) {
  return view.gpus > 0 && view.nccl.empty() && view.interpreter_has_torch &&
         !view.nccl_is_asked_for && !view.job_is_on_cpu;
}

bool is_on_cpu(const agent::JobPlan& plan, const launcher::Environment& environment) {
  const auto backend = variable_of(plan, environment, "ACC_BACKEND");
  if (!backend.empty()) return to_lower(trim(backend)) == "cpu";
  const auto cpu = to_lower(trim(variable_of(plan, environment, "ACCELERATE_USE_CPU")));
  constexpr std::string_view kYes[] = {"1", "true", "t", "on", "yes", "y"};
  return std::ranges::find(kYes, cpu) != std::end(kYes);
}

MachineView look_at_machine(const agent::JobPlan& plan, const launcher::Environment& environment,
                            const std::string& worker_program) {
  MachineView view;
  view.host_name = launcher::full_host_name();
  view.host_addresses = addresses_of(view.host_name);
  look_at_interpreter(view, environment);
  const auto facts = launcher::detected_facts();
  if (may_serve_master_port(plan) && facts->port_in_use(plan.master.port))
    view.why_no_master_port = facts->why_port_taken(plan.master.port);
  look_at_limits(view);
  view.has_memfd = works_memfd();
  view.has_pidfd = works_pidfd();
  look_at_gpus(view, plan, environment);
  look_at_nccl(view, plan, environment, worker_program);
  return view;
}

RankVariables find_rank_variables(const agent::JobPlan& plan,
                                  const launcher::Environment& environment,
                                  const std::string& worker_program) {
  MachineView view;
  look_at_gpus(view, plan, environment);
  if (view.gpus == 0 || view.job_is_on_cpu) return {};
  look_at_interpreter(view, environment);
  look_at_nccl(view, plan, environment, worker_program);
  return std::move(view.rank_variables);
}

}  // namespace acc::check
