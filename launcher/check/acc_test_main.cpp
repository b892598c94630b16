#include "agent/guardian.hpp"
#include "common/exit_codes.hpp"
#include "common/text.hpp"
#include "common/version.hpp"
#include "launcher/check/command.hpp"
#include "launcher/check/machine_checks.hpp"
#include "launcher/check/machine_view.hpp"
#include "launcher/check/marked_lines.hpp"
#include "launcher/check/on_rank.hpp"
#include "launcher/check/report.hpp"
#include "launcher/check/worker_program.hpp"
#include "launcher/launcher.hpp"
#include "launcher/program.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace acc::check {
namespace {

int complain(const Complaints& complaints) {
  for (const auto& one : complaints) std::fprintf(stderr, "acc-test: %s\n", one.what.c_str());
  std::fprintf(stderr, "acc-test: try --help\n");
  return to_int(ExitCode::usage);
}

/// acc-test from its words to its exit code.
class Test {
 public:
  explicit Test(Command command) : command_{std::move(command)} {}

  int run(const agent::GuardianLink& guardian, bool has_output) {
    report_.quiet = command_.json_file == "-";
    report_.is_on_hosts = command_.on_hosts;
    if (::access(worker_.c_str(), X_OK) != 0) {
      std::fprintf(stderr, "acc-test: '%s' is missing: it belongs there or beside acc-test\n",
                   worker_.c_str());
      return to_int(ExitCode::failure);
    }
    if (const auto wrong = wrong_options(worker_, command_.worker); !wrong.empty())
      return complain({{Errc::bad_usage, wrong}});
    if (!report_.open(command_.json_file, has_output)) return to_int(ExitCode::output);
    if (command_.on_hosts) return run_on_hosts(guardian, has_output);
    auto words = command_.launch;
    words.emplace_back("--no_python");
    words.push_back(worker_);
    if (report_.quiet) words.emplace_back("--silent");
    words.insert(words.end(), command_.worker.begin(), command_.worker.end());
    const int code =
        launcher::launch(words, guardian, has_output,
                         {.before_start = [&](const agent::JobPlan& plan) { return look(plan); }});
    if (!looked_) return code;  // the plan was refused, in words
    if (command_.only_machine) return report_.finish_machine();
    return report_.finish(code);
  }

 private:
  /// The ranks, and what is to be known of their machines, come back in their standard output.
  int run_on_hosts(const agent::GuardianLink& guardian, bool has_output) {
    auto words = command_.launch;
    words.emplace_back("--no_python");
    words.push_back(launcher::own_program("acc-test"));
    words.emplace_back(kOnRank);
    words.emplace_back("--marked");
    words.insert(words.end(), command_.worker.begin(), command_.worker.end());
    std::optional<int> code;
    try {
      OutputReader reader;
      report_.output = reader.output();
      reader.start([this](std::string_view line) { report_.take_line(line); });
      code = launcher::launch(words, guardian, has_output, {.reads_all_output = true});
      reader.finish();
      report_.output = STDOUT_FILENO;
    } catch (const std::system_error& error) {
      std::fprintf(stderr, "acc-test: read what the ranks print: %s\n",
                   error.code().message().c_str());
      return to_int(ExitCode::resources);
    }
    // Refused, in words.
    if (!report_.has_heard() && *code == to_int(ExitCode::usage)) return *code;
    return report_.finish(*code);
  }

  std::optional<int> look(const agent::JobPlan& plan) {
    if (command_.network && !plan.cluster.several())
      return complain({{Errc::bad_usage,
                        "--network measures between machines, and the job has one: give --hosts "
                        "a,b, or --nnodes N and start acc-test on each"}});
    looked_ = true;
    report_.begin(plan);
    const auto view = look_at_machine(plan, launcher::read_environment(), worker_);
    for (const auto& [name, value] : view.rank_variables) ::setenv(name.c_str(), value.c_str(), 1);
    report_.add_machine(judge(view, plan));
    if (command_.only_machine) return 0;
    if (report_.machine_failed()) return to_int(ExitCode::failure);
    report_.begin_ranks();
    return std::nullopt;
  }

  Command command_;
  const std::string worker_ = find_worker_program();
  Report report_;
  bool looked_ = false;
};

/// As acc-launch's: a reader that has seen enough (`| head`) is no failure.
int print(const std::string& text, bool has_output) {
  const bool written =
      has_output && std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
  if (written || (has_output && errno == EPIPE)) return 0;
  std::fprintf(
      stderr, "acc-test: %s\n",
      system_error(has_output ? errno : EBADF, "write to the standard output").what.c_str());
  return to_int(ExitCode::output);
}

}  // namespace
}  // namespace acc::check

int main(int argc, char** argv) {
  using namespace acc::check;
  const bool has_output = ::fcntl(STDOUT_FILENO, F_GETFD) >= 0;
  if (argc > 1 && std::string_view{argv[1]} == kOnRank) {
    const std::vector<std::string> words(argv + 2, argv + argc);
    return run_on_rank(words);
  }
  return acc::agent::run_guarded([&](const acc::agent::GuardianLink& guardian) {
    std::signal(SIGPIPE,
                SIG_IGN);  // `| head`: what isn't read any more is dropped, the test goes on
    const std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
    auto command = parse_command(words);
    if (command.help) return print(help_text(), has_output);
    if (command.version) return print(std::string{"acc-test "} + acc::version() + "\n", has_output);
    if (!command.complaints.empty()) return complain(command.complaints);
    return Test{std::move(command)}.run(guardian, has_output);
  });
}
