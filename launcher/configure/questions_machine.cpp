#include "common/text.hpp"
#include "launcher/config_keys.hpp"
#include "launcher/configure/questions.hpp"

#include <algorithm>

/// Which machines, how many, and with what devices.
namespace acc::configure {

namespace {

constexpr std::int64_t kMaxMachines = 65'536;

bool is_multi(const Answers& answers) {
  return answers.is_local() && answers.text("machine_type").starts_with("MULTI_");
}
bool on_several_machines(const Answers& answers) {
  return is_multi(answers) && answers.integer("num_machines") > 1;
}

std::vector<Option> machine_types() {
  return {{"No distributed training", Value{"NO"}},
          {"multi-CPU", Value{"MULTI_CPU"}},
          {"multi-XPU", Value{"MULTI_XPU"}},
          {"multi-HPU", Value{"MULTI_HPU"}},
          {"multi-GPU", Value{"MULTI_GPU"}},
          {"multi-NPU", Value{"MULTI_NPU"}},
          {"multi-MLU", Value{"MULTI_MLU"}},
          {"multi-SDAA", Value{"MULTI_SDAA"}},
          {"multi-MUSA", Value{"MULTI_MUSA"}},
          {"multi-NEURON", Value{"MULTI_NEURON"}},
          {"TPU", Value{"XLA"}}};
}

std::vector<Option> machine_ranks(const Answers& answers) {
  std::vector<Option> options;
  const auto count = std::min(answers.integer("num_machines"), kMaxMachines);
  for (std::int64_t rank = 0; rank < count; ++rank)
    options.push_back({std::to_string(rank), Value{rank}});
  return options;
}

std::string doubt_port(const Answers& /*answers*/, const Value& value) {
  if (value.integer() == nullptr) return {};
  if (*value.integer() >= 0 && *value.integer() <= 65'535) return {};
  return "a port is a number from 0 to 65535";
}

std::string doubt_backend(const Answers& /*answers*/, const Value& value) {
  constexpr std::string_view kKnown[] = {"static", "c10d", "tcp", "etcd", "etcd-v2"};
  if (std::ranges::find(kKnown, python_text(value)) != std::end(kKnown)) return {};
  return "acc-launch knows static, c10d (also called tcp) and etcd";
}

std::string doubt_address(const Answers& /*answers*/, const Value& value) {
  const auto text = python_text(value);
  if (text.empty()) return "nothing was entered";
  const auto address = launcher::parse_value(*launcher::find_key("main_process_ip"), text);
  return address ? std::string{} : address.error().what;
}

std::string refuse_machines(const Answers& /*answers*/, const Value& value) {
  if (value.integer() == nullptr || *value.integer() <= kMaxMachines) return {};
  return "at most " + std::to_string(kMaxMachines) + " machines";
}

/// As the original names them: cores, processes, or the device.
std::string process_question(const Answers& answers) {
  const auto type = answers.distributed_type();
  std::string what = "GPU(s)";
  if (type == "XLA") what = "XLA device(s)";
  if (type == "MULTI_CPU") what = "processes";
  if (type == "MULTI_NEURON") what = "NEURON cores";
  constexpr std::string_view kPrefix = "MULTI_";
  if (type.starts_with(kPrefix) && type != "MULTI_CPU" && type != "MULTI_NEURON")
    what = type.substr(kPrefix.size()) + "(s)";
  return "Number of " + what +
         (answers.integer("num_machines") > 1 ? ", over all machines together" : "");
}

bool has_processes(const Answers& answers) {
  return answers.is_local() && answers.distributed_type() != "NO";
}

std::string refuse_single_gpu(const Answers& answers, const Value& value) {
  const bool is_one = value.integer() != nullptr && *value.integer() == 1;
  const bool here = answers.distributed_type() == "MULTI_GPU" && is_one;
  if (!here || answers.integer("num_machines") != 1) return {};
  return "multi-GPU with one GPU on one machine is no distributed training: give 2 or more, or go "
         "back and choose \"No distributed training\"";
}

std::string doubt_processes(const Answers& answers, const Value& value) {
  if (auto doubt = doubt_below_one(answers, value); !doubt.empty()) return doubt;
  const auto machines = answers.integer("num_machines");
  if (value.integer() == nullptr || *value.integer() >= machines) return {};
  return "fewer than one for each of the " + std::to_string(machines) +
         " machines: the count is over all machines together";
}

bool takes_ids(const Answers& answers) {
  const auto type = answers.distributed_type();
  const bool has_devices = type == "NO" || (type.starts_with("MULTI_") && type != "MULTI_CPU");
  return answers.is_local() && has_devices && !answers.is_yes("use_cpu");
}

bool takes_affinity(const Answers& answers) {
  const auto type = answers.distributed_type();
  return takes_ids(answers) && (type == "NO" || type == "MULTI_GPU");
}

std::string ids_question(const Answers& answers) {
  const auto type = answers.text("machine_type");
  constexpr std::string_view kPrefix = "MULTI_";
  std::string device = "GPU(s)";
  if (type.starts_with(kPrefix)) device = type.substr(kPrefix.size()) + "(s)";
  if (type == "MULTI_NEURON") device = "Neuron cores";
  return device + " of this machine to train on: ids, comma-separated, or all";
}

std::string doubt_ids(const Answers& answers, const Value& value) {
  const auto text = python_text(value);
  if (text == "all") return {};
  const auto ids = split(text, ',');
  for (const auto& id : ids) {
    const auto word = trim(id);
    const bool is_uuid = word.starts_with("GPU-") || word.starts_with("MIG-");
    if (!is_uuid && !parse_number<unsigned>(word))
      return "ids are numbers separated by commas, as 0,1,3, or the word all";
  }
  const bool is_single = ids.size() == 1 && answers.integer("num_machines") <= 1;
  if (answers.distributed_type() == "MULTI_GPU" && is_single)
    return "multi-GPU on one machine needs two ids or more";
  return {};
}

void add_environment_questions(Questions& table) {
  table.push_back({.id = "compute_environment",
                   .kind = Kind::choice,
                   .text = "Where the job runs",
                   .key = "compute_environment",
                   .initial = Value{"LOCAL_MACHINE"},
                   .choices = {{"This machine", Value{"LOCAL_MACHINE"}},
                               {"AWS (Amazon SageMaker)", Value{"AMAZON_SAGEMAKER"}}},
                   .help = "acc-launch starts jobs on machines that you can log in to. A file for "
                           "SageMaker is written as `accelerate config` writes it, for `accelerate "
                           "launch` to read."});
  table.push_back({.id = "machine_type",
                   .kind = Kind::choice,
                   .text = "Devices to train on",
                   .initial = Value{"NO"},
                   .choices = machine_types(),
                   .when = "on this machine",
                   .applies = [](const Answers& a) { return a.is_local(); },
                   .help = "multi-X: several workers, each with a device of that kind, on one "
                           "machine or several. DeepSpeed, FSDP and Megatron-LM are asked for "
                           "later: choose the devices here."});
}

void add_count_questions(Questions& table) {
  table.push_back({.id = "num_machines",
                   .kind = Kind::integer,
                   .text = "Number of machines",
                   .key = "num_machines",
                   .initial = Value{std::int64_t{1}},
                   .when = "multi-X",
                   .applies = is_multi,
                   .help = "Each machine has a file of its own, which differs in the rank of the "
                           "machine.",
                   .refuse = refuse_machines,
                   .doubt = doubt_below_one});
  table.push_back({.id = "machine_rank",
                   .kind = Kind::choice,
                   .text = "Rank of this machine",
                   .key = "machine_rank",
                   .initial = Value{std::int64_t{0}},
                   .when = "more than one machine",
                   .applies = on_several_machines,
                   .help = "0 is the machine that hosts the main process; each machine has another "
                           "number.",
                   .choices_now = machine_ranks});
}

void add_meeting_questions(Questions& table) {
  table.push_back({.id = "main_process_ip",
                   .kind = Kind::text,
                   .text = "Address of the machine with rank 0",
                   .key = "main_process_ip",
                   .when = "more than one machine",
                   .applies = on_several_machines,
                   .help = "The address or the name of machine 0 as the others reach it.",
                   .doubt = doubt_address});
  table.push_back({.id = "main_process_port",
                   .kind = Kind::integer,
                   .text = "Port of rank 0's store",
                   .key = "main_process_port",
                   .when = "more than one machine",
                   .applies = on_several_machines,
                   .help = "A free port of machine 0; 29500 is usual. The one after it should be "
                           "free, too: acc-launch's coordinator listens there.",
                   .doubt = doubt_port});
  table.push_back(
      {.id = "same_network",
       .kind = Kind::yes_no,
       .text = "Do all machines share one local network? (no: cloud machines, or several networks)",
       .key = "same_network",
       .initial = Value{true},
       .when = "more than one machine",
       .applies = on_several_machines,
       .help = "With no you are asked how the machines find each other."});
  table.push_back(
      {.id = "rdzv_backend",
       .kind = Kind::text,
       .text = "Rendezvous backend (static, c10d …)",
       .key = "rdzv_backend",
       .initial = Value{"static"},
       .when = "more than one machine, not on one network",
       .applies =
           [](const Answers& a) { return on_several_machines(a) && !a.is_yes("same_network"); },
       .help = "static: each machine has a fixed rank. c10d: ranks are dealt out when "
               "the machines meet, and machines may be replaced.",
       .doubt = doubt_backend});
}

void add_cpu_questions(Questions& table) {
  table.push_back(
      {.id = "debug",
       .kind = Kind::yes_no,
       .text =
           "Check collectives for mismatches at run time? (slower; turns time-outs into errors)",
       .key = "debug",
       .initial = Value{false},
       .when = "multi-X",
       .applies = is_multi,
       .help = "Accelerate compares the shapes of all ranks before each collective."});
  table.push_back({.id = "use_cpu",
                   .kind = Kind::yes_no,
                   .text = "Train on the CPU, whatever accelerator is there?",
                   .initial = Value{false},
                   .when = "no distributed training",
                   .applies = [](const Answers& a) { return a.text("machine_type") == "NO"; },
                   .help = "yes: devices of this machine are not used."});
  table.push_back(
      {.id = "use_mpirun",
       .kind = Kind::yes_no,
       .text = "Start the workers by mpirun?",
       .initial = Value{false},
       .when = "multi-CPU",
       .applies = [](const Answers& a) { return a.text("machine_type") == "MULTI_CPU"; },
       .help = "Not needed: acc-launch starts several workers on the CPU by itself. "
               "yes: mpirun is run around your script."});
  table.push_back({.id = "mpirun_hostfile",
                   .kind = Kind::text,
                   .text = "Host file of mpirun",
                   .initial = Value{"~/hostfile"},
                   .when = "with mpirun",
                   .applies = [](const Answers& a) { return a.is_yes("use_mpirun"); },
                   .help = "The file with the hosts, as mpirun --hostfile takes it.",
                   .doubt = doubt_missing_file});
}

constexpr auto kOnCluster = [](const Answers& a) { return a.is_yes("tpu_use_cluster"); };

void add_cluster_questions(Questions& table) {
  const auto add = [&](std::string_view id, Kind kind, std::string text, std::string_view key,
                       std::optional<Value> initial, bool (*applies)(const Answers&),
                       std::string_view when, std::size_t repeats_from = 0) {
    table.push_back({.id = id,
                     .kind = kind,
                     .text = std::move(text),
                     .key = key,
                     .initial = std::move(initial),
                     .when = when,
                     .applies = applies,
                     .repeats_from = repeats_from});
  };
  add("tpu_name", Kind::text, "Name of the TPU cluster", "tpu_name", {}, kOnCluster, "TPU cluster");
  add("tpu_zone", Kind::text, "Zone of the TPU cluster", "tpu_zone", {}, kOnCluster, "TPU cluster");
  add("tpu_use_sudo", Kind::text, "Run the script under `sudo` in the pod?", "tpu_use_sudo",
      Value{false}, kOnCluster, "TPU cluster");
  add("run_commands", Kind::yes_no, "Run commands when a pod starts?", "", Value{false}, kOnCluster,
      "TPU cluster");
  constexpr auto kRuns = [](const Answers& a) { return a.is_yes("run_commands"); };
  add("use_command_file", Kind::yes_no, "Do they stand in a bash script?", "", Value{false}, kRuns,
      "code at startup");
  add(
      "command_file", Kind::text, "Bash script with them", "", {},
      [](const Answers& a) { return a.is_yes("use_command_file"); }, "code in a script");
  constexpr auto kTypes = [](const Answers& a) {
    return a.is_yes("run_commands") && !a.is_yes("use_command_file");
  };
  add("command", Kind::text, "One command that each pod runs when it starts", "", {}, kTypes,
      "code that isn't in a script");
  add("another_command", Kind::yes_no, "One more command?", "", Value{false}, kTypes,
      "code that isn't in a script", 1);
  add("tpu_vm", Kind::text, "Compute VM instances, comma-separated (without an instance group)", "",
      Value{""}, kOnCluster, "TPU cluster");
  add("tpu_env", Kind::text, "Environment variables of each pod, comma-separated", "", Value{""},
      kOnCluster, "TPU cluster");
}

}  // namespace

void add_machine_questions(Questions& table) {
  add_environment_questions(table);
  add_count_questions(table);
  add_meeting_questions(table);
  add_cpu_questions(table);
}

void add_device_questions(Questions& table) {
  table.push_back({.id = "num_processes",
                   .kind = Kind::integer,
                   .key = "num_processes",
                   .initial = Value{std::int64_t{1}},
                   .when = "multi-X, TPU, DeepSpeed, FSDP or Megatron-LM",
                   .applies = has_processes,
                   .help = "The workers of the whole job, over all machines. Machines that differ: "
                           "enter their counts as 8+4, the sum is written. acc-launch gives the "
                           "first machines one more where a sum doesn't divide; any other split "
                           "takes `acc-launch --hosts a:8,b:4`.",
                   .text_now = process_question,
                   .refuse = refuse_single_gpu,
                   .doubt = doubt_processes});
  table.push_back({.id = "gpu_ids",
                   .kind = Kind::text,
                   .key = "gpu_ids",
                   .initial = Value{"all"},
                   .when = "devices, without DeepSpeed, FSDP and Megatron-LM",
                   .applies = takes_ids,
                   .help = "Numbers as the driver counts them: 0,1,3. all: every device of this "
                           "machine.",
                   .text_now = ids_question,
                   .doubt = doubt_ids});
  table.push_back(
      {.id = "enable_cpu_affinity",
       .kind = Kind::yes_no,
       .text = "Bind workers to the cores near their GPU (NUMA)? (Accelerate itself: NVIDIA only)",
       .key = "enable_cpu_affinity",
       .initial = Value{false},
       .when = "no distributed training, or multi-GPU; not on the CPU",
       .applies = takes_affinity,
       .help = "yes: each worker is bound to the cores near its GPU."});
}

void add_tpu_questions(Questions& table) {
  constexpr auto kOnTpu = [](const Answers& a) { return a.text("machine_type") == "XLA"; };
  table.push_back({.id = "main_training_function",
                   .kind = Kind::text,
                   .text = "Function of your script that each process calls",
                   .key = "main_training_function",
                   .initial = Value{"main"},
                   .when = "TPU",
                   .applies = kOnTpu,
                   .help = "TPU jobs are started with `accelerate launch`, which calls this "
                           "function in each process."});
  table.push_back({.id = "tpu_use_cluster",
                   .kind = Kind::yes_no,
                   .text = "Is it a TPU cluster?",
                   .key = "tpu_use_cluster",
                   .initial = Value{false},
                   .when = "TPU",
                   .applies = kOnTpu});
  add_cluster_questions(table);
}

}  // namespace acc::configure
