#include "launcher/configure/other_launchers.hpp"

#include "common/text.hpp"
#include "launcher/configure/config_map.hpp"
#include "launcher/configure/unexpanded.hpp"
#include "launcher/habits.hpp"

#include <algorithm>
#include <iterator>
#include <optional>

namespace acc::configure {

namespace {

constexpr OtherFlag kMpirun[] = {
    {"-n -np -c --np --n", 1, "@workers", ""},
    {"-H -host --host -hosts --hosts", 1, "@hosts", ""},
    {"-hostfile --hostfile -machinefile --machinefile -f --default-hostfile", 1, "@hostfile", ""},
    {"-npernode --npernode -N -ppn --ppn -perhost --perhost -grr", 1, "@per_host", ""},
    {"-pernode --pernode", 0, "@one_per_host", ""},
    {"-x", 1, "@variable", ""},
    {"-genvlist -envlist", 1, "@variables", ""},
    {"-genv -env", 2, "@pair", ""},
    {"-genvall -envall", 0, "@all_variables", ""},
    {"-app --app -configfile --configfile", 1, "@several_programs", ""},
    {"--oversubscribe -oversubscribe", 0, "@oversubscribe", ""},
    {"--allow-run-as-root --use-hwthread-cpus -nooversubscribe --nooversubscribe "
     "-byslot --byslot",
     0, "skip", ""},
    {"-map-by --map-by -ppr --ppr", 1, "@map_by", ""},
    {"-bynode --bynode", 0, "@by_node", ""},
    {"-npersocket --npersocket", 1, "@per_socket", ""},
    {"-bind-to --bind-to -rank-by --rank-by --cpu-set --cpu-list -membind", 1, "", kNotBound},
    {"-cpus-per-proc --cpus-per-proc -cpus-per-rank --cpus-per-rank -rf -rankfile --rankfile", 1,
     "", kNotBound},
    {"-mca --mca -gmca --gmca", 2, "", "parameters of Open MPI: OMPI_MCA_name=value as a variable"},
    {"-am --am -tune --tune -prefix --prefix -path --path -launch-agent --launch-agent -plm --plm "
     "-personality --personality -xterm --xterm -report-uri --report-uri",
     1, "", "an option of Open MPI's own launcher"},
    {"-launcher -launcher-exec -bootstrap -bootstrap-exec -rmk -iface -demux -pmi-port -usize "
     "-order-nodes -gtool -gtoolfile -localhost",
     1, "", "an option of MPICH's own launcher"},
    {"-timeout --timeout", 1, "",
     "acc-launch has no limit of a job's time: timeout N acc-launch …"},
    {"-stdin --stdin", 1, "@stdin", ""},
    {"-tag-output --tag-output -l -prepend-rank", 0, "@tags", ""},
};

constexpr OtherFlag kDeepspeed[] = {
    {"-H --hostfile", 1, "@hostfile", ""},
    {"-i --include", 1, "@include", ""},
    {"-e --exclude", 1, "@exclude", ""},
    {"--launcher", 1, "deepspeed_config.deepspeed_multinode_launcher", ""},
    {"--num_gpus --num_accelerators", 1, "@per_host", ""},
    {"--num_nodes", 1, "@hosts", ""},
    {"--node_rank", 1, "machine_rank", ""},
    {"--master_addr", 1, "main_process_ip", ""},
    {"--master_port", 1, "main_process_port", ""},
    {"--module", 0, "module", ""},
    {"--no_python", 0, "no_python", ""},
    {"--bind_cores_to_rank", 0, "enable_cpu_affinity", ""},
    {"--enable_each_rank_log", 1, "log_dir", ""},
    {"--no_ssh", 0, "@no_ssh", ""},
    {"--no_local_rank", 0, "@no_local_rank", ""},
    {"--force_multi --no_ssh_check", 0, "skip", ""},
    {"--ssh_port", 1, "", "here --ssh_options '-p PORT', beside --ssh"},
    {"--venv_script", 1, "", "activate the environment before: workers inherit it"},
    {"--save_pid", 0, "", "acc-ctl ps lists jobs with their processes"},
    {"--bind_core_list", 1, "", "cores follow from the GPUs: numa_binding in the file"},
    {"--launcher_args", 1, "", "arguments of DeepSpeed's own launcher"},
    {"--elastic_training", 0, "", "acc-launch --nnodes MIN:MAX grows and shrinks a job"},
    {"--min_elastic_nodes --max_elastic_nodes", 1, "", "acc-launch --nnodes MIN:MAX"},
    {"--autotuning", 1, "", "DeepSpeed's autotuner starts jobs by itself: run it with deepspeed"},
};

class OtherLine {
 public:
  /// @param complete  the launcher of which the table has all flags; empty: there are others
  OtherLine(std::span<const OtherFlag> table, std::span<const std::string> words,
            std::string_view complete = {})
      : table_{table}, words_{words}, complete_{complete} {}

  OtherFlags read() {
    while (at_ < words_.size() && words_[at_].size() > 1 && words_[at_][0] == '-') {
      const auto word = words_[at_++];
      if (word == "--") break;
      take(word);
    }
    std::ranges::move(unexpanded_values(words_.first(at_)), std::back_inserter(read_.complaints));
    const auto rest = words_.subspan(at_);
    read_.line.command.assign(rest.begin(), rest.end());
    if (!unknown_.empty() && !rest.empty())
      read_.line.notes.push_back("is " + in_quotes(rest.front(), 60) +
                                 " the program, or a value of " + unknown_ + "?");
    return std::move(read_);
  }

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
    unknown_.clear();
    if (found == table_.end() && !complete_.empty()) return refuse(name);
    if (found == table_.end()) return take_unknown(name, equals != std::string::npos);
    std::vector<std::string> values;
    if (equals != std::string::npos) values.push_back(word.substr(equals + 1));
    const auto is_pair_in_one = [&] {
      return found->to == "@pair" && values.size() == 1 && values[0].find('=') != std::string::npos;
    };
    while (static_cast<int>(values.size()) < found->values && !is_pair_in_one()) {
      if (at_ == words_.size()) {
        read_.complaints.push_back({Errc::bad_usage, name + ": its value is missing"});
        return;
      }
      values.push_back(words_[at_++]);
    }
    put_flag(*found, name, values);
  }

  void put_flag(const OtherFlag& flag, const std::string& name,
                const std::vector<std::string>& values) {
    if (flag.to.empty())
      return no_counterpart(name + (values.empty() ? "" : " " + join(values, " ")),
                            std::string{flag.note});
    if (flag.to == "skip") return;
    const auto value = values.empty() ? std::string{} : values.front();
    if (flag.to.starts_with('@')) {
      read_.special.push_back(
          {flag.to, name, value, values.size() > 1 ? values[1] : std::string{}});
      return;
    }
    const auto number = parse_number<std::int64_t>(value);
    const Value typed = flag.values == 0 ? Value{true} : number ? Value{*number} : Value{value};
    const auto dot = flag.to.find('.');
    if (dot == std::string_view::npos) return put(read_.line.map, flag.to, typed);
    put_in_section(read_.line.map, flag.to.substr(0, dot), flag.to.substr(dot + 1),
                   Value{flag.to.ends_with("launcher") ? to_lower(value) : value});
  }

  void no_counterpart(const std::string& what, const std::string& why) {
    read_.line.notes.push_back("left out: " + what + (why.empty() ? "" : ": " + why));
  }

  void refuse(const std::string& name) {
    std::vector<std::string> spellings;
    for (const auto& flag : table_)
      std::ranges::move(split(flag.words, ' '), std::back_inserter(spellings));
    const std::vector<std::string_view> known{spellings.begin(), spellings.end()};
    const auto meant = nearest(name, known);
    read_.complaints.push_back(
        {Errc::bad_usage,
         name + ": " + std::string{complete_} + " has no such flag" +
             (meant.empty() ? "" : " (did you mean " + std::string{meant} + "?)")});
  }

  void take_unknown(const std::string& name, bool has_value) {
    const auto* habit = launcher::habit_of(name);
    const auto hint =
        habit == nullptr ? std::string{"acc-launch has no such flag"} : std::string{habit->hint};
    std::string value;
    const bool takes = !has_value && habit != nullptr && habit->takes_value;
    if (takes && at_ < words_.size()) value = " " + words_[at_++];
    if (habit == nullptr && !has_value) unknown_ = name;
    no_counterpart(name + value, hint);
  }

  std::span<const OtherFlag> table_;
  std::span<const std::string> words_;
  std::string_view complete_;
  std::size_t at_ = 0;
  std::string unknown_;  ///< the last flag, where nothing says whether it takes a value
  OtherFlags read_;
};

}  // namespace

bool has_hosts(const ForeignLine& line) {
  return std::ranges::any_of(line.flags, [](const std::string& flag) {
    return flag == "--hosts" || flag == "--hostfile";
  });
}

void set_variable(ForeignLine& line, const std::string& variable) {
  const auto equals = variable.find('=');
  if (has_hosts(line)) {
    line.flags.emplace_back("--env");
    line.flags.push_back(variable);
  } else if (equals != std::string::npos) {
    const auto begin = variable.substr(0, equals + 1);
    std::erase_if(line.variables,
                  [&](const std::string& other) { return other.starts_with(begin); });
    line.variables.push_back(variable);
  }
}

OtherFlags read_mpirun_flags(std::span<const std::string> words) {
  return OtherLine{kMpirun, words}.read();
}

OtherFlags read_deepspeed_flags(std::span<const std::string> words) {
  return OtherLine{kDeepspeed, words, "deepspeed"}.read();
}

const SpecialFlag* last_of(const OtherFlags& flags, std::string_view to) {
  const auto found = std::find_if(flags.special.rbegin(), flags.special.rend(),
                                  [&](const SpecialFlag& flag) { return flag.to == to; });
  return found == flags.special.rend() ? nullptr : &*found;
}

std::int64_t count_of(OtherFlags& flags, std::string_view to) {
  const auto* flag = last_of(flags, to);
  if (flag == nullptr) return 0;
  const auto number = parse_number<std::int64_t>(flag->value);
  constexpr std::int64_t kMost = 1'000'000;
  if (number && *number >= 1 && *number <= kMost) return *number;
  flags.complaints.push_back({Errc::bad_usage, flag->name + ": " + in_quotes(flag->value, 60) +
                                                   " is no count: write a number from 1"});
  return 0;
}

Error joined(const Complaints& complaints) {
  std::vector<std::string> lines;
  for (const auto& complaint : complaints) lines.push_back(complaint.what);
  return {Errc::bad_usage, join(lines, "\n")};
}

}  // namespace acc::configure
