#include "launcher/configure/other_launchers.hpp"

#include "common/text.hpp"
#include "launcher/configure/config_map.hpp"
#include "launcher/habits.hpp"

#include <algorithm>
#include <optional>

namespace acc::configure {

namespace {

/// A flag of another launcher. `to`: a key of the file, "section.key", or a flag of acc-launch with
/// its dashes; empty: no counterpart, `note` says why.
struct OtherFlag {
  std::string_view words;  ///< separated by spaces
  bool takes_value;
  std::string_view to;
  std::string_view note;
};

constexpr OtherFlag kMpirun[] = {
    {"-n -np -c --np --n", true, "num_processes", ""},
    {"-H -host --host -hosts --hosts", true, "--hosts", ""},
    {"-hostfile --hostfile -machinefile --machinefile -f", true, "--hostfile", ""},
    {"-npernode --npernode -N -ppn --ppn -perhost --perhost", true, "per_host", ""},
    {"-x -genvlist -envlist", true, "env", ""},
    {"-genvall -envall --oversubscribe -oversubscribe --allow-run-as-root --use-hwthread-cpus",
     false, "skip", ""},
    {"-bind-to --bind-to -map-by --map-by -rank-by --rank-by --cpu-set", true, "",
     "workers aren't bound to cores, unless numa_binding is set in the file"},
    {"-mca --mca -gmca --gmca", true, "",
     "parameters of Open MPI: OMPI_MCA_name=value as a variable"},
    {"-tag-output --tag-output -l -prepend-rank", false, "skip", ""},
};

constexpr OtherFlag kDeepspeed[] = {
    {"-H --hostfile", true, "deepspeed_config.deepspeed_hostfile", ""},
    {"-i --include", true, "deepspeed_config.deepspeed_inclusion_filter", ""},
    {"-e --exclude", true, "deepspeed_config.deepspeed_exclusion_filter", ""},
    {"--launcher", true, "deepspeed_config.deepspeed_multinode_launcher", ""},
    {"--num_gpus --num_accelerators", true, "per_host", ""},
    {"--num_nodes", true, "num_machines", ""},
    {"--node_rank", true, "machine_rank", ""},
    {"--master_addr", true, "main_process_ip", ""},
    {"--master_port", true, "main_process_port", ""},
    {"--module", false, "module", ""},
    {"--no_python", false, "no_python", ""},
    {"--bind_cores_to_rank", false, "enable_cpu_affinity", ""},
    {"--enable_each_rank_log", true, "log_dir", ""},
    {"--no_ssh", false, "no_ssh", ""},
    {"--no_local_rank --force_multi", false, "skip", ""},
    {"--save_pid", false, "", "acc-ctl ps lists jobs with their processes"},
    {"--bind_core_list", true, "", "cores follow from the GPUs: numa_binding in the file"},
    {"--launcher_args", true, "", "arguments of DeepSpeed's own launcher"},
    {"--elastic_training", false, "", "acc-launch --nnodes MIN:MAX grows and shrinks a job"},
    {"--min_elastic_nodes --max_elastic_nodes", true, "", "acc-launch --nnodes MIN:MAX"},
    {"--autotuning", true, "",
     "DeepSpeed's autotuner starts jobs by itself: run it with deepspeed"},
};

class OtherLine {
 public:
  OtherLine(std::span<const OtherFlag> table, std::span<const std::string> words)
      : table_{table}, words_{words} {}

  void read() {
    while (at_ < words_.size() && words_[at_].size() > 1 && words_[at_][0] == '-') {
      const auto word = words_[at_++];
      if (word == "--") break;
      take(word);
    }
    const auto rest = words_.subspan(std::min(at_, words_.size()));
    line.command.assign(rest.begin(), rest.end());
  }

  ForeignLine line;
  std::optional<std::int64_t> per_host;
  bool is_without_ssh = false;

 private:
  static bool has_word(std::string_view words, std::string_view word) {
    const auto all = split(words, ' ');
    return std::ranges::find(all, word) != all.end();
  }

  void take(const std::string& word) {
    const auto equals = word.starts_with("--") ? word.find('=') : std::string::npos;
    const auto name = word.substr(0, equals);
    const auto found = std::ranges::find_if(
        table_, [&](const OtherFlag& flag) { return has_word(flag.words, name); });
    if (found == table_.end()) return take_unknown(name, equals != std::string::npos);
    std::string value;
    if (equals != std::string::npos) value = word.substr(equals + 1);
    if (found->takes_value && equals == std::string::npos && at_ < words_.size())
      value = words_[at_++];
    if (name == "-mca" || name == "--mca") value += at_ < words_.size() ? " " + words_[at_++] : "";
    put_flag(*found, name, value);
  }

  void put_flag(const OtherFlag& flag, const std::string& name, const std::string& value) {
    if (flag.to.empty())
      return no_counterpart(name + (value.empty() ? "" : " " + value), std::string{flag.note});
    if (flag.to == "skip") return;
    if (flag.to == "no_ssh") {
      is_without_ssh = true;
      return;
    }
    if (flag.to == "env") return put_variable(value);
    const auto number = parse_number<std::int64_t>(value);
    if (flag.to == "per_host") {
      per_host = number;
      if (!number) no_counterpart(name + " " + value, "expected a number");
      return;
    }
    if (flag.to.starts_with("--")) {
      line.flags.emplace_back(flag.to);
      line.flags.push_back(value);
      return;
    }
    const Value typed = !flag.takes_value ? Value{true} : number ? Value{*number} : Value{value};
    const auto dot = flag.to.find('.');
    if (dot == std::string_view::npos) return put(line.map, flag.to, typed);
    put_in_section(flag.to.substr(0, dot), flag.to.substr(dot + 1),
                   Value{flag.to.ends_with("launcher") ? to_lower(value) : value});
  }

 public:
  void put_in_section(std::string_view section, std::string_view key, Value value) {
    if (value_of(line.map, section) == nullptr) put(line.map, section, Value{Map{}});
    const auto found = std::ranges::find(line.map, section, &Entry::key);
    put(std::get<Map>(found->value.data), key, std::move(value));
  }

 private:
  /// Workers on this machine inherit all variables; only a new value has to be said.
  void put_variable(const std::string& value) {
    if (value.find('=') != std::string::npos)
      no_counterpart("-x " + value,
                     "set the variable before acc-launch: " + value + " acc-launch …");
  }

  void no_counterpart(const std::string& what, const std::string& why) {
    line.notes.push_back("left out: " + what + (why.empty() ? "" : ": " + why));
  }

  void take_unknown(const std::string& name, bool has_value) {
    const auto* habit = launcher::habit_of(name);
    const auto hint =
        habit == nullptr ? std::string{"acc-launch has no such flag"} : std::string{habit->hint};
    std::string value;
    const bool takes = !has_value && habit != nullptr && habit->takes_value;
    if (takes && at_ < words_.size()) value = " " + words_[at_++];
    if (habit != nullptr && habit->takes_pair && at_ < words_.size()) value += " " + words_[at_++];
    no_counterpart(name + value, hint);
  }

  std::span<const OtherFlag> table_;
  std::span<const std::string> words_;
  std::size_t at_ = 0;
};

std::int64_t integer_of(const Map& map, std::string_view key, std::int64_t otherwise) {
  const auto* value = value_of(map, key);
  return value != nullptr && value->integer() != nullptr ? *value->integer() : otherwise;
}

/// deepspeed's own file, which its scripts take as an argument.
std::string deepspeed_file_in(std::span<const std::string> command) {
  for (std::size_t i = 1; i < command.size(); ++i) {
    for (const std::string_view flag : {"--deepspeed_config", "--deepspeed"}) {
      if (command[i].starts_with(std::string{flag} + "="))
        return command[i].substr(flag.size() + 1);
      const bool has_value = i + 1 < command.size() && command[i + 1].ends_with(".json");
      if (command[i] == flag && has_value) return command[i + 1];
    }
  }
  return {};
}

}  // namespace

ForeignLine read_mpirun(std::span<const std::string> words, std::uint32_t gpus) {
  OtherLine other{kMpirun, words};
  other.read();
  auto& line = other.line;
  const bool has_hosts = !line.flags.empty();
  if (has_hosts) line.flags.emplace_back("--ssh");
  const bool is_counted = value_of(line.map, "num_processes") != nullptr;
  if (!is_counted && !has_hosts) put(line.map, "num_processes", Value{other.per_host.value_or(1)});
  if (other.per_host && has_hosts) {
    std::erase_if(line.map, [](const Entry& entry) { return entry.key == "num_processes"; });
    line.flags.push_back("--nproc_per_node=" + std::to_string(*other.per_host));
  }
  if (has_hosts) line.notes.emplace_back("hosts are no key of a config file: they stay flags");
  put(line.map, "distributed_type", Value{gpus > 0 ? "MULTI_GPU" : "MULTI_CPU"});
  line.notes.push_back("mpirun says nothing of devices: " +
                       std::string{gpus > 0 ? "MULTI_GPU, as this machine has GPUs"
                                            : "MULTI_CPU, as this machine has no GPU"});
  put(line.map, "use_cpu", Value{gpus == 0});
  return std::move(line);
}

ForeignLine read_deepspeed(std::span<const std::string> words, std::uint32_t gpus) {
  OtherLine other{kDeepspeed, words};
  other.read();
  auto& line = other.line;
  put(line.map, "distributed_type", Value{"DEEPSPEED"});
  const auto nodes = std::max<std::int64_t>(integer_of(line.map, "num_machines", 1), 1);
  const std::int64_t here = other.per_host.value_or(std::max(gpus, 1U));
  if (!other.per_host)
    line.notes.push_back("the line leaves the number of GPUs to the launcher: " +
                         std::to_string(here) + " by the devices of this machine");
  put(line.map, "num_processes", Value{here * nodes});
  if (other.is_without_ssh)
    other.put_in_section("deepspeed_config", "deepspeed_multinode_launcher", Value{"nossh"});
  const auto file = deepspeed_file_in(line.command);
  if (!file.empty()) other.put_in_section("deepspeed_config", "deepspeed_config_file", Value{file});
  return std::move(line);
}

}  // namespace acc::configure
