#include "agent/report.hpp"

#include "agent/error_lines.hpp"
#include "agent/last_lines.hpp"
#include "common/host_name.hpp"
#include "common/plain_text.hpp"
#include "common/text.hpp"
#include "common/unique_fd.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>

namespace acc::agent {

namespace {

constexpr std::size_t kTracebackLines = 40;
constexpr std::size_t kOthersShown = 8;

std::string mebibytes(std::uint64_t bytes) { return std::to_string(bytes >> 20U) + " MiB"; }

std::string rank_words(const WorkerRecord& w) {
  return "rank " + std::to_string(w.rank.value()) + " (local rank " +
         std::to_string(w.local_rank.value()) + ")";
}

// Two nodes of a test may be one host.
const std::string& place_of(const JobReport& r, const FailureElsewhere& f) {
  return f.host == r.host ? f.node : name_of_place(f.node, f.host);
}

std::string short_name(const JobReport& r, const FailureElsewhere& f) {
  if (f.is_node) return f.node;
  return "rank " + std::to_string(f.failure.worker.rank.value()) + " on " + place_of(r, f);
}

std::string headline(const JobReport& r) {
  if (r.elsewhere) {
    const std::string& cause = r.elsewhere->failure.cause;
    const std::string who = short_name(r, *r.elsewhere);
    if (r.outcome == Outcome::nodes_missing) return r.reason + ", after: " + who + " " + cause;
    if (r.outcome == Outcome::cannot_start) return who + ": " + cause;
    return "job failed: " + who + " " + cause;
  }
  switch (r.outcome) {
    case Outcome::succeeded:
      return r.is_unwritten ? "all workers succeeded, but the report could not be written"
                            : "job succeeded";
    case Outcome::failed:
    case Outcome::never_retry:
    case Outcome::no_progress: {
      const auto* f = decisive_failure(r);
      if (f == nullptr) return "job failed";
      return "job failed: rank " + std::to_string(f->worker.rank.value()) + " " + f->cause;
    }
    case Outcome::cannot_start:
      return r.start_failure_words;
    case Outcome::stopped:
      return "job stopped by " + (r.reason.empty() ? signal_name(r.stop_signal) : r.reason);
    case Outcome::preempted:
      return "job pre-empted by " + (r.reason.empty() ? signal_name(r.stop_signal) : r.reason) +
             ": requeue it";
    case Outcome::unkillable:
      if (!r.unkillable.empty() && std::ranges::count_if(r.workers, is_held_dead) ==
                                       static_cast<std::ptrdiff_t>(r.unkillable.size()))
        return "gave up: a debugger holds dead workers: quit it";
      return "gave up: processes survived SIGKILL; this node needs attention";
    case Outcome::guardian_lost:
      return "job ended: the process that started it is gone";
    case Outcome::unfit:
      return r.reason.empty() ? r.start_failure_words : r.reason;
    case Outcome::nodes_missing:
      return r.reason.empty() ? "job ended: other nodes are missing" : r.reason;
  }
  return {};
}

std::string what_was_done(const JobReport& r) {
  std::string text = "not restarted (--max_restarts is 0)";
  if (r.restarts > r.restarts_used) {
    text = "restarted " + std::to_string(r.restarts_used) + " of " +
           plural(r.max_restarts, "time") + ", " + std::to_string(r.restarts) +
           " in all (those that were asked for, or that healthy times gave back, don't count)";
  } else if (r.max_restarts > 0) {
    text = "restarted " + std::to_string(r.restarts) + " of " + plural(r.max_restarts, "time");
  }
  if (r.outcome == Outcome::never_retry)
    text += "; its code is in --no_restart_codes, or the worker asked for that";
  if (r.outcome == Outcome::no_progress)
    text += "; gave up: no progress (--max_no_progress), a requeue won't help";
  return text;
}

// How the others ended: those that failed by themselves first, as they may know more than the
// first.
std::vector<std::string> others(const JobReport& r, const FailureReport& first) {
  std::vector<std::string> lines;
  std::vector<std::string> stopped;
  std::vector<std::string> finished;
  std::size_t failed = 0;
  for (const auto& w : r.workers) {
    if (w.rank == first.worker.rank || !w.status) continue;
    const std::string rank = std::to_string(w.rank.value());
    if (w.asked_to_end) {
      stopped.push_back(rank);
    } else if (is_success(*w.status)) {
      finished.push_back(rank);
    } else if (++failed <= kOthersShown) {
      // The first may be of another node, whose clock was compared with ours to a millisecond or
      // so.
      const auto later = std::chrono::duration_cast<Millis>(w.ended - first.worker.ended);
      lines.push_back("rank " + rank + " " + describe(*w.status) + ", " +
                      (later > Millis{0} ? describe(later) + " later" : "at the same time"));
    }
    if (w.was_stopped)
      lines.push_back("rank " + rank + " was stopped (state T); it was continued to end it");
  }
  const auto list = [](const std::vector<std::string>& ranks) {
    const std::size_t shown = std::min<std::size_t>(ranks.size(), 16);
    return join(std::span{ranks}.first(shown), ", ") + (shown < ranks.size() ? " …" : "");
  };
  if (failed > kOthersShown)
    lines.push_back("… and " + std::to_string(failed - kOthersShown) + " more");
  if (!stopped.empty()) lines.push_back("we stopped rank " + list(stopped));
  if (!finished.empty()) lines.push_back("had finished: rank " + list(finished));
  return lines;
}

class Block {
 public:
  explicit Block(bool color) : color_{color} {}

  void rule() { text_ += std::string(72, '=') + '\n'; }
  void title(const std::string& line) {
    text_ += color_ ? "\033[1;31macc-launch: " + line + "\033[0m\n" : "acc-launch: " + line + '\n';
  }
  void row(std::string_view name, const std::string& value) {
    char label[16];
    std::snprintf(label, sizeof label, "  %-9s ", std::string{name}.c_str());
    text_ += label + value + '\n';
  }
  void quote(const std::vector<std::string>& lines) {
    for (const auto& line : lines) text_ += "    | " + line + '\n';
  }
  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  bool color_;
  std::string text_;
};

/// Its last lines. One without its middle ends with the end of a large text: what called and what
/// was raised stand at its begin.
std::vector<std::string> lines_of_traceback(std::string_view text) {
  const auto gap = text.find('\n' + std::string{kErrorGap});
  if (gap == std::string_view::npos) return last_lines(text, kTracebackLines);
  constexpr std::size_t kAtBegin = kTracebackLines / 2;
  std::size_t end = 0;
  for (std::size_t i = 0; i < kAtBegin && end < gap; ++i)
    end = std::min(text.find('\n', end + 1), gap);
  auto lines = last_lines(text.substr(0, end), kAtBegin);
  if (end < gap) lines.emplace_back("…");
  for (auto& line : last_lines(text.substr(gap), kTracebackLines - kAtBegin))
    lines.push_back(std::move(line));
  return lines;
}

void add_evidence(Block& block, const FailureReport& f) {
  if (f.error) {
    if (!f.error->traceback.empty()) {
      block.row("error", "as the worker wrote it:");
      block.quote(lines_of_traceback(f.error->traceback));
    } else {
      block.row("error", last_lines(f.error->message, 1).empty()
                             ? ""
                             : last_lines(f.error->message, 1).back());
    }
    return;
  }
  if (!f.unread_error.empty()) block.row("error", "can't be read (" + f.unread_error + ")");
  const auto lines = last_lines(f.tail, kShownLines);
  if (lines.empty()) {
    block.row("output", "it wrote nothing that was kept");
    return;
  }
  auto error = f.error_lines;
  if (!error.empty()) error.emplace_back("…");
  const auto last =
      lines.size() == 1 ? "its last line:" : "its last " + plural(lines.size(), "line") + ":";
  block.row("output", error.empty()      ? last
                      : f.error_age == 0 ? "its last error, and its last lines:"
                                         : "an earlier error, " + plural(f.error_age, "line") +
                                               " before its end, and its last lines:");
  block.quote(error);
  block.quote(lines);
}

std::string when_words(const FailureReport& f) {
  return utc_text(f.when) + ", " + describe(f.into_round) + " into attempt " +
         std::to_string(f.round);
}

/// On several nodes the first failure here may be another node's, or none, in time: what the
/// coordinator found counts.
void add_before(Block& block, const JobReport& r) {
  if (r.restarts > 0 && !r.restarted_after.empty()) {
    block.row("before", plural(r.restarts, "restart") + "; the last after: " + r.restarted_after);
  } else if (r.failed_rounds > 1) {
    const auto& first = r.failures.front();
    block.row("before", plural(r.failed_rounds - 1, "earlier failure") + "; the first: rank " +
                            std::to_string(first.worker.rank.value()) + " " + first.cause);
  }
}

void add_finished_elsewhere(Block& block, const JobReport& r) {
  constexpr std::size_t kShown = 8;
  if (r.finished_elsewhere.empty()) return;
  const auto shown = std::min(r.finished_elsewhere.size(), kShown);
  const auto more = r.finished_elsewhere.size() - shown;
  block.row("others", "had finished: " + join(std::span{r.finished_elsewhere}.first(shown), "; ") +
                          (more > 0 ? "; and on " + plural(more, "other node") : ""));
}

void add_failure(Block& block, const JobReport& r, const FailureReport& f) {
  block.row("who", rank_words(f.worker) + " on " + (r.node_name.empty() ? r.host : r.node_name) +
                       ", pid " + std::to_string(f.worker.pid));
  block.row("when", when_words(f));
  if (!f.stacks_path.empty()) block.row("stacks", f.stacks_path);
  if (!f.no_restart.empty()) block.row("it said", "a restart won't help: " + f.no_restart);
  add_evidence(block, f);
  if (!f.hint.empty()) block.row("hint", f.hint);
  block.row("done", what_was_done(r));
  for (const auto& line : f.other_errors) block.row("others", line);
  for (const auto& line : others(r, f)) block.row("others", line);
  add_finished_elsewhere(block, r);
  add_before(block, r);
}

void add_elsewhere(Block& block, const JobReport& r, const FailureElsewhere& there) {
  const auto& f = there.failure;
  if (!there.is_node) {
    block.row("who", rank_words(f.worker) + " on " + place_of(r, there) +
                         (f.worker.pid != 0 ? ", pid " + std::to_string(f.worker.pid) : ""));
  }
  block.row("when", when_words(f));
  if (!f.no_restart.empty()) block.row("it said", "a restart won't help: " + f.no_restart);
  if (f.worker.status || f.worker.pid != 0) add_evidence(block, f);  // one that hung has no status
  if (!f.hint.empty()) block.row("hint", f.hint);
  if (!f.stacks_path.empty()) block.row("stacks", f.stacks_path + " (there)");
  if (!f.log_path.empty()) block.row("its log", f.log_path + " (there)");
  block.row("done", what_was_done(r));
  if (!there.is_node) {
    for (const auto& line : f.other_errors) block.row("others", line + " (here)");
    for (const auto& line : others(r, f)) block.row("others", line + " (here)");
  }
  add_finished_elsewhere(block, r);
  add_before(block, r);
}

// Only where it says more than the length of the job.
std::string goodput_words(const JobReport& r) {
  const auto& g = r.goodput;
  if (r.restarts == 0 && !g.knows_checkpoints) return {};
  const auto share = std::to_string(std::lround(g.goodput() * 100)) + " %";
  std::string text = share + " of " + describe(g.total) +
                     " was of use; lost: " + describe(g.restarting) + " in restarts, " +
                     describe(g.waiting) + " before the first start";
  if (g.knows_checkpoints)
    return text + ", " + describe(g.lost_work) + " of work after the last checkpoints";
  return text + "; work of failed attempts counts as of use, as no rank here reported a checkpoint";
}

void add_common(Block& block, const JobReport& r) {
  const std::string log = r.failures.empty() || r.failures.back().log_path.empty()
                              ? r.log_folder
                              : r.failures.back().log_path;
  const bool is_told_elsewhere = r.elsewhere && !r.elsewhere->failure.log_path.empty();
  if (!log.empty()) block.row("logs", log + (is_told_elsewhere ? " (here)" : ""));
  for (const auto& text : r.unkillable) block.row("alive", text);
  if (!r.left_over.empty()) {
    block.row("ended", std::to_string(r.left_over_count) + " left-over process" +
                           (r.left_over_count == 1 ? ": " : "es: ") + join(r.left_over, ", ") +
                           (r.left_over_count > r.left_over.size() ? " …" : ""));
  }
  for (const auto& loss : r.losses) {
    block.row("lost", plural(loss.lines, "line") + " (" + plural(loss.bytes, "byte") + ") for " +
                          loss.where + ": " + loss.why);
  }
  if (const auto words = goodput_words(r); !words.empty()) block.row("time", words);
  block.row("exit code", std::to_string(r.exit_code));
}

}  // namespace

std::string utc_text(std::chrono::system_clock::time_point when) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(when);
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  char text[40];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &parts);
  return text;
}

bool is_out_of_memory(const OomFacts& oom) {
  // A process with a hundred GiB takes that long to end.
  constexpr Millis kLongest{30'000};
  return oom.known && oom.kills > 0 && oom.last_kill.value_or(Millis{0}) <= kLongest;
}

std::string describe_cause(const ExitStatus& status, const OomFacts& oom,
                           std::optional<std::chrono::seconds> cpu_limit) {
  const auto* killed = std::get_if<Signaled>(&status);
  if (killed == nullptr) return describe(status);
  std::string text = "was " + describe(status);
  if (cpu_limit && !(killed->signo == SIGKILL && is_out_of_memory(oom)))
    return text + ": its processor time reached the limit of " +
           std::to_string(cpu_limit->count()) + " s (ulimit -t)";
  if (killed->signo == SIGKILL && oom.known) {
    if (oom.kills == 0) return text + ", not by OOM";
    if (!is_out_of_memory(oom))
      return text + ", perhaps by OOM: the last such kill was " + describe(*oom.last_kill) +
             " before";
    text += ": out of memory";
    if (oom.limit_bytes) text += " (limit " + mebibytes(*oom.limit_bytes);
    if (oom.limit_bytes && oom.peak_bytes) text += ", peak " + mebibytes(*oom.peak_bytes);
    if (oom.limit_bytes) text += ")";
  }
  return text;
}

void take_output(FailureReport& failure, std::string_view tail) {
  failure.tail = without_sequences(tail);
  failure.error_lines = error_lines_before(failure.tail, kShownLines);
  const auto& status = failure.worker.status;
  const bool is_killed = status && std::holds_alternative<Signaled>(*status);
  failure.error_age = static_cast<std::uint32_t>(lines_since_older_error(failure.tail, is_killed));
}

// Of what can't be executed, which may be anything: a pipe, or gigabytes without a line's end.
static std::string first_line_of(const std::string& path) {
  const UniqueFd file{::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)};
  struct stat info {};
  if (!file || ::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) return {};
  std::array<char, 512> bytes;  // the kernel reads 256
  const auto n = ::read(file.get(), bytes.data(), bytes.size());
  std::string text{bytes.data(), n > 0 ? static_cast<std::size_t>(n) : 0};
  return text.substr(0, text.find('\n'));
}

static std::string interpreter_of(const std::string& path) {
  const std::string line = first_line_of(path);
  if (!line.starts_with("#!")) return {};
  // As the kernel reads it: up to a blank, and a carriage return belongs to the name.
  const auto begin = line.find_first_not_of(" \t", 2);
  if (begin == std::string::npos) return {};
  return line.substr(begin, std::min(line.find_first_of(" \t", begin) - begin, std::size_t{256}));
}

std::string describe_start_failure(const StartFailure& failure, const std::string& program,
                                   const std::string& path) {
  if (failure.step != "exec") {
    std::string text = "cannot start worker " + std::to_string(failure.local_rank.value()) + ": " +
                       failure.step + ": " + std::strerror(failure.errnum);
    if (failure.errnum == EAGAIN)
      text += "; raise the limit of processes (ulimit -u, pids.max, TasksMax=)";
    if (failure.errnum == EMFILE)
      text += "; raise the limit of descriptors (ulimit -n, LimitNOFILE=)";
    if (failure.errnum == ENOMEM) text += "; the node has no memory left";
    return text;
  }
  std::string text = "cannot start '" + program + "': " + std::strerror(failure.errnum);
  const std::string interpreter = path.empty() ? std::string{} : interpreter_of(path);
  if (failure.errnum == ENOENT && interpreter.ends_with('\r')) {
    text +=
        ": its lines end as on Windows (CR LF), so that its first line names an interpreter "
        "that isn't there: sed -i 's/\\r$//' " +
        path;
  } else if (failure.errnum == ENOENT && !interpreter.empty()) {
    text += ": its first line names the interpreter '" + interpreter + "', which isn't there";
  } else if (failure.errnum == ENOENT && program.find('/') == std::string::npos) {
    text += " on PATH";
  } else if (failure.errnum == EACCES) {
    text += "; is it a file with the execute bit (chmod +x)?";
  } else if (failure.errnum == ENOEXEC) {
    text += "; is it a program of this machine's kind, or a script without a '#!' line?";
  }
  return text;
}

const FailureReport* decisive_failure(const JobReport& r) {
  if (r.elsewhere) return nullptr;
  const bool by_failure = r.outcome == Outcome::failed || r.outcome == Outcome::never_retry ||
                          r.outcome == Outcome::no_progress;
  return by_failure && !r.failures.empty() ? &r.failures.back() : nullptr;
}

// A reader that closed its end didn't want the rest; a message said so.
static bool lost_something(const JobReport& r) {
  return std::ranges::any_of(r.losses, [](const Losses& losses) { return !losses.reader_left; });
}

// A worker that failed has words to show, wherever it was; of a lost node the headline says all.
static bool is_one_line(const JobReport& r) {
  const bool has_worker = r.elsewhere && !r.elsewhere->is_node;
  const bool has_failure = !r.failures.empty() || r.outcome == Outcome::failed ||
                           (has_worker && r.outcome != Outcome::cannot_start);
  return !has_failure && !lost_something(r) && r.unkillable.empty();
}

std::string to_text(const JobReport& r, bool color) {
  const bool worth_it = r.outcome != Outcome::succeeded || lost_something(r) || r.is_unwritten;
  if (!worth_it) return {};
  Block block{color};
  if (is_one_line(r)) {
    block.title(headline(r) + " (exit code " + std::to_string(r.exit_code) + ")");
    return block.take();
  }
  block.rule();
  block.title(headline(r));
  if (const auto* failure = decisive_failure(r)) {
    add_failure(block, r, *failure);
  } else if (r.elsewhere && r.outcome != Outcome::cannot_start) {
    add_elsewhere(block, r, *r.elsewhere);
  } else if (!r.failures.empty()) {
    block.row("before", plural(r.failed_rounds, "failure") + "; the last: rank " +
                            std::to_string(r.failures.back().worker.rank.value()) + " " +
                            r.failures.back().cause);
  }
  add_common(block, r);
  block.rule();
  return block.take();
}

}  // namespace acc::agent
