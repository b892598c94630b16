#include "launcher/check/command.hpp"

#include "common/text.hpp"
#include "launcher/cli.hpp"
#include "launcher/hosts_flags.hpp"
#include "launcher/key_table.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

namespace acc::check {
namespace {

struct Letter {
  std::string_view name, longer, help;
};

/// As nccl-tests names them.
constexpr std::array kLetters{
    Letter{"-b", "--minbytes", "smallest size (default 32M); 8, 64K, 1M, 2G"},
    Letter{"-e", "--maxbytes", "largest size (default 32M)"},
    Letter{"-i", "--stepbytes", "add this from size to size (default 1M)"},
    Letter{"-f", "--stepfactor", "or multiply by this"},
    Letter{"-n", "--iters", "timed iterations (default 20)"},
    Letter{"-w", "--warmup_iters", "iterations before (default 1)"},
    Letter{"-m", "--agg_iters", "operations an iteration (default 1)"},
    Letter{"-o", "--op", "sum, prod, min, max, avg or all (default sum)"},
    Letter{"-d", "--datatype", "float, half, int32 … or all (default float)"},
    Letter{"-r", "--root", "root of rooted operations, or all (default 0)"},
    Letter{"-c", "--check", "iterations that are checked (default 1; 0: none)"},
    Letter{"-a", "--average",
           "times of 0: rank 0, 1: mean, 2: min, 3: max of the ranks (default 1)"},
    Letter{"-T", "--timeout",
           "seconds that a call may take (default 30); without --bandwidth, too"},
    Letter{"-R", "--local_register", "1, 2: buffers that need no copy (default 0)"},
    Letter{"-u", "--misalign", "elements by which buffers are misaligned (default 0)"},
};
constexpr std::array kLongOnly{
    Letter{"--only", "", "operations, comma-separated: all_reduce, all_gather, broadcast …"},
};

/// Options of nccl-tests that people type by habit and that have one meaning here: `only` changes
/// nothing, everything else is refused. Read with --bandwidth alone: -t is --tee else.
struct NcclTestsOption {
  std::string_view name, longer, only, instead;
};
constexpr std::array kNcclTestsOptions{
    NcclTestsOption{"-g", "--ngpus", "1", "every rank has one device: give --num_processes"},
    NcclTestsOption{"-t", "--nthreads", "1", "every rank has one thread: give --num_processes"},
    NcclTestsOption{"-z", "--blocking", "0", "not offered here"},
    NcclTestsOption{"-G", "--cudagraph", "0", "not offered here"},
    NcclTestsOption{"-C", "--report_cputime", "0", "not offered here"},
    NcclTestsOption{"-p", "--parallel_init", "0", "not offered here"},
    NcclTestsOption{"-N", "--run_cycles", "1", "not offered here"},
};

const NcclTestsOption* nccl_tests_option(std::string_view word) {
  for (const auto& option : kNcclTestsOptions)
    if (word == option.name || word == option.longer) return &option;
  return nullptr;
}

const Letter* letter_of(std::string_view word) {
  for (const auto& letter : kLetters)
    if (word == letter.name || word == letter.longer) return &letter;
  for (const auto& letter : kLongOnly)
    if (word == letter.name) return &letter;
  return nullptr;
}

std::vector<std::string_view> own_names() {
  std::vector<std::string_view> names{"--bandwidth", "--network", "--local_only", "--json",
                                      "--help"};
  for (const auto& letter : kLetters) names.push_back(letter.longer);
  for (const auto& letter : kLongOnly) names.push_back(letter.name);
  return names;
}

/// What acc-launch would say of its part, with our own options among those that may be meant.
void check_launch_words(Command& command) {
  using namespace launcher::literals;
  const auto line = launcher::parse_command_line(command.launch);
  command.on_hosts = launcher::is_on_hosts(line);
  if (line.given("detach"_key) != nullptr)
    command.complaints.push_back(
        {Errc::bad_usage, "--detach: acc-test waits for what the ranks find: leave it out"});
  const auto names = own_names();
  for (auto complaint : line.complaints) {
    for (const std::string_view word : command.launch) {
      const auto unknown = "unrecognized arguments: " + printable(word);
      const auto meant = nearest(word.substr(0, word.find('=')), names);
      if (!meant.empty() && complaint.what.starts_with(unknown))
        complaint.what = unknown + " (did you mean " + std::string{meant} + "?)";
    }
    command.complaints.push_back(std::move(complaint));
  }
  // Behind a wrong flag what looks like a script may be its value.
  if (line.script && line.complaints.empty())
    command.complaints.push_back(
        {Errc::bad_usage, "'" + printable(*line.script) +
                              "': acc-test starts a program of its own; a script is not for it"});
}

}  // namespace

Command parse_command(std::span<const std::string> words) {
  Command command;
  command.bandwidth = std::ranges::find(words, "--bandwidth") != words.end();
  bool letters = false;
  for (std::size_t at = 0; at < words.size(); ++at) {
    const std::string_view word = words[at];
    if (word == "--bandwidth") continue;  // seen
    const auto equals = word.starts_with("--") ? word.find('=') : std::string_view::npos;
    const auto name = word.substr(0, equals);
    std::optional<std::string> value;
    if (equals != std::string_view::npos) value = std::string{word.substr(equals + 1)};
    const auto take_value = [&]() -> std::string {
      if (value) return *value;
      if (at + 1 < words.size()) return words[++at];
      command.complaints.push_back({Errc::bad_usage, std::string{name} + " needs a value"});
      return {};
    };
    if (name == "-h" || name == "--help") {
      command.help = true;
    } else if (name == "--version") {
      command.version = true;
    } else if (name == "--network") {
      command.network = true;
    } else if (name == "--local_only") {
      command.only_machine = true;
    } else if (name == "--json") {
      command.json_file = take_value();
    } else if (const auto* letter = letter_of(name)) {
      letters = letters || (letter->name != "--only" && letter->name != "-T");
      command.worker.emplace_back(letter->name);
      command.worker.push_back(take_value());
    } else if (const auto* option = command.bandwidth ? nccl_tests_option(name) : nullptr) {
      const auto given = take_value();
      if (!given.empty() && given != option->only)
        command.complaints.push_back({Errc::bad_usage, std::string{name} + " " + printable(given) +
                                                           ": " + std::string{option->instead}});
    } else {
      command.launch.emplace_back(word);
    }
  }
  check_launch_words(command);
  if (letters && !command.bandwidth)
    command.complaints.push_back({Errc::bad_usage, "-b, -e and their like need --bandwidth"});
  const auto refuse = [&](std::string what) {
    command.complaints.push_back({Errc::bad_usage, std::move(what)});
  };
  if (command.bandwidth && command.network)
    refuse("--bandwidth measures collectives of all ranks, --network pairs of machines: give one");
  if (command.only_machine && (command.network || command.on_hosts))
    refuse("--local_only looks at this machine alone: without --hosts and --network");
  if (command.bandwidth) command.worker.emplace_back("--bandwidth");
  if (command.network) command.worker.emplace_back("--network");
  return command;
}

std::string help_text() {
  std::string text =
      "usage: acc-test [--hosts a,b:8 | --config_file FILE | --num_processes N …] [--json FILE]\n"
      "                [--network | --bandwidth [-b 8 -e 64M …]]\n\n"
      "Checks this machine, then starts a job over all ranks, as acc-launch would with the same\n"
      "flags, and checks what the ranks do together: who they are, every collective, sharding,\n"
      "training, checkpoints, and that mistakes are told. On several machines type it on each,\n"
      "or once with --hosts: then it checks each of them.\n\n"
      "  --network         measures pairs of machines instead, and names the node, the link or\n"
      "                    the direction that is broken or slow; one rank a machine is enough\n"
      "  --bandwidth       measures instead, in nccl-tests' way and columns\n"
      "  --json FILE       the results as JSON, too; -: to standard output\n"
      "  --local_only      looks at this machine and starts nothing\n"
      "  any flag of acc-launch: --hosts, --num_processes, --cpu, --nnodes …\n\n"
      "with --bandwidth (-T with all):\n";
  for (const auto& letter : kLetters) {
    auto line = "  " + std::string{letter.name} + ", " + std::string{letter.longer};
    line.resize(std::max<std::size_t>(line.size() + 1, 24), ' ');
    text += line + std::string{letter.help} + "\n";
  }
  for (const auto& letter : kLongOnly)
    text +=
        "  " + std::string{letter.name} + std::string(16, ' ') + std::string{letter.help} + "\n";
  return text +
         "\nexit code: 0: all is well; 1: a check failed, or --network found something; else as\n"
         "acc-launch's (docs/exit-codes.md, man acc-launch)\n";
}

}  // namespace acc::check
