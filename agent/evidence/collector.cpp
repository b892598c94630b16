#include "agent/evidence/collector.hpp"

#include "agent/evidence/flight_dump.hpp"
#include "agent/evidence/held_processes.hpp"
#include "agent/evidence/native_tool.hpp"
#include "agent/evidence/proc_facts.hpp"
#include "agent/evidence/rank_evidence.hpp"
#include "agent/evidence/stack_text.hpp"
#include "agent/evidence/stacks_memory.hpp"
#include "agent/evidence/stacks_report.hpp"
#include "agent/evidence/tool_runs.hpp"
#include "agent/process_stat.hpp"
#include "agent/small_file.hpp"
#include "common/duration.hpp"
#include "common/heartbeat_page.hpp"
#include "common/text.hpp"
#include "common/unique_fd.hpp"

#include <nlohmann/json.hpp>

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <set>
#include <span>
#include <thread>
#include <tuple>

namespace acc::agent::evidence {

namespace {

constexpr int kPageFd = 3;
constexpr Millis kAnswerTime{500};    // of the limit: to write the text
constexpr Millis kLetGoTime{300};     // until no process is held any more
constexpr Millis kPythonTime{3'000};  // at most, for the handlers of all processes
constexpr Millis kFlightTime{2'000};
constexpr std::size_t kMostPython = 1024 * 1024;
constexpr off_t kMostDump = off_t{64} * 1024 * 1024;

std::string read_all(int fd) {
  std::string text;
  char chunk[65536];
  for (;;) {
    const auto n = ::read(fd, chunk, sizeof chunk);
    if (n > 0)
      text.append(chunk, static_cast<std::size_t>(n));
    else if (n == 0 || errno != EINTR)
      return text;
  }
}

void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const auto n = ::write(fd, text.data(), text.size());
    if (n > 0) text.remove_prefix(static_cast<std::size_t>(n));
    if (n < 0 && errno != EINTR) return;
  }
}

// Of all ranks of a node it has to fit into one value of the store. FNV-1a: the same on all nodes.
void shorten(std::string& key) {
  if (key.empty()) return;
  std::uint64_t hash = 14'695'981'039'346'656'037U;
  for (const char c : key) hash = (hash ^ static_cast<unsigned char>(c)) * 1'099'511'628'211U;
  key = std::to_string(hash);
}

std::vector<RankEvidence> one_stack_for_each_place(std::vector<RankEvidence> ranks) {
  std::set<std::string> seen;
  for (auto& rank : ranks) {
    if (seen.insert(group_key(rank.summary)).second) continue;
    rank.python.clear();
    rank.native.clear();
  }
  return ranks;
}

class Collector {
 public:
  Collector(Request request, Instant deadline)
      : request_{std::move(request)}, deadline_{deadline} {}

  Answer collect() {
    look();
    ask_python();
    ask_flight_records();
    run_native_tools();
    let_go();
    Answer answer;
    for (auto& rank : ranks_) conclude(rank);
    answer.text = stacks_text(request_.facts, ranks_);
    answer.evidence = {request_.facts.node, one_stack_for_each_place(std::move(ranks_)),
                       request_.facts.tools, !request_.facts.without_native_tool.empty(),
                       request_.facts.finished};
    for (auto& rank : answer.evidence.ranks) shorten(rank.summary.stack_key);
    return answer;
  }

 private:
  // ---- facts ----

  void look() {
    heartbeat::Mapping page;
    if (request_.has_page) {
      if (auto opened = heartbeat::Mapping::open(kPageFd)) page = std::move(*opened);
    }
    const auto now_ns = heartbeat::coarse_now_ns();
    const auto is_suspect = [](const auto& worker) { return worker.is_silent || worker.is_stuck; };
    const bool has_suspect = std::ranges::any_of(request_.workers, is_suspect);
    for (const auto& worker : request_.workers) {
      RankEvidence rank;
      rank.worker_pid = worker.pid;
      if (page && worker.local_rank.value() < page.slots())
        rank.beat = heartbeat::read(page.slot(worker.local_rank.value()));
      look_at(rank, worker, now_ns);
      // A rank may wait for a process that it started: for a loader's, or a program.
      if (!has_suspect || is_suspect(worker)) rank.notes = descendant_words(rank.summary.pid);
      ranks_.push_back(std::move(rank));
    }
  }

  void look_at(RankEvidence& rank, const Request::Worker& worker, std::uint64_t now_ns) {
    auto& s = rank.summary;
    s.rank = worker.rank;
    s.local_rank = worker.local_rank;
    s.node = request_.facts.node;
    s.is_silent = worker.is_silent;
    s.is_overdue = worker.is_overdue;
    s.is_stuck = worker.is_stuck;
    s.pid = behind_shells(worker.pid);
    if (rank.beat) {
      const auto& beat = *rank.beat;
      const auto pid = static_cast<pid_t>(beat.pid);
      if (pid > 1 && is_of(pid, worker.pid)) s.pid = pid;
      s.has_beaten = beat.beats > 0;
      s.is_starting = beat.beats < heartbeat::kFirstBeats;
      s.step = beat.step;
      s.collectives = beat.collective.sequence;
      s.is_inside = beat.collective.is_inside;
      if (s.collectives > 0) s.operation = heartbeat::operation_name(beat.collective.operation);
      if (now_ns > beat.time_ns)
        rank.seconds_since_beat = static_cast<double>(now_ns - beat.time_ns) / 1e9;
    }
    held_.note(s.pid);
    const auto facts = read_proc(s.pid);
    s.state = facts.state;
    if (const pid_t tracer = s.state == 't' ? tracer_of(s.pid) : 0; tracer != 0)
      s.tracer =
          printable(read_process_stat(tracer).name, 32) + " (pid " + std::to_string(tracer) + ")";
    rank.command = facts.command;
    rank.wait_channel = facts.wait_channel;
    rank.system_call = facts.system_call;
  }

  // ---- no process stays stopped that wasn't ----

  void let_go() {
    const Instant until = clock_now() + kLetGoTime;
    // Looks in a row in which all ran: a stop that a killed debugger left takes a moment.
    const int enough = was_tool_ended_ ? 5 : 1;
    for (int quiet = 0; quiet < enough && clock_now() < until;) {
      quiet = held_.let_go() ? quiet + 1 : 0;
      if (quiet < enough) ::poll(nullptr, 0, 10);
    }
  }

  // ---- Python: its handler writes the stacks into memory that we can open ----

  struct Asked {
    RankEvidence* rank;
    UniqueFd file;
    off_t size = 0;
  };

  void ask_python() {
    std::vector<Asked> asked;
    for (auto& rank : ranks_) {
      auto file = send_stacks_signal(rank);
      if (file) asked.push_back({&rank, std::move(file)});
    }
    if (!asked.empty()) request_.facts.tools.emplace_back("faulthandler");
    const Instant until = std::min(clock_now() + kPythonTime, deadline_);
    int quiet = 0;  // looks in a row in which nothing grew
    while (!asked.empty() && clock_now() < until && quiet < 5) {
      ::poll(nullptr, 0, 10);
      bool is_quiet = true;
      for (auto& one : asked) {
        struct stat info {};
        ::fstat(one.file.get(), &info);
        // In state D no handler runs.
        const bool is_done = info.st_size > 0 || read_proc(one.rank->summary.pid).state == 'D';
        is_quiet = is_quiet && is_done && info.st_size == one.size;
        one.size = info.st_size;
      }
      quiet = is_quiet ? quiet + 1 : 0;
    }
    for (auto& one : asked) {
      std::string text(std::min<std::size_t>(static_cast<std::size_t>(one.size), kMostPython), 0);
      const auto n = ::pread(one.file.get(), text.data(), text.size(), 0);
      text.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
      one.rank->python = python_stacks(text);
      if (one.rank->python.empty())
        one.rank->notes.emplace_back("its Python handler wrote no stack in time");
    }
  }

  UniqueFd send_stacks_signal(RankEvidence& rank) const {
    if (!rank.beat || rank.beat->stacks_signal == 0) return {};
    const auto pid = rank.summary.pid;
    const auto signo = rank.beat->stacks_signal;
    // Without a handler it would end the process; a stopped one would write when it goes on.
    if (signo < static_cast<std::uint32_t>(SIGRTMIN) || !read_proc(pid).catches(signo) ||
        is_stop(rank.summary.state))
      return {};
    if (!may_signal(request_.facts.purpose, rank.summary)) {
      rank.notes.emplace_back(
          "before its first heartbeat no signal asks for its Python stack: torch takes it for an "
          "error (py-spy needs none)");
      return {};
    }
    auto [file, is_other_file, error] = open_stacks_memory(pid, rank.beat->stacks_fd);
    if (is_other_file)
      rank.notes.emplace_back(
          "its descriptor for Python stacks was closed, and is another file's now: no signal asks "
          "for them (py-spy needs none)");
    if (error != 0)
      rank.notes.push_back("its memory for Python stacks can't be opened here: " +
                           std::string{std::strerror(error)} +
                           ": no signal asks for them (py-spy needs none)");
    if (!file) return {};
    if (::ftruncate(file.get(), 0) != 0) return {};
    if (::kill(pid, static_cast<int>(signo)) != 0) return {};
    return std::move(file);
  }

  // ---- flight records ----

  void ask_flight_records() {
    for (auto& rank : ranks_) {
      const auto pid = rank.summary.pid;
      const auto folder = variable_of(pid, "ACC_FLIGHT_DIR");
      const bool is_ours = rank.summary.collectives > 0;  // a program that sends no heartbeats
      const bool may_ask = !is_stop(rank.summary.state) && read_proc(pid).catches(SIGUSR2) &&
                           (is_ours || may_signal(request_.facts.purpose, rank.summary));
      if (!folder.empty() && may_ask) {
        ::kill(pid, SIGUSR2);
        rank.notes.push_back("flight record: " + folder + "/flight-*-" + std::to_string(pid) +
                             ".jsonl");
      }
      const auto torch = variable_of(pid, "TORCH_NCCL_DEBUG_INFO_TEMP_FILE");
      const auto dump = (torch.empty() ? "/tmp/nccl_trace_rank_" : torch) +
                        std::to_string(rank.summary.rank.value());
      if (!is_dump_of(pid, dump)) continue;
      rank.notes.push_back("torch's flight record: " + dump);
      dumps_.emplace_back(dump, &rank);
    }
    read_flight_dumps();
  }

  // The folder may be one that all users write to.
  static bool is_dump_of(pid_t pid, const std::string& dump) {
    struct stat info {};
    struct stat process {};
    const auto proc = "/proc/" + std::to_string(pid);
    return ::lstat(dump.c_str(), &info) == 0 && ::stat(proc.c_str(), &process) == 0 &&
           S_ISREG(info.st_mode) && info.st_uid == process.st_uid && info.st_size <= kMostDump &&
           info.st_mtime >= started_at(pid);
  }

  /// By the wall clock, a second early. The times of /proc/PID are no measure: the kernel makes it
  /// anew after it was short of memory.
  static std::time_t started_at(pid_t pid) {
    timespec since_boot{};
    ::clock_gettime(CLOCK_BOOTTIME, &since_boot);
    const auto ticks = static_cast<std::uint64_t>(::sysconf(_SC_CLK_TCK));
    const auto started = static_cast<std::time_t>(read_process_stat(pid).start_time / ticks);
    return ::time(nullptr) - (since_boot.tv_sec - started) - 1;
  }

  void read_flight_dumps() {
    const auto python = dumps_.empty() ? std::string{} : find_tool("python3");
    if (python.empty()) return;
    std::vector<std::string> paths;
    for (const auto& [path, rank] : dumps_) paths.push_back(path);
    std::vector<ToolRun> runs{{flight_reader(python, paths), {}, false}};
    run_tools(runs, 1, std::min(clock_now() + kFlightTime, deadline_));
    for (auto& found : decode_flight(runs.front().output)) {
      const auto whose = std::ranges::find(dumps_, found.path, &Dump::first);
      if (whose != dumps_.end()) whose->second->flight = std::move(found.groups);
    }
  }

  // ---- native stacks, and Python's by py-spy ----

  void run_native_tools() {
    const auto tool =
        choose_native_tool(request_.facts.purpose, find_tool("eu-stack"), find_tool("gdb"));
    const bool has_tool = tool.kind != NativeTool::Kind::none;
    const auto py_spy = find_tool("py-spy");
    std::vector<ToolRun> runs;
    std::vector<std::pair<std::size_t, bool>> whose;  // rank, is of Python
    // The ranks that seem to be behind first: there may be no time for all.
    std::vector<std::size_t> order(ranks_.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    const auto waits = [&](std::size_t i) {
      const auto& python = ranks_[i].python;
      return !python.empty() &&
             (waits_for_others(python.front()) || is_in_backward(python.front()));
    };
    std::ranges::stable_sort(order, {}, [&](std::size_t i) {
      const auto& s = ranks_[i].summary;
      return std::tuple{s.is_inside, waits(i), s.has_beaten ? s.step + 1 : 0};
    });
    const bool has_suspect = std::ranges::any_of(order, waits) && !waits(order.front());
    for (const auto i : order) {
      const auto pid = ranks_[i].summary.pid;
      if (!py_spy.empty() && !has_main_python_stack(ranks_[i]) && is_python(pid)) {
        runs.push_back(
            {{py_spy, "dump", "--nonblocking", "--pid", std::to_string(pid)}, {}, false});
        whose.emplace_back(i, true);
      }
      if (!has_tool) continue;
      // A debugger would wait for it until the time is over.
      if (ranks_[i].summary.state == 'D' && read_proc(pid).state == 'D') {
        ranks_[i].notes.push_back(tool.name() + " can't read its stack in state D");
        continue;
      }
      runs.push_back({tool.words(pid), {}, false});
      whose.emplace_back(i, false);
    }
    if (has_tool)
      request_.facts.tools.push_back(tool.name());
    else
      request_.facts.without_native_tool.push_back(request_.facts.node);
    if (!py_spy.empty()) request_.facts.tools.emplace_back("py-spy");
    const Instant until = deadline_ - kAnswerTime - kTermTime - kKillTime - kLetGoTime;
    // A debugger of a large program takes seconds of a core: the first suspect has it for itself.
    const std::size_t alone = std::min<std::size_t>(has_suspect ? 1 : 0, runs.size());
    run_tools(std::span{runs}.first(alone), 1, until);
    run_tools(std::span{runs}.subspan(alone),
              std::max(2U, std::min(16U, std::thread::hardware_concurrency())), until);
    was_tool_ended_ = std::ranges::any_of(runs, [](const auto& run) { return !run.is_finished; });
    for (std::size_t k = 0; k < runs.size(); ++k)
      take_in(ranks_[whose[k].first], runs[k], whose[k].second);
  }

  static void take_in(RankEvidence& rank, const ToolRun& run, bool is_of_python) {
    auto found =
        is_of_python ? python_stacks(run.output) : native_stacks(run.output, rank.summary.pid);
    if (found.empty()) {
      const auto name = run.words.front().substr(run.words.front().rfind('/') + 1);
      const auto last = trim(std::string_view{run.output}.substr(0, run.output.find('\n')));
      rank.notes.push_back(run.is_finished ? name + " read no stack: " + printable(last, 160)
                                           : name + " wasn't finished in time");
    }
    // Threads that faulthandler wrote are more than nothing, also without the first one.
    if (!is_of_python)
      rank.native = std::move(found);
    else if (!found.empty())
      rank.python = std::move(found);
  }

  // ---- what the stacks say ----

  /// Of a hundred threads and more the first one may be missing.
  static bool has_main_python_stack(const RankEvidence& rank) {
    return !rank.python.empty() && !rank.python.front().frames.empty();
  }

  static void conclude(RankEvidence& rank) {
    auto& s = rank.summary;
    const auto working = static_cast<std::ptrdiff_t>(working_thread(rank.python));
    const auto first = rank.python.begin();
    if (working != 0) std::rotate(first, first + working, first + working + 1);
    const bool knows_python = has_main_python_stack(rank);
    const auto* const stack = knows_python           ? &rank.python.front()
                              : !rank.native.empty() ? &rank.native.front()
                                                     : nullptr;
    if (stack == nullptr) {
      s.stack_key = rank.wait_channel + "/" + rank.system_call;
      if (s.stack_key == "/") s.stack_key.clear();
      return;
    }
    // The native stack of Python's main thread shows the library in which it waits.
    const bool is_native_known = !rank.native.empty() && working == 0;
    const bool native_waits = is_native_known && waits_for_others(rank.native.front());
    s.waits_for_others =
        waits_for_others(*stack) || native_waits || (!is_native_known && is_in_backward(*stack));
    // A copy from a GPU waits for what is queued there, and of Python it is any line.
    const bool may_wait_for_gpu = !is_native_known && may_be_in_library(*stack);
    if (s.waits_for_others == false && may_wait_for_gpu && has_gpu_driver(s.pid))
      s.waits_for_others.reset();
    // Python's own frames are missing, and what they call needn't have names.
    const bool is_at_end = is_native_known && is_past_python(rank.native.front());
    const bool is_half_known =
        !knows_python && rank.beat && rank.beat->stacks_signal != 0 && !native_waits && !is_at_end;
    if (is_half_known) s.waits_for_others.reset();
    s.stack_key = key_of(*stack);
    // One line of Python may wait for others on one rank, and for something else on another.
    const bool is_seen_by_native =
        native_waits && !waits_for_others(*stack) && !is_in_backward(*stack);
    if (knows_python && is_seen_by_native) s.stack_key += "+";
    s.at = place_of(*stack);
    if (s.at.empty() && !rank.native.empty()) s.at = place_of(rank.native.front());
  }

  using Dump = std::pair<std::string, RankEvidence*>;

  Request request_;
  Instant deadline_;
  std::vector<RankEvidence> ranks_;
  std::vector<Dump> dumps_;
  HeldProcesses held_;
  bool was_tool_ended_ = false;
};

// What a program does is no other user's business; of log folders their owner decides.
mode_t mode_in(const std::string& folder) {
  struct stat info {};
  const bool is_for_all = ::stat(folder.c_str(), &info) != 0 || (info.st_mode & S_IWOTH) != 0;
  return is_for_all ? 0600 : 0644;
}

void save(Answer& answer, const std::vector<std::string>& files) {
  for (const auto& file : files) {
    const auto folder = std::filesystem::path{file}.parent_path().string();
    const auto written = write_whole_file(file, answer.text, 0, mode_in(folder));
    if (written) {
      answer.file = file;
      return;
    }
    answer.not_saved += (answer.not_saved.empty() ? "" : "; ") + written.error().what;
  }
}

}  // namespace

int collect_evidence() {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const Instant began = clock_now();
  auto request = decode_request(read_all(STDIN_FILENO));
  if (!request) return 2;
  const auto files = request->files;
  const Instant deadline = began + Millis{request->limit_ms};
  Answer answer;
  if (request->gathered.empty())
    answer = Collector{std::move(*request), deadline}.collect();
  else  // nothing is looked at
    answer.text = text_of_nodes(std::move(request->facts), std::move(request->gathered));
  save(answer, files);
  write_all(STDOUT_FILENO, encode(answer));
  return 0;
}

}  // namespace acc::agent::evidence
