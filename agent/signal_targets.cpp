#include "agent/signal_targets.hpp"

#include "agent/containment.hpp"
#include "agent/output/timed_answers.hpp"
#include "agent/small_file.hpp"
#include "common/text.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <csignal>
#include <memory>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <unordered_set>

namespace acc::agent {

namespace {

// Python's multiprocessing, and the package multiprocess, which is a copy of it: what they execute
// for a new process, the server of forks and the tracker of shared memory.
bool is_of_multiprocessing(std::string_view command_line) {
  const auto words = split(command_line, '\0');
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--multiprocessing-fork") return true;
    if (i > 0 && words[i - 1] == "-c" &&
        (words[i].starts_with("from multiprocessing.") ||
         words[i].starts_with("from multiprocess.")))
      return true;
  }
  return false;
}

// Forked and never executed anything: all that exec replaces is as in its parent.
bool is_fork_of(const RankProcess& parent, const RankProcess& process) {
  return !process.program.empty() && process.program == parent.program &&
         process.command_line == parent.command_line;
}

bool is_helper_of(const RankProcess& parent, const RankProcess& process) {
  return is_fork_of(parent, process) || is_of_multiprocessing(process.command_line);
}

std::string program_of(const std::string& folder) {
  char path[PATH_MAX];
  const ssize_t length = ::readlink((folder + "/exe").c_str(), path, sizeof path);
  return length > 0 ? std::string(path, static_cast<std::size_t>(length)) : std::string{};
}

RankProcess describe_process(pid_t pid, pid_t parent) {
  const auto folder = "/proc/" + std::to_string(pid);
  return {pid,
          parent,
          ::getpgid(pid),
          ::getsid(pid),
          program_of(folder),
          read_small_file(folder + "/cmdline")};
}

std::string_view base_name(std::string_view path) {
  return path.substr(path.rfind('/') + 1);  // npos + 1 is 0
}

bool is_shell(const RankProcess& process) {
  constexpr std::array<std::string_view, 9> kShells{"bash", "sh",      "dash", "zsh", "ksh",
                                                    "mksh", "busybox", "ash",  "fish"};
  return std::ranges::count(kShells, base_name(process.program)) != 0;
}

bool is_timeout(const RankProcess& process) {
  const std::string_view line{process.command_line};
  return base_name(line.substr(0, line.find('\0'))) == "timeout";
}

// Each thread has a list of children, which is a file to read. By the links of their folder.
std::size_t count_threads(pid_t pid) {
  struct stat info {};
  const auto tasks = "/proc/" + std::to_string(pid) + "/task";
  return ::stat(tasks.c_str(), &info) == 0 && info.st_nlink > 2 ? info.st_nlink - 2 : 0;
}

// Kernels can be built without these lists.
bool can_list_children(pid_t pid) {
  const auto id = std::to_string(pid);
  return ::access(("/proc/" + id + "/task/" + id + "/children").c_str(), R_OK) == 0;
}

}  // namespace

bool spares_helpers(int signo) {
  constexpr int kToAll[] = {SIGKILL, SIGINT, SIGQUIT, SIGSTOP, SIGTSTP, SIGCONT, SIGWINCH};
  return std::ranges::count(kToAll, signo) == 0;
}

bool is_of_rank(const RankProcess& parent, const RankProcess& child) {
  if (child.group == parent.group) return true;
  return child.group == child.pid && child.session == parent.session && is_shell(parent);
}

Trap trap_of(const SignalSets& shell, int signo) {
  constexpr auto kNobodyTraps = signal_bit(SIGSYS) | signal_bit(SIGVTALRM);
  if (((shell.caught | shell.blocked) & signal_bit(signo)) == 0) return Trap::none;
  return (shell.caught & kNobodyTraps) == kNobodyTraps ? Trap::unclear : Trap::set;
}

bool was_started_in_background(const SignalSets& shell, const SignalSets& process,
                               bool is_process_a_shell) {
  const auto has = [](std::uint64_t set, int signo) { return (set & signal_bit(signo)) != 0; };
  const bool ignores_interrupt = has(process.ignored, SIGINT);
  const bool ignores_quit = has(process.ignored, SIGQUIT);
  if (has(shell.ignored, SIGINT)) return false;
  if (is_process_a_shell) return ignores_quit && ignores_interrupt;
  return ignores_quit || (ignores_interrupt && has(process.caught, SIGQUIT));
}

// Whether a shell dies of the signal is seen of a worker alone; another one is taken for one that
// does.
static bool is_to_pass_on(const RankProcess& shell, const RankProcess& worker) {
  return shell.trap == Trap::set || (shell.trap == Trap::unclear && shell.pid == worker.pid);
}

SignalTargets signal_targets(std::span<const RankProcess> processes, bool is_delivered) {
  SignalTargets targets;
  std::unordered_map<pid_t, const RankProcess*> known;
  std::unordered_set<pid_t> served;  // by an ancestor
  for (const auto& process : processes) {
    known.emplace(process.pid, &process);
    const auto found = known.find(process.parent);
    const auto* const parent = found != known.end() ? found->second : nullptr;
    const bool is_timed = parent != nullptr && is_timeout(*parent);
    const bool is_passed_on = parent != nullptr && process.is_background && !is_delivered &&
                              is_to_pass_on(*parent, processes.front());
    if (is_passed_on && parent->trap == Trap::unclear) targets.is_served_unclear = true;
    if (is_passed_on || served.contains(process.parent)) served.insert(process.pid);
    // A fork of `timeout` is about to execute the program.
    if (parent != nullptr && !is_timed && is_helper_of(*parent, process)) {
      targets.helpers.push_back(process.pid);
    } else if (served.contains(process.pid)) {
      targets.served.push_back(process.pid);
    } else if (is_timed || !is_timeout(process)) {
      targets.programs.push_back(process.pid);
      if (is_timed) targets.timeouts.push_back(parent->pid);
    }
  }
  if (targets.programs.empty()) targets.programs.push_back(processes.front().pid);
  return targets;
}

namespace {

std::optional<std::vector<RankProcess>> look_through(pid_t worker, int signo,
                                                     std::span<const pid_t> orphans) {
  constexpr std::size_t kMostFiles = 500;  // of /proc; 10 to 20 µs each where it was measured
  constexpr std::size_t kFilesOfProcess = 4;
  constexpr std::size_t kMostText = std::size_t{1} << 20U;
  if (!can_list_children(worker)) return std::nullopt;
  std::vector<RankProcess> found{describe_process(worker, 0)};
  for (const pid_t orphan : orphans) found.push_back(describe_process(orphan, worker));
  std::size_t files = 0;
  std::size_t text = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const pid_t parent = found[i].pid;
    files += kFilesOfProcess + count_threads(parent);
    text += found[i].command_line.size();
    if (files > kMostFiles || text > kMostText) return std::nullopt;
    const auto sets = is_shell(found[i]) ? read_signal_sets(parent) : SignalSets{};
    found[i].trap = trap_of(sets, signo);
    for (const pid_t child : children_of(parent)) {
      // One that is to be looked at costs more than this call.
      if (const pid_t group = ::getpgid(child); group != found[i].group && group != child) continue;
      if (found.size() * kFilesOfProcess >= kMostFiles) return std::nullopt;
      auto process = describe_process(child, parent);
      if (!is_of_rank(found[i], process)) continue;
      process.is_background =
          found[i].trap != Trap::none &&
          was_started_in_background(sets, read_signal_sets(child), is_shell(process));
      found.push_back(std::move(process));
    }
  }
  return found;
}

std::vector<pid_t> programs_below(pid_t worker) {
  constexpr std::size_t kMostThreads = 16;
  constexpr std::size_t kMostChildren = 24;
  std::vector<pid_t> programs;
  if (count_threads(worker) > kMostThreads) return programs;
  const auto children = children_of(worker);
  const auto parent = describe_process(worker, 0);
  for (std::size_t i = 0; i < std::min(children.size(), kMostChildren); ++i) {
    const pid_t child = children[i];
    if (::getpgid(child) == worker && !is_helper_of(parent, describe_process(child, worker)))
      programs.push_back(child);
  }
  return programs;
}

/// By the process that may be stuck.
TimedAnswers<pid_t, bool>& open_questions() {
  static TimedAnswers<pid_t, bool> questions;
  return questions;
}

/// The kernel doesn't give the command line of a process while another call holds up what changes
/// its memory: a driver that has hung, a mapped file whose server is away.
/// @return nothing where it doesn't for so long
template <class Read>
auto unless_stuck(pid_t pid, Read read) -> std::optional<decltype(read())> {
  constexpr Millis kPatience{2'000};
  constexpr Millis kOfFurther{200};  // the ranks of a job mostly hang at the same thing
  auto& questions = open_questions();
  const auto found = std::make_shared<decltype(read())>();
  const auto fill = [found, read] {
    *found = read();
    return true;
  };
  try {
    if (!questions.ask(pid, questions.has_open() ? kOfFurther : kPatience, fill))
      return std::nullopt;
  } catch (const std::system_error&) {
    fill();
  }
  return std::move(*found);
}

}  // namespace

bool is_helper(pid_t pid) {
  const pid_t parent = read_process_stat(pid).parent;
  if (parent <= 0) return false;
  const auto look = [parent, pid] {
    return is_helper_of(describe_process(parent, 0), describe_process(pid, parent));
  };
  return unless_stuck(parent, look).value_or(false);
}

std::optional<std::vector<RankProcess>> processes_of_rank(pid_t worker, int signo,
                                                          std::span<const pid_t> orphans) {
  const auto look = [worker, signo, all = std::vector<pid_t>(orphans.begin(), orphans.end())] {
    return look_through(worker, signo, all);
  };
  return unless_stuck(worker, look).value_or(std::nullopt);
}

std::vector<pid_t> programs_of_small(pid_t worker) {
  return unless_stuck(worker, [worker] { return programs_below(worker); })
      .value_or(std::vector<pid_t>{});
}

}  // namespace acc::agent
