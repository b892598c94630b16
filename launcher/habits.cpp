#include "launcher/habits.hpp"

#include "common/text.hpp"

#include <algorithm>
#include <utility>

namespace acc::launcher {

namespace {

constexpr Habit kHabits[] = {
    // ---- torch.distributed.launch, scripts that were started by hand
    {"use_env use-env",
     "torch.distributed.launch's flag; here LOCAL_RANK is always in the environment: leave it out"},
    {"duplicate_stdout_filters duplicate-stdout-filters duplicate_stderr_filters "
     "duplicate-stderr-filters",
     "torchrun's flag; lines aren't filtered here: leave it out", true},
    {"local_rank local-rank", "each worker finds its own in LOCAL_RANK: leave it out", true},
    {"world_size world-size ntasks", "here --num_processes N", true, "num_processes"},
    {"rank", "here --machine_rank N; workers find their own number in RANK", true, "machine_rank"},
    {"dist_url dist-url init_method init-method",
     "here --main_process_ip ADDRESS and --main_process_port PORT", true, "main_process_ip"},
    {"u", "Python's flag; workers with ranks have it: leave it out (else PYTHONUNBUFFERED=1)"},
    // ---- earlier versions of accelerate, keys that have another name as a flag
    {"use_cpu use-cpu", "the flag is --cpu; use_cpu is its key in the config file", false, "cpu"},
    {"fp16", "here --mixed_precision fp16", false, "mixed_precision"},
    {"bf16", "here --mixed_precision bf16", false, "mixed_precision"},
    {"ipex use_xpu use-xpu use_mps_device use-mps-device mps",
     "it was removed from Accelerate: leave it out"},
    {"config", "here --config_file FILE", true, "config_file"},
    {"fsdp", "here --use_fsdp", false, "use_fsdp"},
    {"deepspeed", "here --use_deepspeed", false, "use_deepspeed"},
    {"distributed_type distributed-type",
     "a key of the config file only; the flags are --cpu, --multi_gpu, --use_fsdp, "
     "--use_deepspeed and --use_megatron_lm",
     true, "distributed_type"},
    // ---- the deepspeed program, others
    {"gpus gpu num_gpus num-gpus ngpus n_gpus devices",
     "here --num_processes N for how many, --gpu_ids 0,1 for which", true, "num_processes"},
    {"num_nodes num-nodes nodes", "here --num_machines N", true, "num_machines"},
    {"dry_run dry-run", "here --print_plan"},
    // ---- mpirun and mpiexec of Open MPI, MPICH and Intel MPI
    {"np n", "mpirun's flag; here --num_processes N", true, "num_processes"},
    {"N npernode ppn perhost", "mpirun's flag; here --nproc_per_node N", true, "nproc_per_node"},
    {"host H hosts",
     "mpirun's flag; here --hosts a:8,b:8, through acc-agent on each, or with --ssh", true,
     "hosts"},
    {"machinefile hostfile f",
     "mpirun's flag; here --hostfile FILE, through acc-agent on each, or with --ssh", true,
     "hostfile"},
    {"x genvlist envlist export",
     "mpirun's flag; workers inherit all variables: VAR=value acc-launch …; with --hosts --env "
     "NAME",
     true},
    {"genv env", "mpiexec's flag; workers inherit all variables: NAME=VALUE acc-launch …", true, "",
     true},
    {"genvall envall", "mpiexec's flag; workers always inherit all variables: leave it out"},
    {"genvnone envnone",
     "mpiexec's flag; workers inherit all variables: env -i NAME=VALUE acc-launch …"},
    {"timestamp-output prepend-rank l",
     "mpirun's flag; here --tee 3 (each line with its rank, and a file per rank)", false, "tee"},
    {"output-filename outfile-pattern errfile-pattern",
     "mpirun's flag; here --redirects 3 --log_dir FOLDER", true, "log_dir"},
    {"bind-to map-by rank-by cpu-set binding",
     "mpirun's flag; here --numa_binding, or enable_cpu_affinity in the config file", true,
     "numa_binding"},
    {"oversubscribe use-hwthread-cpus allow-run-as-root",
     "mpirun's flag; not needed here: leave it out"},
    {"wdir wd", "mpirun's flag; workers start in the current folder: cd there first", true},
    {"display-map display-allocation report-bindings", "mpirun's flag; here --print_plan"},
    {"mpirun_ccl mpirun-ccl",
     "Accelerate's flag; oneCCL reads the number from a variable: CCL_WORKER_COUNT=N acc-launch …",
     true},
    {"signal", "srun's and sbatch's flag, which stands in front of acc-launch or in the script",
     true},
    {"mca", "Open MPI's flag; its parameters can be set as variables: OMPI_MCA_name=value", true},
    {"v verbose V", "--version prints the version; --log_level info or debug tells more"},
};

constexpr std::string_view kOfMpi =
    "acc-launch starts the workers itself: acc-launch --num_processes N PROGRAM; acc-config "
    "convert "
    "-- mpirun … says which flags take the place of mpirun's. To run acc-launch under it, write "
    "mpirun in front: mpirun … acc-launch train.py";

constexpr std::pair<std::string_view, std::string_view> kCommands[] = {
    {"launch", "acc-launch is `accelerate launch` already: leave the word out"},
    {"accelerate", "acc-launch takes the place of `accelerate launch`: leave both words out"},
    {"torchrun", "acc-launch takes its place, with the same flags: leave the word out"},
    {"mpirun", kOfMpi},
    {"mpiexec", kOfMpi},
    {"mpiexec.hydra", kOfMpi},
    {"orterun", kOfMpi},
    {"srun",
     "srun stands in front of acc-launch, and starts one on each node: srun … acc-launch train.py "
     "(docs/from-slurm.md)"},
    {"deepspeed",
     "acc-launch starts the workers itself: leave the word out; acc-config convert -- deepspeed … "
     "says which flags take the place of its own"},
    {"config",
     "the program for it is acc-config; files of `accelerate config` work as they are, and "
     "acc-launch --print_config shows what counts"},
    {"env",
     "the program for it is acc-env, for bug reports; acc-test --local_only checks this machine"},
    {"test", "the program for it is acc-test"},
    {"to-fsdp2", "that is acc-config convert --to fsdp2 FILE"},
    {"merge-weights", "that is acc merge-weights CHECKPOINT OUTPUT"},
    {"estimate-memory", "that is acc estimate-memory PATH"},
    {"tpu-config", "TPU pods aren't supported"},
};

}  // namespace

const Habit* habit_of(std::string_view word) {
  const auto name = word.substr(std::min(word.find_first_not_of('-'), word.size()));
  if (name.empty()) return nullptr;
  for (const auto& habit : kHabits) {
    const auto words = split(habit.words, ' ');
    if (std::ranges::find(words, name) != words.end()) return &habit;
  }
  return nullptr;
}

std::string_view command_hint(std::string_view word) {
  const auto found =
      std::ranges::find(kCommands, word, &std::pair<std::string_view, std::string_view>::first);
  return found == std::end(kCommands) ? std::string_view{} : found->second;
}

}  // namespace acc::launcher
