#include "launcher/test_command.hpp"

#include "common/text.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

namespace acc::launcher {
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
    Letter{"-T", "--timeout", "seconds that a test may take (default 30)"},
    Letter{"-R", "--local_register", "1, 2: buffers that need no copy (default 0)"},
    Letter{"-u", "--misalign", "elements by which buffers are misaligned (default 0)"},
};
constexpr std::array kLongOnly{
    Letter{"--only", "", "operations, comma-separated: all_reduce, all_gather, broadcast …"},
};

const Letter* letter_of(std::string_view word) {
  for (const auto& letter : kLetters)
    if (word == letter.name || word == letter.longer) return &letter;
  for (const auto& letter : kLongOnly)
    if (word == letter.name) return &letter;
  return nullptr;
}

}  // namespace

TestCommand parse_test_command(std::span<const std::string> words) {
  TestCommand command;
  bool letters = false;
  for (std::size_t at = 0; at < words.size(); ++at) {
    const std::string_view word = words[at];
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
    } else if (name == "--bandwidth") {
      command.bandwidth = true;
    } else if (name == "--local_only") {
      command.only_machine = true;
    } else if (name == "--json") {
      command.json_file = take_value();
    } else if (const auto* letter = letter_of(name)) {
      letters = letters || letter->name != "--only";
      command.worker.emplace_back(letter->name);
      command.worker.push_back(take_value());
    } else if (!word.starts_with("-") &&
               (command.launch.empty() || !command.launch.back().starts_with("--") ||
                command.launch.back().find('=') != std::string::npos)) {
      command.complaints.push_back(
          {Errc::bad_usage, "'" + printable(word) +
                                "': acc-test starts a program of its own; a "
                                "script is not for it"});
    } else {
      command.launch.emplace_back(word);
    }
  }
  if (letters && !command.bandwidth)
    command.complaints.push_back({Errc::bad_usage, "-b, -e and their like need --bandwidth"});
  if (command.bandwidth) command.worker.emplace_back("--bandwidth");
  return command;
}

std::string test_help() {
  std::string text =
      "usage: acc-test [--config_file FILE | --num_processes N …] [--bandwidth [-b 8 -e 64M …]] "
      "[--json FILE]\n\n"
      "Checks this machine, then starts a job over all ranks, as acc-launch would with the same\n"
      "flags, and checks what the ranks do together: who they are, every collective, sharding,\n"
      "training, checkpoints, and that mistakes are told. On several machines type it on each.\n\n"
      "  --bandwidth       measures instead, in nccl-tests' way and columns\n"
      "  --json FILE       the results as JSON, too; -: to standard output\n"
      "  --local_only      looks at this machine and starts nothing\n"
      "  any flag of acc-launch: --num_processes, --cpu, --nnodes …\n\nwith --bandwidth:\n";
  for (const auto& letter : kLetters) {
    auto line = "  " + std::string{letter.name} + ", " + std::string{letter.longer};
    line.resize(std::max<std::size_t>(line.size() + 1, 24), ' ');
    text += line + std::string{letter.help} + "\n";
  }
  for (const auto& letter : kLongOnly)
    text +=
        "  " + std::string{letter.name} + std::string(16, ' ') + std::string{letter.help} + "\n";
  return text +
         "\nexit code: 0: all is well; 1: a check failed; else as acc-launch's "
         "(docs/exit-codes.md)\n";
}

}  // namespace acc::launcher
