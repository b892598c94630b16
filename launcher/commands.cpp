#include "launcher/commands.hpp"

#include "launcher/key_table.hpp"

#include <algorithm>

namespace acc::launcher {

using namespace literals;

namespace {

std::int64_t processes_per_machine(const JobSpec& spec) {
  const auto machines = std::max<std::int64_t>(1, spec.integer("num_machines"_key).value_or(1));
  return spec.integer("num_processes"_key).value_or(0) / machines;
}

void append(std::vector<std::string>& words, std::initializer_list<std::string> more) {
  words.insert(words.end(), more);
}

void append_script(std::vector<std::string>& words, const JobSpec& spec) {
  words.push_back(spec.script);
  words.insert(words.end(), spec.script_args.begin(), spec.script_args.end());
}

}  // namespace

bool runs_directly(const JobSpec& spec, ScriptKind script) {
  return spec.flag("no_python"_key) ||
         (!spec.flag("module"_key) && script == ScriptKind::executable);
}

std::vector<std::string> worker_command(const JobSpec& spec, const std::string& interpreter,
                                        ScriptKind script, bool unbuffered) {
  std::vector<std::string> words;
  const bool direct = runs_directly(spec, script);
  if (!direct) {
    words.push_back(interpreter);
    if (unbuffered) words.emplace_back("-u");
    if (spec.flag("module"_key)) words.emplace_back("-m");
  }
  append_script(words, spec);
  // exec would look a bare name up on PATH, where another program may have it.
  if (direct && !spec.flag("no_python"_key) && spec.script.find('/') == std::string::npos)
    words[0] = "./" + words[0];
  return words;
}

std::vector<std::string> mpirun_prefix(const JobSpec& spec, const std::string& program,
                                       const std::string& kind) {
  const bool open_mpi = kind == "openmpi";
  const auto processes = spec.integer("num_processes"_key).value_or(0);
  std::vector<std::string> words{
      program, open_mpi ? "--hostfile" : "-f", spec.text("mpirun_hostfile"_key),
      open_mpi ? "--npernode" : "-ppn",
      processes != 0 ? std::to_string(processes_per_machine(spec)) : "1"};
  if (processes != 0) append(words, {"-n", std::to_string(processes)});
  if (open_mpi) append(words, {"--bind-to", "socket"});
  return words;
}

std::vector<std::string> deepspeed_command(const JobSpec& spec, std::uint16_t port) {
  std::vector<std::string> words{
      "deepspeed", "--hostfile",
      spec.is_set("deepspeed_hostfile"_key) ? spec.text("deepspeed_hostfile"_key) : "None"};
  const auto launcher = spec.is_set("deepspeed_multinode_launcher"_key)
                            ? spec.text("deepspeed_multinode_launcher"_key)
                            : "pdsh";
  if (launcher == "nossh") {
    append(words, {"--node_rank", spec.text("machine_rank"_key), "--no_ssh"});
  } else {
    append(words, {"--no_local_rank", "--launcher", launcher});
  }
  if (spec.is_set("deepspeed_exclusion_filter"_key)) {
    append(words, {"--exclude", spec.text("deepspeed_exclusion_filter"_key)});
  } else if (spec.is_set("deepspeed_inclusion_filter"_key)) {
    append(words, {"--include", spec.text("deepspeed_inclusion_filter"_key)});
  } else {
    append(words, {"--num_gpus", std::to_string(processes_per_machine(spec))});
  }
  if (!spec.text("main_process_ip"_key).empty())
    append(words, {"--master_addr", spec.text("main_process_ip"_key)});
  append(words, {"--master_port", std::to_string(port)});
  if (spec.flag("module"_key)) words.emplace_back("--module");
  if (spec.flag("no_python"_key)) words.emplace_back("--no_python");
  append_script(words, spec);
  return words;
}

}  // namespace acc::launcher
