#include "launcher/plan.hpp"

#include "common/text.hpp"
#include "launcher/commands.hpp"
#include "launcher/coordinator_plan.hpp"
#include "launcher/core_binding.hpp"
#include "launcher/key_table.hpp"
#include "launcher/machines_plan.hpp"
#include "launcher/main_port.hpp"
#include "launcher/mode.hpp"
#include "launcher/policies.hpp"

#include <algorithm>

namespace acc::launcher {

using namespace literals;

namespace {

/// Fewer than this: one plain process, as in the original.
constexpr std::int64_t kSeveral = 2;

bool is_torchrun_line(const JobSpec& spec) {
  return spec.is_given("nproc_per_node"_key) || spec.is_given("nnodes"_key);
}

/// N processes asked for are N workers, also on the CPU, where the original starts one and leaves
/// the rest to mpirun. Only an explicit number counts, and not with distributed_type NO. A
/// scheduler's tasks are machines of one job, so there even one worker isn't a plain process.
bool asks_for_workers(const JobSpec& spec) {
  if (is_torchrun_line(spec)) return true;
  const auto key = "num_processes"_key;
  const bool plain = spec.text("distributed_type"_key) == "NO" && !spec.config_path.empty();
  const bool is_placed = spec["num_machines"_key].source == Source::scheduler;
  const auto least = is_placed ? 1 : kSeveral;
  return !plain && spec.is_given(key) && spec.integer(key).value_or(0) >= least;
}

class Planner {
 public:
  Planner(const JobSpec& spec, HostFacts& facts, const PlanInputs& inputs)
      : spec_{spec}, facts_{facts}, inputs_{inputs} {}

  Planned plan() {
    refuse_unsupported();
    check_script();
    auto env =
        mode_environment(spec_, facts_, inputs_.environment, inputs_.interpreter, inputs_.cwd);
    append(env.complaints);
    auto& plan = planned_.plan;
    plan.env = std::move(env.variables);
    plan.warnings = std::move(env.warnings);
    plan.defaulted.insert(spec_.defaulted.begin(), spec_.defaulted.end());
    plan_policies(spec_, inputs_.environment, plan, planned_.complaints);
    if (auto bad = bad_main_port(spec_)) append({std::move(*bad)});
    append(check_rendezvous(spec_));
    if (mode_is_known(spec_)) {
      choose_kind();
      check_preload();
      bind_cores();
    }
    drop_unchanged();
    return std::move(planned_);
  }

 private:
  void complain(std::string what, Errc code = Errc::bad_config) {
    planned_.complaints.push_back({code, std::move(what)});
  }
  void append(const Complaints& more) {
    planned_.complaints.insert(planned_.complaints.end(), more.begin(), more.end());
  }

  void refuse_unsupported() {
    if (mode_of(spec_) == Mode::tpu && mode_is_known(spec_)) complain(kNoTpu);
    if (spec_.flag("virtual_local_rank"_key))
      complain(
          "--virtual_local_rank is not supported: LOCAL_RANK always numbers the workers of a node");
    if (spec_.is_set("logs_specs"_key))
      complain(
          "--logs_specs names a Python plug-in of torchrun, which this launcher can't load: use "
          "--log_dir, --tee and --redirects");
  }

  void check_script() {
    if (spec_.flag("module"_key) && spec_.flag("no_python"_key))
      complain("--module and --no_python cannot be used together");
  }

  void choose_kind() {
    const auto mode = mode_of(spec_);
    if (mode == Mode::single) {
      if (spec_.is_set("mpirun_hostfile"_key)) return plan_mpirun();
      if (!asks_for_workers(spec_)) return plan_process();
    }
    const auto launcher = spec_.text("deepspeed_multinode_launcher"_key);
    if (mode == Mode::deepspeed && spec_.integer("num_machines"_key).value_or(1) > 1 &&
        launcher != "standard")
      return plan_deepspeed();
    plan_elastic(mode);
  }

  /// On the CPU the original wants both, while the GPU modes have a default port.
  void check_main_process() {
    if (spec_.integer("num_machines"_key).value_or(1) <= 1) return;
    if (!spec_.is_set("main_process_ip"_key) &&
        spec_.can_judge({"main_process_ip"_key, "num_machines"_key}))
      complain(
          "several machines need the main process IP, the address of machine 0: give "
          "--main_process_ip (or --master_addr)" +
          (spec_.scheduler.empty() ? std::string{} : "; " + spec_.scheduler + " doesn't tell one"));
    if (!spec_.is_set("main_process_port"_key) &&
        spec_.can_judge({"main_process_port"_key, "num_machines"_key}))
      complain(
          "several machines need the main process port, a free one on machine 0: give "
          "--main_process_port (or --master_port)");
  }

  /// Our agents meet at any address that all know: a rendezvous's or a scheduler's will do, too.
  void check_meeting_place() {
    const bool is_placed = spec_["main_process_ip"_key].source == Source::scheduler;
    if (is_placed || !spec_.text("rdzv_endpoint"_key).empty()) return;
    if (spec_.can_judge({"rdzv_endpoint"_key})) check_main_process();
  }

  /// Where the workers' store will be, in the modes in which nobody but the script uses it.
  void plan_master() {
    const auto machines = spec_.integer("num_machines"_key).value_or(1);
    check_main_process();
    if (machines <= 1 && spec_.integer("num_processes"_key).value_or(0) < kSeveral) return;
    auto& env = planned_.plan.env;
    env["MASTER_ADDR"] =
        spec_.is_set("main_process_ip"_key) ? spec_.text("main_process_ip"_key) : "127.0.0.1";
    env["MASTER_PORT"] =
        spec_.is_set("main_process_port"_key) ? spec_.text("main_process_port"_key) : "29500";
  }

  /// A program buffers what it writes into a pipe, and loses that when it crashes; Python has -u.
  /// Only where the workers are Python's, and ours to start.
  void check_preload() {
    const auto& plan = planned_.plan;
    if (plan.preload.modules.empty()) return;
    const auto refuse = [&](const std::string& why) {
      complain(spec_.name_for_complaint("preload"_key) + ": " + why);
    };
    if (plan.kind == agent::JobKind::mpirun || plan.kind == agent::JobKind::deepspeed)
      return refuse("the workers are started by another launcher here, which can't fork them");
    if (runs_directly(spec_, inputs_.script))
      refuse(in_quotes(spec_.script) +
             " isn't started by Python, so there is nothing that could be imported for it: leave "
             "--preload out");
  }

  void plan_pty() {
    const bool automatic = spec_.text("pty"_key) == "auto";
    if (automatic) planned_.plan.output.pty = runs_directly(spec_, inputs_.script);
  }

  void plan_process() {
    plan_master();
    planned_.plan.kind = agent::JobKind::process;
    append(check_local_ranks(spec_, planned_.plan));
    if (spec_.is_given("rdzv_id"_key)) planned_.plan.cluster.job = spec_.text("rdzv_id"_key);
    planned_.plan.command = worker_command(spec_, inputs_.interpreter, inputs_.script, false);
    plan_pty();
  }

  void plan_mpirun() {
    plan_master();
    const auto kind = facts_.mpi();
    if (kind.empty())
      return complain(
          "mpirun_hostfile is set, but neither mpirun nor mpiexec is on PATH: install Open MPI or "
          "MPICH, or leave the host file out to start the workers natively",
          Errc::unavailable);
    planned_.plan.kind = agent::JobKind::mpirun;
    planned_.plan.command = mpirun_prefix(spec_, inputs_.mpi_program, kind);
    const auto worker = worker_command(spec_, inputs_.interpreter, inputs_.script, false);
    planned_.plan.command.insert(planned_.plan.command.end(), worker.begin(), worker.end());
  }

  void plan_deepspeed() {
    append(plan_outer_port(spec_, facts_, planned_.plan));
    planned_.plan.kind = agent::JobKind::deepspeed;
    planned_.plan.command = deepspeed_command(spec_, planned_.plan.master.port);
    planned_.plan.cluster = {};
    auto variables = inputs_.environment;
    for (const auto& [name, value] : planned_.plan.env) variables[name] = value;
    const auto skipped = deepspeed_env(variables).skipped;
    if (skipped.empty()) return;
    planned_.plan.warnings.push_back(
        "Skipping in .deepspeed_env, so that other machines don't get them: " +
        join(skipped, ", ") + " (no value, or one with a blank, a new line, ;, < or >)");
  }

  void plan_elastic(Mode mode) {
    auto& plan = planned_.plan;
    plan.kind = agent::JobKind::elastic;
    if (mode == Mode::single && !is_torchrun_line(spec_)) check_meeting_place();
    append(plan_machines(spec_, facts_, plan));
    append(check_local_ranks(spec_, plan));
    plan.command = worker_command(spec_, inputs_.interpreter, inputs_.script, true);
    plan_mpi();
    plan_pty();
    // torchrun leaves the cores to a worker that is alone on its machine.
    if (counts_as_torchrun(spec_) && plan.local_world_size == 1 &&
        spec_["num_cpu_threads_per_process"_key].source == Source::by_default)
      plan.env.erase("OMP_NUM_THREADS");
    if (mode != Mode::deepspeed || plan.local_world_size < 2 ||
        inputs_.environment.contains("OMP_NUM_THREADS"))
      return;
    plan.env["OMP_NUM_THREADS"] = "1";  // torch.distributed.run does so in the original
    plan.warnings.emplace_back(
        "OMP_NUM_THREADS is set to 1 for each worker, so that they don't fight for cores: set it "
        "in the environment to tune");
  }

  void plan_mpi() {
    auto& plan = planned_.plan;
    const auto chosen = spec_.text("mpi"_key);
    const bool is_auto = chosen == "auto";
    plan.pmi = chosen == "pmi" || (is_auto && inputs_.mpi == MpiLibrary::mpich);
    if (is_auto && inputs_.mpi == MpiLibrary::open_mpi)
      plan.warnings.push_back(
          in_quotes(spec_.script) +
          " is linked with Open MPI, which needs PMIx to find the other workers, and acc-launch "
          "doesn't speak it: each worker will be MPI rank 0 of 1. Start it with mpirun, or build "
          "it with MPICH (--mpi none: it doesn't use MPI here)");
  }

  /// Numbers of the local ranks' GPUs; empty: as the local ranks.
  std::vector<std::uint32_t> gpus_of_ranks() {
    const auto workers = planned_.plan.local_world_size;
    constexpr std::uint32_t kNone = UINT32_MAX;
    if (spec_.flag("use_cpu"_key) || facts_.gpus() == 0)
      return std::vector<std::uint32_t>(workers, kNone);
    const auto planned = planned_.plan.env.find("CUDA_VISIBLE_DEVICES");
    const auto given = inputs_.environment.find("CUDA_VISIBLE_DEVICES");
    std::string list;
    if (planned != planned_.plan.env.end()) {
      list = planned->second;
    } else if (given != inputs_.environment.end()) {
      list = given->second;
    }
    std::vector<std::uint32_t> gpus;
    for (const auto& word : split(list, ',')) {
      const auto number = parse_number<std::uint32_t>(trim(word));
      if (!number) break;  // "GPU-5ab1…": /sys doesn't know these names
      gpus.push_back(*number);
    }
    return gpus;
  }

  void bind_cores() {
    auto& plan = planned_.plan;
    const bool by_word = spec_.is_set("numa_binding"_key);
    if (!by_word && !spec_.flag("enable_cpu_affinity"_key)) return;
    const auto key = by_word ? "numa_binding"_key : "enable_cpu_affinity"_key;
    const auto binding = by_word ? binding_of(spec_.text(key)) : Binding::node;
    if (!binding || plan.local_world_size == 0) return;
    const auto warn = [&](const std::string& why) {
      plan.warnings.push_back(spec_.name_for_complaint(key) + ": no worker is bound: " + why);
    };
    if (plan.kind == agent::JobKind::mpirun || plan.kind == agent::JobKind::deepspeed)
      return warn("another launcher starts them here; it has options of its own for that");
    const auto topology = facts_.topology();
    auto bound = bind_workers(topology, *binding, plan.local_world_size, gpus_of_ranks());
    if (!bound.problem.empty()) return warn(bound.problem);
    const bool is_all = std::ranges::all_of(
        bound.cores, [&](const auto& cores) { return cores.size() == topology.cpus.size(); });
    if (is_all) return warn("there is nothing to choose from, all cores of this machine are alike");
    plan.cores = std::move(bound.cores);
  }

  /// `env` holds only what is added or changed.
  void drop_unchanged() {
    std::erase_if(planned_.plan.env, [&](const auto& entry) {
      const auto found = inputs_.environment.find(entry.first);
      return found != inputs_.environment.end() && found->second == entry.second;
    });
  }

  const JobSpec& spec_;
  HostFacts& facts_;
  const PlanInputs& inputs_;
  Planned planned_;
};

}  // namespace

Planned make_plan(const JobSpec& spec, HostFacts& facts, const PlanInputs& inputs) {
  return Planner{spec, facts, inputs}.plan();
}

Complaints check_values(const JobSpec& spec, const Environment& environment) {
  Complaints complaints;
  agent::JobPlan unused;
  plan_policies(spec, environment, unused, complaints);
  if (auto bad = bad_main_port(spec)) complaints.push_back(std::move(*bad));
  for (auto& bad : check_rendezvous(spec)) complaints.push_back(std::move(bad));
  return complaints;
}

Complaints check_runnable(const JobSpec& spec, const agent::JobPlan& plan) {
  Complaints complaints;
  const auto refuse = [&](std::string what) {
    complaints.push_back({Errc::unavailable, std::move(what)});
  };
  if (plan.kind != agent::JobKind::elastic) return complaints;
  const auto backend = spec.text("rdzv_backend"_key);
  const bool is_judged = spec.can_judge({"num_processes"_key, "num_machines"_key});
  if (plan.local_world_size == 0 && is_judged && spec.is_given("num_processes"_key)) {
    complaints.push_back(
        {Errc::bad_config, spec.name_for_complaint("num_processes"_key) + ": " +
                               spec.text("num_processes"_key) +
                               " means no worker to start: write a number from 1"});
  } else if (plan.local_world_size == 0 && is_judged && mode_of(spec) != Mode::tpu) {
    refuse(
        "no worker to start: no GPU was found and --num_processes is not given. Give "
        "--num_processes, or --cpu for one process on the CPU");
  }
  // Not by the plan: on a machine where the port is in use the job is alone, too.
  if (!spec.flag("standalone"_key) && !backend_of(backend)) {
    complaints.push_back({Errc::bad_config, spec.name_for_complaint("rdzv_backend"_key) +
                                                ": there is no rendezvous backend '" +
                                                printable(backend) +
                                                "': static, c10d, tcp or etcd"});
  }
  return complaints;
}

}  // namespace acc::launcher
