#include "launcher/scheduler.hpp"

#include "common/fnv.hpp"
#include "common/text.hpp"
#include "common/worker_env.hpp"
#include "launcher/node_list.hpp"

#include <algorithm>
#include <cctype>

namespace acc::launcher {

namespace {

constexpr std::string_view kLoopback = "127.0.0.1";
constexpr std::uint16_t kKubernetesPort = 29400;  // torchrun's: a pod has its ports for itself

/// Below the ports that the system gives to clients, and below torch's own 29400 and 29500.
std::uint16_t port_of(std::uint64_t job) {
  constexpr std::uint64_t kFirst = 20'000;
  constexpr std::uint64_t kPorts = 9'400;
  return static_cast<std::uint16_t>(kFirst + job % kPorts);
}

std::optional<std::uint32_t> count(const Environment& environment, std::string_view name) {
  return parse_number<std::uint32_t>(variable(environment, name));
}

// ---- Slurm ----

/// Tasks on the node with this number; 0: not told.
std::uint32_t tasks_on(std::string_view tasks_per_node, std::uint32_t node) {
  const auto counts = expand_counts(tasks_per_node);
  return counts && node < counts->size() ? (*counts)[node] : 0;
}

constexpr std::uint32_t kFirstSpecialStep = 0xffff'fff0U;  // batch, interactive, external …

/// A batch script has most of these variables too, but is no step: there we are one of one.
std::optional<Placement> in_slurm(const Environment& environment) {
  const auto job = parse_number<std::uint64_t>(variable(environment, "SLURM_JOB_ID"));
  const auto step = count(environment, "SLURM_STEP_ID");
  const auto tasks = count(environment, "SLURM_STEP_NUM_TASKS");
  const auto rank = count(environment, "SLURM_PROCID");
  const auto node = count(environment, "SLURM_NODEID");
  if (!job || !step || *step >= kFirstSpecialStep || !tasks || *tasks < 2 || !rank || !node)
    return std::nullopt;
  const auto name = std::to_string(*job) + "." + std::to_string(*step);
  Placement place{.who = "Slurm step " + name,
                  .job = "slurm-" + name,
                  .machines = *tasks,
                  .rank = rank,
                  .port = port_of(*job + 131ULL * *step),
                  .is_host = *rank == 0};
  place.tasks_here =
      std::max(1U, tasks_on(variable(environment, "SLURM_STEP_TASKS_PER_NODE"), *node));
  place.task_here = count(environment, "SLURM_LOCALID").value_or(0);
  place.own_gpus = environment.contains("SLURM_GPUS_PER_TASK") ||
                   variable(environment, "SLURM_TRES_PER_TASK").find("gpu") != std::string::npos;
  if (count(environment, "SLURM_STEP_NUM_NODES") == 1U) {
    place.host = kLoopback;
    return place;
  }
  auto list = variable(environment, "SLURM_STEP_NODELIST");
  if (list.empty()) list = variable(environment, "SLURM_JOB_NODELIST");
  // Task 0 runs on node 0 of the step, which is the first in its list.
  if (const auto nodes = expand_node_list(list)) place.host = nodes->front();
  return place;
}

// ---- Open MPI ----

/// Of "1600782336.0;tcp://192.0.2.2,10.0.0.2:51751;tcp6://[fd00::2]:47373" the first that isn't
/// loopback.
std::string address_in_uri(std::string_view uri) {
  for (const auto& part : split(uri, ';')) {
    for (const std::string_view scheme : {"tcp://", "tcp6://"}) {
      if (!part.starts_with(scheme)) continue;
      const auto addresses = std::string_view{part}.substr(scheme.size());
      for (const auto& one : split(addresses.substr(0, addresses.rfind(':')), ',')) {
        auto address = std::string_view{one};
        if (address.starts_with('[')) address.remove_prefix(1);
        if (address.ends_with(']')) address.remove_suffix(1);
        if (!address.empty() && !address.starts_with("127.") && address != "::1")
          return std::string{address};
      }
    }
  }
  return {};
}

/// As it may stand in the name of a folder.
std::string plain_word(std::string_view text) {
  std::string word{text};
  std::ranges::replace_if(
      word, [](unsigned char c) { return std::isalnum(c) == 0 && c != '.' && c != '_'; }, '-');
  return word;
}

std::optional<Placement> in_open_mpi(const Environment& environment) {
  const auto size = count(environment, "OMPI_COMM_WORLD_SIZE");
  const auto rank = count(environment, "OMPI_COMM_WORLD_RANK");
  if (!size || *size < 2 || !rank) return std::nullopt;
  auto name = variable(environment, "OMPI_MCA_ess_base_jobid");
  if (name.empty()) name = variable(environment, "PMIX_NAMESPACE");
  if (name.empty()) return std::nullopt;  // nothing by which two jobs could be told apart
  const auto number = parse_number<std::uint64_t>(name);
  Placement place{.who = "Open MPI job " + printable(name),
                  .job = "mpi-" + plain_word(name),
                  .machines = *size,
                  .rank = rank,
                  .port = port_of(number ? *number >> 16U : fnv1a(name))};
  place.tasks_here = std::max(1U, count(environment, "OMPI_COMM_WORLD_LOCAL_SIZE").value_or(1));
  place.task_here = count(environment, "OMPI_COMM_WORLD_LOCAL_RANK").value_or(0);
  if (place.tasks_here == *size) {
    place.host = kLoopback;
    place.is_host = *rank == 0;
    return place;
  }
  // Only mpirun's own address is told. Where this node's daemon is mpirun itself, we are there.
  const auto mpirun = variable(environment, "OMPI_MCA_orte_hnp_uri");
  place.host = address_in_uri(mpirun);
  place.is_host = !place.host.empty() && place.task_here == 0 &&
                  variable(environment, "OMPI_MCA_orte_local_daemon_uri") == mpirun;
  return place;
}

// ---- Kubernetes ----

/// The training operator and its successor set torchrun's own variables.
std::optional<Placement> in_pytorch_job(const Environment& environment) {
  constexpr std::pair<std::string_view, std::string_view> kVariables[] = {
      {"nnodes", "PET_NNODES"},
      {"nproc_per_node", "PET_NPROC_PER_NODE"},
      {"machine_rank", "PET_NODE_RANK"},
      {"main_process_ip", "PET_MASTER_ADDR"},
      {"main_process_port", "PET_MASTER_PORT"},
      {"rdzv_backend", "PET_RDZV_BACKEND"},
      {"rdzv_endpoint", "PET_RDZV_ENDPOINT"},
      {"rdzv_conf", "PET_RDZV_CONF"},
      {"max_restarts", "PET_MAX_RESTARTS"}};
  const auto nodes = variable(environment, "PET_NNODES");
  const auto colon = nodes.find(':');
  const auto most = parse_number<std::uint32_t>(
      colon == std::string_view::npos ? nodes : nodes.substr(colon + 1));
  if (!most || *most < 2) return std::nullopt;
  Placement place{
      .who = "PyTorchJob", .machines = *most, .rank = count(environment, "PET_NODE_RANK")};
  for (const auto& [key, name] : kVariables) {
    const auto value = variable(environment, name);
    if (!value.empty()) place.settings.push_back({key, name, std::string{value}});
  }
  return place;
}

/// Pods of an indexed job are called NAME-INDEX; with a subdomain they find each other by it.
std::optional<Placement> in_indexed_job(const Environment& environment,
                                        std::string_view host_name) {
  const auto index = count(environment, "JOB_COMPLETION_INDEX");
  if (!index) return std::nullopt;
  const auto pod = host_name.substr(0, host_name.find('.'));
  const auto ending = "-" + std::to_string(*index);
  if (!pod.ends_with(ending)) return std::nullopt;
  const auto job = pod.substr(0, pod.size() - ending.size());
  Placement place{
      .who = "Kubernetes job " + printable(job), .job = "k8s-" + plain_word(job), .rank = index};
  place.port = kKubernetesPort;
  place.is_host = *index == 0;
  if (pod.size() < host_name.size())
    place.host = std::string{job} + "-0" + std::string{host_name.substr(pod.size())};
  return place;
}

}  // namespace

std::optional<Placement> find_placement(const Environment& environment,
                                        std::string_view host_name) {
  if (environment.contains(worker_env::kAccJobId)) return std::nullopt;
  // mpirun inside of a Slurm job starts its daemons by srun, so it comes first.
  if (auto place = in_pytorch_job(environment)) return place;
  if (auto place = in_open_mpi(environment)) return place;
  if (auto place = in_slurm(environment)) return place;
  return in_indexed_job(environment, host_name);
}

std::optional<UnreachedNodes> find_unreached_nodes(const Environment& environment) {
  const auto job = parse_number<std::uint64_t>(variable(environment, "SLURM_JOB_ID"));
  const auto step = count(environment, "SLURM_STEP_ID");
  if (!job || (step && *step < kFirstSpecialStep) || environment.contains(worker_env::kAccJobId))
    return std::nullopt;
  auto nodes = count(environment, "SLURM_JOB_NUM_NODES");
  if (!nodes) nodes = count(environment, "SLURM_NNODES");  // its earlier name
  if (!nodes || *nodes < 2) return std::nullopt;
  return UnreachedNodes{"Slurm job " + std::to_string(*job), *nodes};
}

}  // namespace acc::launcher
