#include "runtime/bootstrap/launch_environment.hpp"

#include "common/duration.hpp"
#include "common/text.hpp"
#include "common/worker_env.hpp"
#include "runtime/timeout.hpp"

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <utility>

namespace acc::runtime {

namespace env = worker_env;

namespace {

/// The port of a job whose launcher gives only an address, as in torch.distributed.
constexpr std::uint16_t kDefaultPort = 29500;

/// A larger number is a mistake; it bounds what a group stores per rank.
constexpr int kMostRanks = 1 << 20;

std::string shown(std::string_view name, const std::string& value) {
  return std::string{name} + "=" + printable(value, 60);
}

[[noreturn]] void refuse(const std::string& what) {
  throw Error{ErrorCode::invalid_argument, what};
}

/// Reads variables by name; errors quote the name and value.
class Variables {
 public:
  explicit Variables(const Lookup& lookup) : lookup_{lookup} {}

  [[nodiscard]] bool has(std::string_view name) const { return !text(name).empty(); }
  [[nodiscard]] std::string text(std::string_view name) const {
    return lookup_(name).value_or(std::string{});
  }
  [[nodiscard]] std::optional<int> number(std::string_view name, int least) const {
    const auto value = text(name);
    if (value.empty()) return std::nullopt;
    const auto parsed = parse_number<int>(trim(value));
    if (!parsed || *parsed < least)
      refuse(shown(name, value) + " isn't a number from " + std::to_string(least) + " on");
    return parsed;
  }

 private:
  const Lookup& lookup_;
};

/// The variable names of each kind of launcher.
struct Names {
  std::string_view launcher, rank, size, local_rank, local_size;
};
constexpr Names kElastic{"RANK and WORLD_SIZE", env::kRank, env::kWorldSize, env::kLocalRank,
                         env::kLocalWorldSize};
constexpr std::array kSchedulers{
    Names{"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
          "OMPI_COMM_WORLD_LOCAL_SIZE"},
    Names{"MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
};

void check_order(const Variables& variables, const Names& names, const LaunchEnvironment& found) {
  const auto both = [&](std::string_view one, std::string_view other) {
    return shown(one, variables.text(one)) + " with " + shown(other, variables.text(other));
  };
  if (found.size > kMostRanks)
    refuse(shown(names.size, variables.text(names.size)) + ": a job has at most " +
           std::to_string(kMostRanks) + " ranks");
  if (found.rank >= found.size)
    refuse(both(names.rank, names.size) + ": ranks go from 0 to " + std::to_string(found.size - 1));
  if (found.local_size && *found.local_size > found.size)
    refuse(both(names.local_size, names.size) + ": a node can't have more than all ranks");
  if (found.local_rank && found.local_size && *found.local_rank >= *found.local_size)
    refuse(both(names.local_rank, names.local_size) + ": local ranks go from 0 to " +
           std::to_string(*found.local_size - 1));
}

/// @return nothing: another launcher, or none, started this process.
std::optional<LaunchEnvironment> read_ranks(const Variables& variables, const Names& names) {
  const auto rank = variables.number(names.rank, 0);
  const auto size = variables.number(names.size, 1);
  if (!rank && !size) return std::nullopt;
  if (!rank && *size == 1) return std::nullopt;
  if (!rank || !size) {
    const auto [there, missing] =
        rank ? std::pair{names.rank, names.size} : std::pair{names.size, names.rank};
    refuse(shown(there, variables.text(there)) + " is set, but " + std::string{missing} +
           " isn't: a launcher sets both, a process alone needs neither");
  }
  LaunchEnvironment found;
  found.rank = *rank;
  found.size = *size;
  found.local_rank = variables.number(names.local_rank, 0);
  found.local_size = variables.number(names.local_size, 1);
  found.launcher = names.launcher;
  check_order(variables, names, found);
  return found;
}

bool elastic_launcher(const Variables& variables) {
  return variables.has(env::kAccJobId) || variables.has(env::kRunId);
}

// RANK of another launcher beside the variables of mpirun: one of them is left over. (acc-launch
// and torchrun under mpirun number their own workers: no contradiction.)
void check_against(const Variables& variables, const LaunchEnvironment& ours) {
  for (const auto& names : kSchedulers) {
    for (const auto& [our_name, our_value, name] :
         {std::tuple{env::kRank, ours.rank, names.rank},
          std::tuple{env::kWorldSize, ours.size, names.size}}) {
      const auto other = variables.number(name, 0);
      if (other && *other != our_value)
        refuse(shown(our_name, variables.text(our_name)) + " contradicts " +
               shown(name, variables.text(name)) +
               ": unset those of the launcher that didn't "
               "start this process");
    }
  }
}

void read_elastic(const Variables& variables, LaunchEnvironment& found) {
  if (variables.has(env::kAccJobId)) {
    found.launcher = "acc-launch";
    found.job = variables.text(env::kAccJobId);
  } else if (variables.has(env::kRunId)) {
    found.launcher = "torchrun";
    found.job = variables.text(env::kRunId);
    // torchrun's agents count their own restarts, so the numbers agree on a single node only.
    found.one_node = variables.text(env::kGroupWorldSize) == "1" || found.all_local();
    if (found.one_node) found.job += "/" + variables.text(env::kRestartCount);
  }
}

struct Process {
  std::string name;
  pid_t parent = 0;
};

/// Empty: unknown.
Process look_up(pid_t pid) {
  std::ifstream file{"/proc/" + std::to_string(pid) + "/stat"};
  const std::string stat{std::istreambuf_iterator<char>{file}, std::istreambuf_iterator<char>{}};
  const auto begin = stat.find('('), end = stat.rfind(')');
  if (end == std::string::npos) return {};
  const auto fields = split(trim(std::string_view{stat}.substr(end + 1)), ' ');
  return {stat.substr(begin + 1, end - begin - 1),
          fields.size() > 1 ? parse_number<pid_t>(fields[1]).value_or(0) : 0};
}

/// Pid of the process of MPICH (or a derivative) that started the ranks of this node: the parent,
/// or an ancestor if a user's shell script is in between.
pid_t mpi_launcher() {
  constexpr int kMostScripts = 16;
  pid_t pid = ::getppid();
  for (int up = 0; up < kMostScripts && pid > 1; ++up) {
    const auto process = look_up(pid);
    for (const std::string_view name : {"hydra_pmi_prox", "mpispawn", "mpiexec", "mpirun"})
      if (process.name.starts_with(name)) return pid;
    pid = process.parent;
  }
  return ::getppid();
}

/// "node[03-07,9],x" names node03 first.
std::string first_host(std::string_view list) {
  const auto end = list.find_first_of("[,");
  std::string first{list.substr(0, end)};
  if (end == std::string_view::npos || list[end] == ',') return first;
  const auto numbers = list.substr(end + 1);
  return first.append(numbers.substr(0, numbers.find_first_of("-,]")));
}

constexpr std::uint32_t kFirstSpecialStep = 0xffff'fff0U;  // batch, interactive, external …

/// Of a step whose own variables a cleaned environment lacks, as that of a container. The first
/// task can't be told from a batch script then.
bool is_later_slurm_task(const Variables& variables) {
  if (variables.has("SLURM_STEP_ID") || variables.has("SLURM_STEP_NUM_TASKS")) return false;
  return parse_number<int>(trim(variables.text("SLURM_PROCID"))).value_or(0) > 0;
}

/// A batch script has SLURM_PROCID (0) and SLURM_NTASKS, too, and is no task.
bool is_in_slurm_step(const Variables& variables) {
  const auto number = variables.text("SLURM_STEP_ID");
  if (number.empty())
    return variables.has("SLURM_STEP_NUM_TASKS") || is_later_slurm_task(variables);
  const auto step = parse_number<std::uint32_t>(number);
  return step && *step < kFirstSpecialStep;
}

/// Empty: there are no tasks that srun would have started.
std::string note_of_missing_srun(const Variables& variables) {
  if (!variables.has("SLURM_JOB_ID") && !variables.has("SLURM_PROCID")) return {};
  const auto tasks = parse_number<int>(variables.text("SLURM_NTASKS"));
  if (!tasks || *tasks < 2 || is_in_slurm_step(variables)) return {};
  const auto job = variables.text("SLURM_JOB_ID");
  const std::string cleaned =
      variables.has("SLURM_STEP_ID") ? "" : ", or in an environment without srun's SLURM_STEP_ID";
  return (job.empty() ? "this Slurm job" : "Slurm job " + printable(job, 60)) + " has " +
         std::to_string(*tasks) + " tasks, and this process was started without srun" + cleaned +
         ": it is a group of one. srun in front of the program starts all of them" +
         (cleaned.empty() ? "" : " (a container needs its SLURM_* variables)") +
         "; RANK=0 WORLD_SIZE=1 in its environment is for one alone, without this note";
}

std::optional<LaunchEnvironment> read_slurm(const Variables& variables) {
  if (!is_in_slurm_step(variables)) return std::nullopt;
  // srun sets the number of tasks of its step; SLURM_NTASKS is that of the allocation.
  const std::string_view tasks =
      variables.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  const auto size = variables.number(tasks, 1);
  const bool alone = !size || *size == 1 || !variables.has("SLURM_PROCID");
  if (alone && !is_later_slurm_task(variables)) return std::nullopt;
  auto found = read_ranks(variables, {"Slurm", "SLURM_PROCID", tasks, "SLURM_LOCALID", ""});
  if (!found) return std::nullopt;
  found->job = "slurm/" + variables.text("SLURM_JOB_ID") + "/" + variables.text("SLURM_STEP_ID");
  const auto nodes = variables.number(
      variables.has("SLURM_STEP_NUM_NODES") ? "SLURM_STEP_NUM_NODES" : "SLURM_NNODES", 1);
  if (nodes == 1) found->local_size = found->size;
  auto list = variables.text("SLURM_STEP_NODELIST");
  if (list.empty()) list = variables.text("SLURM_JOB_NODELIST");
  if (nodes.value_or(1) > 1 && !list.empty()) found->master_address = first_host(list);
  return found;
}

std::optional<LaunchEnvironment> read_scheduler(const Variables& variables) {
  for (const auto& names : kSchedulers) {
    auto found = read_ranks(variables, names);
    if (!found) continue;
    for (const auto name :
         {"OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE", "PMI_JOBID", "SLURM_JOB_ID"})
      if (found->job.empty()) found->job = variables.text(name);
    // Without a job id the local ranks are identified by the mpirun or proxy that they descend
    // from.
    if (found->job.empty() && found->all_local())
      found->job = "pid" + std::to_string(mpi_launcher());
    return found;
  }
  return read_slurm(variables);
}

void read_master(const Variables& variables, LaunchEnvironment& found) {
  if (variables.has(env::kMasterAddr)) {
    auto address = variables.text(env::kMasterAddr);
    if (address.starts_with('[') && address.ends_with(']'))  // an IPv6 address as in a URL
      address = address.substr(1, address.size() - 2);
    found.master_address = std::move(address);
    found.master_port = kDefaultPort;
  }
  if (const auto port = variables.number(env::kMasterPort, 1)) {
    if (*port > 65535)
      refuse(shown(env::kMasterPort, variables.text(env::kMasterPort)) + " isn't a port");
    found.master_port = static_cast<std::uint16_t>(*port);
  }
  found.in_pod = variables.has("KUBERNETES_SERVICE_HOST");
}

bool parse_switch(std::string_view name, const std::string& value) {
  const auto word = to_lower(trim(value));  // as Accelerate's str_to_bool
  for (const std::string_view on : {"1", "true", "t", "on", "yes", "y"})
    if (word == on) return true;
  for (const std::string_view off : {"0", "false", "f", "off", "no", "n"})
    if (word == off) return false;
  refuse(shown(name, value) + " isn't 0 or 1");
}

/// A switch that a launcher sets: --cpu, --debug.
bool is_on(const Variables& variables, std::string_view name) {
  return variables.has(name) && parse_switch(name, variables.text(name));
}

BackendKind parse_backend(const std::string& value) {
  const auto word = to_lower(trim(value));
  if (word == "automatic" || word == "auto") return BackendKind::automatic;
  if (word == "cpu") return BackendKind::cpu;
  if (word == "nccl" || word == "cuda") return BackendKind::nccl;
  refuse(shown("ACC_BACKEND", value) + " isn't cpu, nccl or automatic");
}

std::optional<Millis> timeout_of(const Variables& variables, std::string_view name) {
  if (!variables.has(name)) return std::nullopt;
  const auto value = variables.text(name);
  const auto parsed = parse_duration(trim(value));
  if (!parsed) refuse(shown(name, value) + ": " + parsed.error().what);
  return *parsed;
}

}  // namespace

Lookup environment() {
  return [](std::string_view name) -> std::optional<std::string> {
    const char* value = std::getenv(std::string{name}.c_str());
    if (value == nullptr) return std::nullopt;
    return value;
  };
}

LaunchEnvironment read_launch_environment(const Lookup& lookup) {
  const Variables variables{lookup};
  auto found = read_ranks(variables, kElastic);
  if (found) {
    if (!elastic_launcher(variables)) check_against(variables, *found);
    read_elastic(variables, *found);
  } else {
    found = read_scheduler(variables);
  }
  if (!found) {
    LaunchEnvironment alone;
    alone.note = note_of_missing_srun(variables);
    return alone;
  }
  read_master(variables, *found);
  found->agent_socket = env::worker_socket_in(variables.text(env::kAccAgentSocket));
  found->round = parse_number<std::uint64_t>(variables.text(env::kAccRound));
  return *std::move(found);
}

GroupOptions with_environment(GroupOptions options, const Lookup& lookup) {
  const Variables variables{lookup};
  if (!options.init_timeout)
    options.init_timeout =
        timeout_of(variables, "ACC_INIT_TIMEOUT").value_or(std::chrono::seconds{300});
  if (!options.timeout) options.timeout = timeout_of(variables, "ACC_COLLECTIVE_TIMEOUT");
  options.init_timeout = checked_timeout(*options.init_timeout, "init_timeout");
  if (options.timeout) options.timeout = checked_timeout(*options.timeout, "timeout");
  if (!options.check && variables.has("ACC_CHECK"))
    options.check = parse_switch("ACC_CHECK", variables.text("ACC_CHECK"));
  if (!options.check && is_on(variables, "ACCELERATE_DEBUG_MODE")) options.check = true;
  if (options.backend == BackendKind::automatic && variables.has("ACC_BACKEND"))
    options.backend = parse_backend(variables.text("ACC_BACKEND"));
  else if (options.backend == BackendKind::automatic && is_on(variables, "ACCELERATE_USE_CPU"))
    options.backend = BackendKind::cpu;
  return options;
}

}  // namespace acc::runtime
