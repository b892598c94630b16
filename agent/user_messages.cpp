#include "agent/user_messages.hpp"

#include "agent/error_lines.hpp"
#include "agent/last_lines.hpp"
#include "common/host_name.hpp"
#include "common/plain_text.hpp"
#include "common/text.hpp"

#include <algorithm>
#include <csignal>

namespace acc::agent {

UserMessages::UserMessages(std::function<void(std::string_view)> say, const OutputPlan& plan,
                           bool color)
    : say_{std::move(say)},
      quiet_{plan.quiet},
      is_told_elsewhere_{plan.is_reported_elsewhere},
      has_told_job_{!plan.is_reported_elsewhere},
      name_{plan.is_reported_elsewhere ? "acc-launch: " + host_name() + ":" : "acc-launch:"},
      color_{color} {}

void UserMessages::line(const std::string& text, bool matters) const {
  if (quiet_ && !matters) return;
  say_(color_ ? "\033[1;33m" + name_ + "\033[0m " + text + '\n' : name_ + " " + text + '\n');
}

void UserMessages::of_job(const std::string& text, bool matters) const {
  if (!is_told_elsewhere_) line(text, matters);
}

void UserMessages::tell_job(bool is_told_here) {
  is_told_elsewhere_ = !is_told_here;
  has_told_job_ = has_told_job_ || is_told_here;
  name_ = "acc-launch: " + host_name() + ":";
}

void UserMessages::error(const std::string& text) const { line(text, true); }

void UserMessages::warning(const std::string& text) const { line("warning: " + text, true); }

void UserMessages::note(const std::string& text) const { of_job(text, false); }

void UserMessages::note_of_node(const std::string& text) const { line(text, false); }

void UserMessages::announce(const std::string& text) const { of_job(text, true); }

void UserMessages::text(const std::string& lines) const {
  constexpr std::size_t kMost = std::size_t{64} << 10U;
  std::string shown;
  std::size_t at = 0;
  while (at < lines.size() && shown.size() < kMost) {
    const auto end = std::min(lines.find('\n', at), lines.size());
    shown += plain_line(std::string_view{lines}.substr(at, end - at), kMost) + '\n';
    at = end + 1;
  }
  if (at < lines.size()) shown += "... (" + std::to_string(lines.size() - at) + " bytes more)\n";
  say_(shown);
}

void UserMessages::failure(const FailureReport& f) const {
  line("rank " + std::to_string(f.worker.rank.value()) + " (pid " + std::to_string(f.worker.pid) +
           ") " + f.cause + ", " + describe(f.into_round) + " into attempt " +
           std::to_string(f.round),
       true);
}

namespace {

// An older error was caught: the worker went on.
std::string last_words_of(const FailureReport& failure) {
  auto words = words_of_last_error(failure.tail);
  return failure.error ? std::move(words) + failure.error->message : words;
}

// Python exits with 1 for an exception that nobody caught.
bool may_be_uncaught(const FailureReport& failure) {
  const auto* exited =
      failure.worker.status ? std::get_if<Exited>(&*failure.worker.status) : nullptr;
  return exited != nullptr && exited->code == 1;
}

struct UncaughtError {
  std::string line;
  bool is_last = true;  ///< nothing was written behind it
};

/// An exception that nobody caught: the last one of what the worker wrote, or of its error file. An
/// exit handler may write behind it; with another end it was caught, unless it is the last line.
UncaughtError uncaught_error_of(const FailureReport& failure) {
  const auto& text = failure.error ? failure.error->message : failure.tail;
  const auto lines = last_lines(text, 1);
  auto last = lines.empty() ? std::string{} : last_error_line(lines.back());  // without its prefix
  if (!last.empty()) return {std::move(last)};
  auto error = failure.error              ? last_error_line(text)
               : may_be_uncaught(failure) ? uncaught_error_line(text)
                                          : std::string{};
  if (!error.empty()) return {std::move(error), failure.error.has_value()};
  return {lines.empty() ? std::string{} : lines.back()};
}

std::string told_before(const UncaughtError& error, std::string hint) {
  if (error.is_last || hint.empty()) return hint;
  return "it wrote earlier: " + printable(error.line, 100) + ": " + hint;
}

// `accelerate` and torchrun run a script with their own interpreter, which has torch; we take the one
// on PATH. Of 'a.b' Python has found the 'a'.
std::string module_hint(std::string_view error, const std::string& program,
                        const std::string& host) {
  constexpr std::string_view kMissing = "ModuleNotFoundError: No module named '";
  const auto name = std::string_view{program}.substr(program.rfind('/') + 1);
  if (!error.starts_with(kMissing) || !name.starts_with("python")) return {};
  const auto rest = error.substr(kMissing.size());
  const auto module = rest.substr(0, rest.find('\''));
  if (rest.size() != module.size() + 1 || module.find('.') != std::string_view::npos) return {};
  const auto python = printable(program, 200) + (host.empty() ? "" : " on " + printable(host, 100));
  if (module == "acc_heartbeat")
    return python +
           " has no module 'acc_heartbeat': it is a file of acc-launch, "
           "share/acc/python/acc_heartbeat.py beside its folder bin. With acc-launch in /usr/bin: "
           "PYTHONPATH=/usr/share/acc/python (with --hosts: --env "
           "PYTHONPATH=/usr/share/acc/python)";
  return python + " has no module '" + printable(module, 60) +
         "': install it there, or run the script with another Python (PYTHON_EXEC names it)";
}

// torchrun starts one worker with a rank where nobody gives a number, `accelerate` a plain process.
std::string rank_hint(std::string_view error) {
  constexpr std::string_view kMissing[] = {"KeyError: 'RANK'", "KeyError: 'LOCAL_RANK'",
                                           "KeyError: 'WORLD_SIZE'"};
  if (std::ranges::find(kMissing, error) == std::end(kMissing) &&
      error.find("environment variable RANK expected, but not set") == std::string_view::npos)
    return {};
  return "one plain process was started, as by accelerate launch without a number or with "
         "distributed_type: NO in the config file: --nproc_per_node N, in front of the script, "
         "starts N workers with RANK and WORLD_SIZE";
}

struct Advice {
  std::string_view piece;  ///< of what the worker wrote at its end
  std::string_view hint;
};

constexpr std::string_view kLocalRank =
    "torch.distributed.launch gave scripts --local_rank; here, as with torchrun, it is in the "
    "environment: read int(os.environ['LOCAL_RANK']), or make that the flag's default";

// Faults of scripts and of their start whose own words don't name the cure.
constexpr Advice kAdvice[] = {
    {"the following arguments are required: --local_rank", kLocalRank},
    {"the following arguments are required: --local-rank", kLocalRank},
    {"CUDA error: invalid device ordinal",
     "a worker chose a GPU that isn't there: --nproc_per_node gpu starts one worker for each GPU, "
     "and each one's is number LOCAL_RANK"},
    {"Duplicate GPU detected",
     "two workers use one GPU: torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) before the "
     "first collective, and no more workers than GPUs (--nproc_per_node gpu)"},
    {"ProcessGroupNCCL is only supported with GPUs, no GPUs found",
     "the worker sees no GPU, and NCCL needs one: init_process_group('gloo') runs on the CPU; "
     "acc-env shows which GPUs there are"},
};

// Of torch: "The server socket has failed to bind to [::]:23456 (errno: 98 …)", in newer versions
// "… to listen on any local network address. port: 23456, …". 0: it names none.
std::uint16_t port_in(std::string_view words) {
  for (const std::string_view before : {"]:", "0.0.0.0:", "address. port: "}) {
    const auto at = words.rfind(before);
    if (at == std::string_view::npos) continue;
    const auto rest = words.substr(at + before.size());
    const auto digits = rest.substr(0, rest.find_first_not_of("0123456789"));
    if (const auto port = parse_number<std::uint16_t>(digits)) return *port;
  }
  return 0;
}

std::string port_hint(std::string_view words, std::uint16_t master_port) {
  if (words.find("The server socket has failed to listen on any local network address") ==
      std::string_view::npos)
    return {};
  if (master_port == 0) return {};
  const auto port = port_in(words);
  if (port != 0 && port != master_port)
    return "port " + std::to_string(port) +
           " is the script's own choice, and taken: without a port in init_method, and without "
           "setting MASTER_PORT itself, it gets one that is free for this job";
  return "MASTER_PORT is taken: by another program (choose another --main_process_port, the same "
         "on all machines; on one, 0 is any free one), or by another rank, if each makes the store";
}

// What env writes that a script's "#!/usr/bin/env python3\r" started, in any language: GNU's with
// the \r spelled out, others' as it is.
std::string line_end_hint(const FailureReport& failure) {
  constexpr int kNotFound = 127;
  const auto* status =
      failure.worker.status ? std::get_if<Exited>(&*failure.worker.status) : nullptr;
  if (status == nullptr || status->code != kNotFound) return {};
  constexpr std::string_view kEnds[] = {"\\r'", "\\r\u2019", "\r'", "\r\u2019", "\r:"};
  const std::string_view words = failure.tail;
  for (auto at = words.find("env: "); at != std::string_view::npos;
       at = words.find("env: ", at + 1)) {
    const auto line = words.substr(at, words.find('\n', at) - at);
    if (std::ranges::none_of(kEnds, [&](auto end) { return line.find(end) != line.npos; }))
      continue;
    return "the lines of the script end as on Windows (CR LF), so that its first line names a "
           "program that isn't there: sed -i 's/\\r$//' SCRIPT";
  }
  return {};
}

std::string advice_for(std::string_view words) {
  for (const auto& advice : kAdvice)
    if (words.find(advice.piece) != std::string_view::npos) return std::string{advice.hint};
  return {};
}

}  // namespace

// With several workers stdin is /dev/null, and the errors of pdb and input() don't say so.
std::string UserMessages::input_hint(const FailureReport& failure) {
  const auto error = uncaught_error_of(failure).line;
  const bool wanted_input =
      error.starts_with("bdb.BdbQuit") || error.starts_with("EOFError: EOF when reading a line");
  if (!wanted_input) return {};
  return "rank " + std::to_string(failure.worker.rank.value()) +
         " wanted to read its standard input, which is /dev/null with several workers: --stdin " +
         std::to_string(failure.worker.local_rank.value()) + " gives it ours";
}

// Of torch's data loader, subprocess, concurrent.futures, multiprocessing and Hugging Face's
// datasets.
bool UserMessages::names_killed_process(const FailureReport& failure) {
  constexpr std::string_view kWords[] = {"killed by signal: Killed",
                                         "Signals.SIGKILL",
                                         "terminated abruptly",
                                         "abruptly died",
                                         "exitcode -9",
                                         "exit code -9"};
  const auto words = last_words_of(failure);
  return std::ranges::any_of(
      kWords, [&](std::string_view piece) { return words.find(piece) != std::string::npos; });
}

// A pool's words for a killed process name no cause, or it waits for it for ever; the killed
// process writes nothing.
std::string UserMessages::memory_hint(const FailureReport& failure, std::uint64_t kills,
                                      const std::string& host) {
  const auto* signaled =
      failure.worker.status ? std::get_if<Signaled>(&*failure.worker.status) : nullptr;
  const bool is_killed = signaled != nullptr && signaled->signo == SIGKILL;
  if (kills == 0 || is_killed) return {};
  return "out of memory: the kernel's OOM killer ended " +
         (kills == 1 ? "1 process" : std::to_string(kills) + " processes") +
         " of the cgroup that this job is in" +
         (host.empty() ? "" : " on " + printable(host, 100)) +
         ": fewer data loader workers, smaller batches, or a higher limit";
}

std::string UserMessages::start_hint(const FailureReport& failure, const Start& start) {
  const auto error = uncaught_error_of(failure);
  auto hint = module_hint(error.line, start.program, start.host);
  if (hint.empty() && start.is_plain) hint = rank_hint(error.line);
  hint = told_before(error, std::move(hint));
  if (hint.empty()) hint = line_end_hint(failure);
  if (hint.empty()) hint = port_hint(last_words_of(failure), start.master_port);
  return hint.empty() ? advice_for(last_words_of(failure)) : hint;
}

void UserMessages::restart(const TellRestart& told) const {
  const std::string when = told.delay == Millis{0} ? "now" : "in " + describe(told.delay);
  of_job(
      "restarting all workers " + when + " (" + restart_words(told.ledger, told.max_restarts) + ")",
      true);
}

void UserMessages::start_retry(const TellStartRetry& told, const std::string& words) const {
  line(words + "; trying again for " + describe(told.window), true);
}

void UserMessages::stopping(const TellStopping& told) const {
  const std::string name = signal_name(told.signo);
  if (told.preempted) {
    of_job("pre-empted by " + name + ": workers have " + describe(told.grace) + " for a checkpoint",
           true);
  } else {
    of_job("got " + name + ": stopping; workers have " + describe(told.grace) + " to end" +
               (told.signo == 2 ? " (Ctrl-C again to hurry)" : ""),
           false);
  }
}

void UserMessages::no_restart(const TellNoRestart& told) const {
  of_job("got " + signal_name(told.signo) + ": no restart will follow", true);
}

void UserMessages::hurry(const TellHurry& told, bool is_first) const {
  of_job(std::string{is_first ? "got Ctrl-C again: stopping" : "hurrying"} + ": SIGTERM sent, " +
             describe(told.grace) + " left (Ctrl-C again to kill)",
         false);
}

void UserMessages::kept_interrupt() const {
  line("Ctrl-C went to the worker, which has the terminal and goes on: Ctrl-C again stops the job",
       true);
}

static std::string list(const std::vector<LeftOver>& processes) {
  constexpr std::size_t kShown = 8;
  std::vector<std::string> names;
  for (const auto& process : processes) {
    if (names.size() < kShown) names.push_back(name_and_pid(process));
  }
  if (processes.size() > kShown) names.emplace_back("…");
  return join(names, ", ");
}

void UserMessages::killing(const TellKilling& told, const std::vector<LeftOver>& alive) const {
  if (alive.empty()) return;
  const std::string why = told.after == Millis{0}
                              ? "killing at once: "
                              : "did not end within " + describe(told.after) + ", killing: ";
  line(why + list(alive), true);
}

void UserMessages::restart_asked(const TellRestartAsked& told) const {
  line("restarting all workers; they have " + describe(told.grace) + " to end", true);
}

void UserMessages::left_over(const std::vector<LeftOver>& processes) const {
  line("ending " + std::to_string(processes.size()) + " left-over process" +
           (processes.size() == 1 ? ": " : "es: ") + list(processes),
       false);
}

void UserMessages::traced_death(const WorkerRecord& worker) const {
  line("rank " + std::to_string(worker.rank.value()) + " (pid " + std::to_string(worker.pid) +
           ") is dead, but " + name_tracer(worker.pid) +
           " holds it: its exit counts when that process lets go of it or ends",
       true);
}

void UserMessages::programs_awaited(const std::vector<Rank>& ranks,
                                    const std::vector<pid_t>& programs) const {
  constexpr std::size_t kShown = 8;
  std::vector<std::string> numbers;
  for (std::size_t i = 0; i < std::min(ranks.size(), kShown); ++i)
    numbers.push_back(std::to_string(ranks[i].value()));
  if (ranks.size() > kShown) numbers.emplace_back("…");
  std::vector<LeftOver> processes;
  for (const pid_t pid : programs)
    processes.push_back(processes.size() < kShown ? look_up(pid) : LeftOver{pid, "", '?'});
  const bool is_one = ranks.size() == 1;
  line((is_one ? "rank " : "ranks ") + join(numbers, ", ") + (is_one ? " has" : " have") +
           " ended, but what " + (is_one ? "it" : "they") +
           " started has not, and keeps the time that is left: " + list(processes),
       false);
}

void UserMessages::degraded(const Losses& losses) const {
  line("warning: " + losses.where + ": " + losses.why +
           "; output is being dropped, the workers go on" +
           (losses.cure.empty() ? "" : " (" + losses.cure + ")"),
       true);
}

}  // namespace acc::agent
