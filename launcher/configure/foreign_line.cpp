#include "launcher/configure/foreign_line.hpp"

#include "common/text.hpp"
#include "launcher/cli.hpp"
#include "launcher/configure/config_map.hpp"
#include "launcher/configure/other_launchers.hpp"
#include "launcher/habits.hpp"
#include "launcher/key_table.hpp"
#include "launcher/merge.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace acc::configure {

using namespace launcher::literals;
using launcher::CommandLine;
using launcher::Key;
using launcher::Place;

namespace {

enum class Launcher { unknown, torchrun, accelerate, mpirun, deepspeed };

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }
bool is_python(const std::string& word) { return base_name(word).starts_with("python"); }

struct Start {
  Launcher launcher = Launcher::unknown;
  std::size_t first = 0;  ///< word behind the launcher's name
  std::vector<std::string> variables{};
};

/// How a line begins whose launcher's name is at `at`, or that of a program that starts it.
Start start_at(std::span<const std::string> words, std::size_t at) {
  auto name = base_name(words[at]);
  std::size_t next = at + 1;
  if (is_python(words[at])) {
    while (next < words.size() && words[next] == "-u") ++next;
    if (next + 1 >= words.size() || words[next] != "-m") return {};
    name = words[next + 1];
    next += 2;
  }
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
  for (const auto& [known, launcher] : kNames)
    if (name == known) return {launcher, next};
  const bool is_accelerate = name == "accelerate" && next < words.size() && words[next] == "launch";
  return is_accelerate ? Start{Launcher::accelerate, next + 1} : Start{};
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

void put_value(Map& map, const launcher::KeyRow& row, const Value& value) {
  const auto section = launcher::section_name(row.place);
  if (section.empty()) return put(map, row.name, value);
  if (value_of(map, section) == nullptr) put(map, section, Value{Map{}});
  const auto found = std::ranges::find(map, section, &Entry::key);
  put(std::get<Map>(found->value.data), row.name, value);
}

/// torchrun's and Accelerate's flags, which acc-launch knows all.
class KnownFlags {
 public:
  KnownFlags(const CommandLine& line, bool is_torchrun, const Map& base, std::uint32_t gpus)
      : line_{line},
        is_torchrun_{is_torchrun || launcher::sign_of_torchrun(line) != nullptr},
        gpus_{gpus} {
    done_.map = base;
  }

  ForeignLine read() {
    for (const auto& complaint : line_.complaints)
      done_.notes.push_back("left out: " + complaint.what);
    for (const auto& option : line_.options) take(option);
    take_counts();
    take_type();
    take_endpoint();
    if (line_.script && !line_.script_is_certain)
      done_.notes.push_back("is " + in_quotes(*line_.script, 60) +
                            " the script, or a value of the flag that was left out?");
    if (line_.script) done_.command.push_back(*line_.script);
    for (const auto& word : line_.script_args) done_.command.push_back(word);
    return std::move(done_);
  }

 private:
  [[nodiscard]] bool is_given(Key key) const { return line_.given(key) != nullptr; }
  [[nodiscard]] std::string word(Key key) const {
    const auto* option = line_.given(key);
    return option == nullptr ? std::string{} : option->word;
  }

  void take(const launcher::GivenOption& option) {
    const auto& row = launcher::row_of(option.key);
    constexpr Key kElsewhere[] = {"config_file"_key,
                                  "cpu"_key,
                                  "multi_gpu"_key,
                                  "use_deepspeed"_key,
                                  "use_fsdp"_key,
                                  "use_megatron_lm"_key,
                                  "tpu"_key,
                                  "use_parallelism_config"_key,
                                  "nproc_per_node"_key,
                                  "nnodes"_key,
                                  "rdzv_endpoint"_key};
    if (std::ranges::find(kElsewhere, option.key) != std::end(kElsewhere)) return;
    if (row.place != Place::nowhere) return put_value(done_.map, row, option.value);
    done_.notes.push_back(option.spelled + " is no key of a config file: it stays a flag");
    done_.flags.push_back("--" + std::string{row.name});
    if (!option.word.empty()) done_.flags.push_back(option.word);
  }

  /// torchrun counts per machine, a config file over all. What isn't a plain number can be said
  /// with torchrun's words only, which acc-launch takes as keys.
  void take_counts() {
    const bool is_counted = is_given("nproc_per_node"_key) || is_given("nnodes"_key);
    if (!is_torchrun_ && !is_counted) return;
    const auto workers = is_given("nproc_per_node"_key) ? word("nproc_per_node"_key) : "1";
    const auto nodes = is_given("nnodes"_key) ? word("nnodes"_key) : "1";
    const auto workers_count = parse_number<std::int64_t>(workers);
    const auto nodes_count = parse_number<std::int64_t>(nodes);
    if (workers_count && nodes_count) {
      put(done_.map, "num_processes", Value{*workers_count * *nodes_count});
      return put(done_.map, "num_machines", Value{*nodes_count});
    }
    put(done_.map, "nproc_per_node", Value{workers});
    put(done_.map, "nnodes", Value{nodes});
  }

  void take_type() {
    constexpr std::pair<Key, const char*> kTypes[] = {{"use_deepspeed"_key, "DEEPSPEED"},
                                                      {"use_fsdp"_key, "FSDP"},
                                                      {"use_megatron_lm"_key, "MEGATRON_LM"},
                                                      {"multi_gpu"_key, "MULTI_GPU"},
                                                      {"tpu"_key, "XLA"}};
    if (is_given("cpu"_key) || word("nproc_per_node"_key) == "cpu") {
      put(done_.map, "use_cpu", Value{true});
      return put(done_.map, "distributed_type", Value{is_single() ? "NO" : "MULTI_CPU"});
    }
    for (const auto& [flag, type] : kTypes)
      if (is_given(flag)) return put(done_.map, "distributed_type", Value{type});
    if (value_of(done_.map, "distributed_type") != nullptr) return;
    const bool is_counted = value_of(done_.map, "num_processes") != nullptr;
    if (!is_torchrun_ && !is_counted) {
      put(done_.map, "num_processes", Value{std::int64_t{std::max(gpus_, 1U)}});
      done_.notes.push_back(
          "the line leaves num_processes to the launcher: " + std::to_string(std::max(gpus_, 1U)) +
          " by the devices of this machine");
    }
    const bool has_ranks = is_torchrun_ || !is_single();
    put(done_.map, "distributed_type", Value{has_ranks ? "MULTI_GPU" : "NO"});
  }

  [[nodiscard]] bool is_single() const {
    const auto* count = value_of(done_.map, "num_processes");
    return count != nullptr && count->integer() != nullptr && *count->integer() == 1;
  }

  void take_endpoint() {
    const auto endpoint = word("rdzv_endpoint"_key);
    if (endpoint.empty()) return;
    const auto colon = endpoint.rfind(':');
    const auto port =
        colon == std::string::npos
            ? std::nullopt
            : parse_number<std::int64_t>(std::string_view{endpoint}.substr(colon + 1));
    const bool is_one =
        endpoint.find(',') == std::string::npos && endpoint.find(']') == std::string::npos;
    const bool is_of_machines = word("rdzv_backend"_key).find("etcd") == std::string::npos;
    if (!port || !is_one || !is_of_machines)
      return put(done_.map, "rdzv_endpoint", Value{endpoint});
    put(done_.map, "main_process_ip", Value{endpoint.substr(0, colon)});
    put(done_.map, "main_process_port", Value{*port});
  }

  const CommandLine& line_;
  bool is_torchrun_;
  std::uint32_t gpus_;
  ForeignLine done_;
};

/// `python -u -m pkg.train` → the module; `python train.py` → the script.
void strip_python(ForeignLine& line) {
  auto& words = line.command;
  if (words.size() < 2 || !is_python(words[0])) return;
  words.erase(words.begin());
  while (words.size() > 1 && (words[0] == "-u" || words[0] == "-m")) {
    if (words[0] == "-m") put(line.map, "module", Value{true});
    words.erase(words.begin());
  }
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

std::string config_file_in(std::span<const std::string> words) {
  const auto start = start_of(words);
  if (start.launcher != Launcher::accelerate) return {};
  const auto line = launcher::parse_command_line(words.subspan(start.first));
  const auto* option = line.given("config_file"_key);
  return option == nullptr ? std::string{} : option->word;
}

Result<ForeignLine> read_foreign_line(std::span<const std::string> words, const Map& base,
                                      std::uint32_t gpus) {
  const auto start = start_of(words);
  if (start.launcher == Launcher::unknown)
    return Error{Errc::bad_usage,
                 "convert: " +
                     (words.empty() ? std::string{"the command line is empty"}
                                    : in_quotes(words.front(), 60)) +
                     ": expected a command line of torchrun, mpirun, mpiexec, deepspeed, "
                     "accelerate launch or acc-launch"};
  const auto rest = words.subspan(start.first);
  ForeignLine done;
  if (start.launcher == Launcher::mpirun) {
    done = read_mpirun(rest, gpus);
  } else if (start.launcher == Launcher::deepspeed) {
    done = read_deepspeed(rest, gpus);
  } else {
    const auto line = launcher::parse_command_line(rest);
    done = KnownFlags{line, start.launcher == Launcher::torchrun, base, gpus}.read();
  }
  strip_python(done);
  for (const auto& [key, value] : Map{{"compute_environment", Value{"LOCAL_MACHINE"}},
                                      {"mixed_precision", Value{"no"}},
                                      {"num_machines", Value{std::int64_t{1}}},
                                      {"use_cpu", Value{false}}}) {
    const bool has_nodes = key == "num_machines" && value_of(done.map, "nnodes") != nullptr;
    if (value_of(done.map, key) == nullptr && !has_nodes) put(done.map, key, value);
  }
  note_own_keys(done);
  done.variables = start.variables;
  return done;
}

}  // namespace acc::configure
