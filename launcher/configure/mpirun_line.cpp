#include "launcher/configure/mpirun_line.hpp"

#include "common/text.hpp"
#include "launcher/configure/config_map.hpp"
#include "launcher/configure/interpreter.hpp"
#include "launcher/configure/mpirun_hosts.hpp"
#include "launcher/shell_words.hpp"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

namespace acc::configure {

namespace {

class MpirunLine {
 public:
  MpirunLine(std::span<const std::string> words, const LineContext& context)
      : read_{read_mpirun_flags(words)}, line_{read_.line}, context_{context} {}

  Result<ForeignLine> read() {
    if (!read_.complaints.empty()) return joined(read_.complaints);
    refuse_several_programs();
    take_mapping();
    counts_.workers = count_of(read_, "@workers");
    counts_.per_host = count_of(read_, "@per_host");
    if (last_of(read_, "@one_per_host") != nullptr) counts_.per_host = 1;
    if (read_.complaints.empty()) take_hosts();
    if (read_.complaints.empty() && !has_hosts(line_)) take_counts_here();
    take_variables();
    take_standard_input();
    take_tags();
    take_program();
    take_type();
    if (!read_.complaints.empty()) return joined(read_.complaints);
    return std::move(line_);
  }

 private:
  void complain(std::string what) {
    read_.complaints.push_back({Errc::bad_usage, std::move(what)});
  }

  void refuse_several_programs() {
    const auto* file = last_of(read_, "@several_programs");
    if (file == nullptr && std::ranges::find(line_.command, ":") == line_.command.end()) return;
    complain((file == nullptr ? std::string{"':' in a line of mpirun"} : file->name) +
             " starts several programs in one job, and acc-launch starts one: write a script that "
             "chooses by RANK");
  }

  /// ppr:2:node counts workers on each host, node deals them out over the hosts; all else says
  /// where on a host they run.
  void take_mapping() {
    counts_.oversubscribes = last_of(read_, "@oversubscribe") != nullptr;
    counts_.is_by_node = last_of(read_, "@by_node") != nullptr;
    std::vector<SpecialFlag> mappings;
    for (const auto& flag : read_.special) {
      if (flag.to == "@map_by") mappings.push_back(flag);
      if (flag.to == "@per_socket")
        complain(flag.name + ": acc-launch counts workers on each host: write --npernode N");
    }
    for (const auto& flag : mappings) take_mapping_of(flag);
  }

  void take_mapping_of(const SpecialFlag& flag) {
    auto text = to_lower(flag.value);
    if (flag.name.ends_with("ppr")) text = "ppr:" + text;
    std::ranges::replace(text, ',', ':');  // both stand between modifiers
    const auto parts = split(text, ':');
    const auto has = [&](std::string_view part) {
      return std::ranges::find(parts, part) != parts.end();
    };
    counts_.oversubscribes |= has("oversubscribe");
    const bool counts_workers = parts.front() == "ppr";
    if (counts_workers && (parts.size() < 3 || parts[2] != "node"))
      return complain(flag.name + ": " + in_quotes(flag.value, 60) +
                      ": acc-launch counts workers on each host: write ppr:N:node");
    if (counts_workers) read_.special.push_back({"@per_host", flag.name, parts[1], {}});
    const bool is_by_node = parts.front() == "node";
    counts_.is_by_node |= is_by_node;
    const auto is_known = [](const std::string& part) { return part == "oversubscribe"; };
    if (is_by_node && std::all_of(parts.begin() + 1, parts.end(), is_known)) return;
    if (!counts_workers || parts.size() > 3)
      line_.notes.push_back("left out: " + flag.name + " " + flag.value + ": " +
                            std::string{kNotBound});
  }

  /// -H a -H b is -H a,b.
  [[nodiscard]] std::optional<SpecialFlag> all_hosts() const {
    std::optional<SpecialFlag> all;
    for (const auto& flag : read_.special) {
      if (flag.to != "@hosts") continue;
      if (all) all->value += "," + flag.value;
      if (!all) all = flag;
    }
    return all;
  }

  void take_hosts() {
    const auto hosts = all_hosts();
    const auto* file = last_of(read_, "@hostfile");
    if (!hosts && file == nullptr) return;
    const auto is_file = [](const SpecialFlag& flag) { return flag.to == "@hostfile"; };
    if (std::ranges::count_if(read_.special, is_file) > 1)
      return complain(file->name + " is given twice: write all hosts into one file");
    if (hosts && file != nullptr)
      return complain(hosts->name + " chooses among the hosts of " + file->name +
                      ", which acc-launch can't: give one of them");
    std::string text;
    if (file != nullptr) {
      auto got = context_.read_file(file->value);
      if (!got) return complain(file->name + ": " + got.error().what);
      text = std::move(*got);
    }
    auto list = file != nullptr ? launcher::parse_hostfile(text, file->value)
                                : launcher::parse_hosts(hosts->value);
    for (auto& complaint : list.complaints) complain(std::move(complaint.what));
    if (!list.complaints.empty()) return;
    auto shared = share_as_mpirun(
        list.hosts, counts_,
        {file != nullptr ? "--hostfile" : "--hosts", file != nullptr ? file->value : hosts->value});
    if (!shared) return complain(shared.error().what);
    line_.flags = std::move(shared->flags);
    line_.flags.emplace_back("--ssh");
    line_.notes.emplace_back(
        "hosts are no key of a config file: they stay flags. Variables of this shell reach other "
        "hosts only by --env NAME");
    std::ranges::move(shared->notes, std::back_inserter(line_.notes));
    put(line_.map, "num_processes", Value{shared->workers});
  }

  void take_counts_here() {
    const auto workers = counts_.workers;
    const auto per_host = counts_.per_host;
    if (workers > 0 && per_host > 0 && workers > per_host)
      line_.notes.push_back(std::to_string(workers) + " workers with " + std::to_string(per_host) +
                            " on each host, and the line names no host: all start here, or name "
                            "hosts with -H or --hostfile");
    auto count = workers > 0 ? workers : per_host;
    if (count == 0) {
      count = context_.cores;
      line_.notes.push_back(
          "the line leaves the number of workers to mpirun: " + std::to_string(count) +
          ", by the cores of this machine, as Open MPI (MPICH starts one)");
    }
    // On the CPU num_processes: 1 is a plain process, without a rank.
    const bool is_plain = count == 1 && context_.gpus == 0;
    put(line_.map, is_plain ? "nproc_per_node" : "num_processes", Value{count});
  }

  void take_variable(const SpecialFlag& flag, const std::string& variable) {
    if (launcher::is_variable_name(variable.substr(0, variable.find('='))))
      return set_variable(line_, variable);
    complain(flag.name + ": " + in_quotes(variable, 80) +
             " is no name of a variable: write each as NAME or NAME=VALUE");
  }

  void take_variables() {
    for (const auto& flag : read_.special) {
      if (flag.to == "@variable") take_variable(flag, flag.value);
      if (flag.to == "@pair" && flag.value.find('=') != std::string::npos)
        take_variable(flag, flag.value);
      if (flag.to == "@pair" && flag.value.find('=') == std::string::npos)
        take_variable(flag, flag.value + "=" + flag.second);
      if (flag.to == "@variables")
        for (const auto& name : split(flag.value, ',')) take_variable(flag, name);
      if (flag.to == "@all_variables" && has_hosts(line_))
        line_.notes.push_back("left out: " + flag.name + ": --env NAME for each that is needed");
    }
  }

  void take_standard_input() {
    const auto* flag = last_of(read_, "@stdin");
    if (flag == nullptr || flag->value == "none") return;
    const auto rank = parse_number<std::int64_t>(flag->value);
    if (rank && *rank >= 0 && !has_hosts(line_)) return put(line_.map, "stdin", Value{*rank});
    line_.notes.push_back("left out: " + flag->name + " " + printable(flag->value, 60) +
                          ": one worker of this machine can have it: --stdin RANK");
  }

  void take_tags() {
    const auto* flag = last_of(read_, "@tags");
    if (flag == nullptr) return;
    put(line_.map, "tee", Value{"3"});
    line_.notes.push_back(flag->name +
                          ": tee: 3, which also writes a file for each worker (log_dir: where)");
  }

  /// Whatever it is, mpirun executes it; a name without a slash is one on PATH, else in this
  /// folder.
  void take_program() {
    if (take_python(line_) || line_.command.empty()) return;
    line_.flags.emplace_back("--no_python");
    auto& program = line_.command.front();
    const bool is_name = program.find('/') == std::string::npos;
    if (is_name && !context_.is_program(program) && context_.is_program("./" + program))
      program = "./" + program;
  }

  void take_type() {
    const bool is_gpu = context_.gpus > 0;
    put(line_.map, "distributed_type", Value{is_gpu ? "MULTI_GPU" : "MULTI_CPU"});
    line_.notes.push_back("mpirun says nothing of devices: " +
                          std::string{is_gpu ? "MULTI_GPU, as this machine has GPUs"
                                             : "MULTI_CPU, as this machine has no GPU"});
    put(line_.map, "use_cpu", Value{!is_gpu});
  }

  OtherFlags read_;
  ForeignLine& line_;  ///< read_'s
  const LineContext& context_;
  MpirunCounts counts_;
};

}  // namespace

Result<ForeignLine> read_mpirun(std::span<const std::string> words, const LineContext& context) {
  return MpirunLine{words, context}.read();
}

}  // namespace acc::configure
