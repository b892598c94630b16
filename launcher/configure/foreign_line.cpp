#include "launcher/configure/foreign_line.hpp"

#include "common/text.hpp"
#include "launcher/cli.hpp"
#include "launcher/configure/config_map.hpp"
#include "launcher/configure/deepspeed_line.hpp"
#include "launcher/configure/interpreter.hpp"
#include "launcher/configure/known_line.hpp"
#include "launcher/configure/mpirun_line.hpp"
#include "launcher/configure/refusals.hpp"
#include "launcher/configure/torchrun_settings.hpp"
#include "launcher/configure/unexpanded.hpp"
#include "launcher/host_probes.hpp"
#include "launcher/key_table.hpp"
#include "launcher/merge.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace acc::configure {

using namespace launcher::literals;

namespace {

enum class Launcher { unknown, torchrun, accelerate, mpirun, deepspeed };

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

/// How a line begins.
struct Start {
  Launcher launcher = Launcher::unknown;
  std::string name;       ///< the launcher's, or that of its module
  std::string program;    ///< the first word behind the variables
  std::size_t first = 0;  ///< word behind the launcher's name
  std::vector<std::string> variables{};
  std::vector<std::string> options{};  ///< of the interpreter that runs the launcher
};

Launcher launcher_of(std::string_view name) {
  constexpr std::pair<std::string_view, Launcher> kNames[] = {
      {"torchrun", Launcher::torchrun},
      {"torch.distributed.run", Launcher::torchrun},
      {"torch.distributed.launch", Launcher::torchrun},
      {"accelerate-launch", Launcher::accelerate},
      {"accelerate.commands.launch", Launcher::accelerate},
      {"acc-launch", Launcher::accelerate},
      {"mpirun", Launcher::mpirun},
      {"mpiexec", Launcher::mpirun},
      {"mpiexec.hydra", Launcher::mpirun},
      {"orterun", Launcher::mpirun},
      {"deepspeed", Launcher::deepspeed},
      {"deepspeed.launcher.runner", Launcher::deepspeed}};
  const auto* const found =
      std::ranges::find(kNames, name, &std::pair<std::string_view, Launcher>::first);
  return found == std::end(kNames) ? Launcher::unknown : found->second;
}

/// How a line begins whose launcher's name is at `at`, or that of a program that starts it.
Start start_at(std::span<const std::string> words, std::size_t at) {
  Start start{.name = base_name(words[at]), .program = words[at], .first = at + 1};
  auto& next = start.first;
  if (is_python(words[at])) {
    auto call = read_module_call(words, next);
    if (call.module.empty()) return start;
    start.name = std::move(call.module);
    start.options = std::move(call.options);
    next = call.next;
  }
  start.launcher = launcher_of(start.name);
  if (start.name == "accelerate" && next < words.size() && words[next] == "launch") {
    start.launcher = Launcher::accelerate;
    ++next;
  }
  return start;
}

/// In front of the launcher may stand variables as for a shell, `VAR=value`, or as for `env`.
Start start_of(std::span<const std::string> words) {
  std::size_t at = !words.empty() && base_name(words[0]) == "env" ? 1 : 0;
  std::vector<std::string> variables;
  while (at < words.size() && words[at].find('=') != std::string::npos && words[at][0] != '-')
    variables.push_back(words[at++]);
  if (at == words.size()) return {};
  auto start = start_at(words, at);
  start.variables = std::move(variables);
  return start;
}

void set_variables(launcher::Environment& environment, const Start& start) {
  for (const auto& variable : start.variables) {
    const auto equals = variable.find('=');
    environment[variable.substr(0, equals)] = variable.substr(equals + 1);
  }
}

/// "uv run" of `uv run torchrun …`: what runs the launcher, and isn't the job's; empty: it is none.
std::string wrapper_of(std::span<const std::string> words, const Start& start) {
  constexpr std::string_view kWrappers[] = {
      "nohup",     "time",        "timeout", "sudo",    "doas",    "nice",  "ionice",  "chrt",
      "setsid",    "exec",        "stdbuf",  "numactl", "taskset", "uv",    "uvx",     "poetry",
      "pipenv",    "pdm",         "hatch",   "rye",     "pixi",    "conda", "mamba",   "micromamba",
      "apptainer", "singularity", "docker",  "podman",  "nsys",    "ncu",   "xvfb-run"};
  const bool is_env = !words.empty() && base_name(words[0]) == "env";  // with options
  if (!is_env && std::ranges::find(kWrappers, start.name) == std::end(kWrappers)) return {};
  std::vector<std::string> wrapper{is_env ? words[0] : start.program};
  for (std::size_t at = is_env ? 1 : start.first; at < words.size(); ++at) {
    if (start_at(words, at).launcher != Launcher::unknown) return join(wrapper, " ");
    wrapper.push_back(words[at]);
  }
  return {};
}

Error no_launcher(std::span<const std::string> words, const Start& start) {
  if (const auto wrapper = wrapper_of(words, start); !wrapper.empty())
    return {Errc::bad_usage, "convert: " + in_quotes(wrapper, 200) +
                                 ": leave it out here, and write it in front of the acc-launch "
                                 "line that comes out"};
  constexpr std::string_view kShells[] = {"bash", "sh", "zsh", "dash", "ksh"};
  if (std::ranges::find(kShells, start.name) != std::end(kShells))
    return {Errc::bad_usage,
            "convert: " + start.name +
                " starts the line that is meant: give that alone, behind the --, as "
                "acc-config convert -- torchrun --nproc_per_node 4 train.py"};
  constexpr std::string_view kSlurm[] = {"srun", "sbatch", "salloc"};
  if (std::ranges::find(kSlurm, start.name) != std::end(kSlurm))
    return {Errc::bad_usage, "convert: " + start.name +
                                 " can't be left out: it starts one acc-launch on each node, as "
                                 "docs/from-slurm.md shows"};
  return {Errc::bad_usage, "convert: " +
                               (words.empty() ? std::string{"the command line is empty"}
                                              : in_quotes(words.front(), 60)) +
                               ": expected a command line of torchrun, mpirun, mpiexec, "
                               "deepspeed, accelerate launch or acc-launch"};
}

constexpr std::string_view kVisible = "CUDA_VISIBLE_DEVICES=";

/// The devices here that the line leaves with CUDA_VISIBLE_DEVICES in front of it.
std::uint32_t gpus_of(const Start& start, std::uint32_t gpus) {
  const auto last = std::find_if(start.variables.rbegin(), start.variables.rend(),
                                 [](const std::string& one) { return one.starts_with(kVisible); });
  if (last == start.variables.rend()) return gpus;
  return launcher::visible_devices(std::string_view{*last}.substr(kVisible.size()), gpus);
}

/// "/opt/conda/bin/python3.11" of a script that begins with `#!/opt/conda/bin/python3.11`.
std::string interpreter_in(std::string_view script) {
  if (!script.starts_with("#!")) return {};
  auto line = trim(script.substr(2, script.find('\n') - 2));
  return std::string{line.substr(0, line.find_first_of(" \t"))};
}

/// The launcher's own interpreter is that of the scripts.
void keep_interpreter(ForeignLine& line, const Start& start, const LineContext& context) {
  const bool is_used = start.launcher != Launcher::mpirun && start.name != "acc-launch" &&
                       value_of(line.map, "no_python") == nullptr;
  if (!is_used) return;
  if (is_certain_python(start.program)) return set_interpreter(line, start.program);
  if (start.program.find('/') == std::string::npos) return;
  const auto script = context.read_file(start.program);
  const auto interpreter = script ? interpreter_in(*script) : std::string{};
  if (is_python(interpreter)) return set_interpreter(line, interpreter);
  line.notes.push_back("which Python " + in_quotes(start.program, 200) +
                       " runs scripts with can't be seen here: acc-launch takes that of the active "
                       "environment, or the one that PYTHON_EXEC names");
}

/// Torch 1.9 to 2.x: only with --use_env the script gets none.
void note_local_rank(ForeignLine& line, const Start& start, std::span<const std::string> words) {
  if (start.name != "torch.distributed.launch") return;
  for (const auto& word : words.first(words.size() - line.command.size()))
    if (word == "--use_env" || word == "--use-env") return;
  line.notes.emplace_back(
      "torch.distributed.launch appends --local_rank=N to the arguments of the script, acc-launch "
      "doesn't: read LOCAL_RANK there");
}

/// "2>&1", "|", ">log": of the line's shell, which was kept from it by quotes.
bool is_of_shell(const std::string& word) {
  constexpr std::string_view kWhole[] = {"|", "||", "&", "&&", ";", "|&"};
  if (std::ranges::find(kWhole, word) != std::end(kWhole)) return true;
  const auto begin = word.find_first_not_of("0123456789&");
  return begin != std::string::npos && begin <= 1 && word[begin] == '>' &&
         !word.substr(begin).starts_with(">=");  // "torch>=2.0"
}

void note_shell_words(ForeignLine& line) {
  const auto found = std::ranges::find_if(line.command, is_of_shell);
  if (found == line.command.end()) return;
  line.notes.push_back(in_quotes(*found, 60) +
                       " and what follows are arguments of the script here: the shell's own words "
                       "stand behind the acc-launch line that comes out, without quotes");
}

/// What `accelerate config` always writes. A file that counts as torchrun does says nothing of
/// precision and devices either, unless the line did: acc-launch then leaves them to the caller.
/// The precision of DeepSpeed's own file stands there; with DeepSpeed none that the line doesn't
/// give is written, as Accelerate refuses one in a file beside a DeepSpeed config of the script's.
void put_defaults(ForeignLine& line) {
  const bool is_torchruns = counts_as_torchrun(line);
  const bool has_file = has_deepspeed_file(line.map);
  const auto* type = value_of(line.map, "distributed_type");
  const bool is_deepspeed = type != nullptr && python_text(*type) == "DEEPSPEED";
  for (const auto& [key, value] : launcher::Map{{"compute_environment", Value{"LOCAL_MACHINE"}},
                                                {"mixed_precision", Value{"no"}},
                                                {"num_machines", Value{std::int64_t{1}}},
                                                {"use_cpu", Value{false}}}) {
    const bool has_nodes = key == "num_machines" && value_of(line.map, "nnodes") != nullptr;
    const bool is_open = (is_torchruns && (key == "mixed_precision" || key == "use_cpu")) ||
                         (has_file && is_of_deepspeed_file(key)) ||
                         (is_deepspeed && key == "mixed_precision");
    if (value_of(line.map, key) == nullptr && !has_nodes && !is_open) put(line.map, key, value);
  }
}

/// What acc-launch would refuse of the command that is printed.
Complaints refusals_of(const ForeignLine& line) {
  auto words = line.flags;
  words.emplace_back("--");
  words.insert(words.end(), line.command.begin(), line.command.end());
  return refusals(launcher::parse_command_line(words), "the converted file", line.map);
}

/// Keys that only acc-launch knows.
void note_own_keys(ForeignLine& line) {
  std::vector<std::string> own;
  for (const auto& entry : line.map)
    if (!is_key_of_accelerate(entry.key)) own.push_back(entry.key);
  if (!own.empty())
    line.notes.push_back("keys that acc-launch reads and accelerate launch refuses: " +
                         join(own, ", "));
}

}  // namespace

launcher::Environment environment_of(std::span<const std::string> words,
                                     launcher::Environment caller) {
  set_variables(caller, start_of(words));
  return caller;
}

std::string config_file_in(std::span<const std::string> words,
                           const std::string& in_default_place) {
  const auto start = start_of(words);
  if (start.launcher != Launcher::accelerate) return {};
  const auto line = launcher::parse_command_line(words.subspan(start.first));
  const auto* option = line.given("config_file"_key);
  if (option != nullptr) {
    const std::array words_of_it{option->spelled, option->word};
    const bool is_path = unexpanded_values(words_of_it).empty();  // else the whole line is refused
    return is_path ? option->word : std::string{};
  }
  return launcher::wants_default_config(line) ? in_default_place : std::string{};
}

Result<ForeignLine> read_foreign_line(std::span<const std::string> words, LineContext context) {
  auto start = start_of(words);
  if (start.launcher == Launcher::unknown) return no_launcher(words, start);
  const auto rest = words.subspan(start.first);
  const bool is_ignored = start.launcher == Launcher::deepspeed && ignores_visible_devices(rest) &&
                          std::erase_if(start.variables, [](const std::string& one) {
                            return one.starts_with(kVisible);
                          }) > 0;
  context.gpus = gpus_of(start, context.gpus);
  set_variables(context.environment, start);
  auto read = start.launcher == Launcher::mpirun ? read_mpirun(rest, context)
              : start.launcher == Launcher::deepspeed
                  ? read_deepspeed(rest, context)
                  : read_known(rest, start.launcher == Launcher::torchrun, context);
  if (!read) return read;
  auto& line = *read;
  if (is_ignored)
    line.notes.emplace_back(
        "left out: CUDA_VISIBLE_DEVICES, which deepspeed ignores beside --include, --exclude, "
        "--num_gpus and --num_nodes");
  keep_interpreter(line, start, context);
  note_local_rank(line, start, rest);
  note_shell_words(line);
  if (!start.options.empty())
    line.notes.push_back("left out: " + printable(join(start.options, " ")) +
                         ": for the Python of the launcher; workers don't get it");
  put_defaults(line);
  if (const auto complaints = refusals_of(line); !complaints.empty()) return joined(complaints);
  note_own_keys(line);
  if (line.command.empty() && value_of(line.map, "script") == nullptr)
    line.notes.emplace_back("the line names no program: put one behind the printed command");
  line.variables.insert(line.variables.begin(), start.variables.begin(), start.variables.end());
  return read;
}

}  // namespace acc::configure
