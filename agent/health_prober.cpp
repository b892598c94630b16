#include "agent/health_prober.hpp"

#include "common/text.hpp"
#include "common/unique_fd.hpp"

#include <nlohmann/json.hpp>

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <string_view>

namespace acc::agent::health {

namespace {

using HealthJson = nlohmann::json;

constexpr std::size_t kMostOutput = std::size_t{1} << 20U;
constexpr std::size_t kShownOutput = 300;

std::string dump(const HealthJson& json) {
  return json.dump(-1, ' ', false, HealthJson::error_handler_t::replace);
}

HealthJson encode_readings(const std::vector<Reading>& readings) {
  auto list = HealthJson::array();
  for (const auto& one : readings)
    list.push_back({one.probe, one.subject, one.what, one.value, one.text});
  return list;
}

std::vector<Reading> decode_readings(const HealthJson& list) {
  std::vector<Reading> readings;
  for (const auto& one : list) {
    readings.push_back({one.at(0).get<std::string>(), one.at(1).get<std::string>(),
                        one.at(2).get<std::string>(), one.at(3).get<double>(),
                        one.at(4).get<std::string>()});
  }
  return readings;
}

void write_all_to(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
}

/// One probe that runs.
struct Running {
  const Probe* probe = nullptr;
  pid_t pid = -1;
  UniqueFd out;
  UniqueFd process{};  ///< a pidfd; none: its end is seen at the end of its output
  std::string text{};
  bool is_over = false;  ///< its output has ended
  std::optional<int> status{};
};

[[noreturn]] void be_probe(const Probe& probe, const ProbeSetting& setting, int out) {
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::setpgid(0, 0);
  if (probe.name == "command") {
    ::dup2(out, STDOUT_FILENO);
    ::dup2(out, STDERR_FILENO);
    ::execl("/bin/sh", "sh", "-c", probe.subject.c_str(), nullptr);
    ::_exit(127);
  }
  try {
    write_all_to(out, dump(encode_readings(measure(probe, setting))));
  } catch (const std::exception&) {
    ::_exit(1);
  }
  ::_exit(0);
}

Running start(const Probe& probe, const ProbeSetting& setting) {
  Running running;
  running.probe = &probe;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return running;
  running.out.reset(ends[0]);
  const UniqueFd child_end{ends[1]};
  running.pid = ::fork();
  if (running.pid == 0) be_probe(probe, setting, child_end.get());
  ::setpgid(running.pid, running.pid);
  if (running.pid < 0) {
    running.out.reset();
    return running;
  }
  running.process.reset(static_cast<int>(::syscall(SYS_pidfd_open, running.pid, 0U)));
  ::fcntl(running.out.get(), F_SETFL, O_NONBLOCK);
  return running;
}

/// False: there is no more now.
bool read_some(Running& running) {
  char bytes[4096];
  const ssize_t n = ::read(running.out.get(), bytes, sizeof bytes);
  if (n < 0 && errno == EINTR) return true;
  if (n < 0 && errno == EAGAIN) return false;
  if (n <= 0) {
    running.is_over = true;
    return false;
  }
  running.text.append(bytes, static_cast<std::size_t>(n));
  // Of a command the end counts.
  if (running.text.size() > kMostOutput) running.text.erase(0, kMostOutput / 2);
  return true;
}

// The process has ended and isn't reaped. What it has started and what keeps its output open, maybe
// writing for ever, counts no more.
void end_output(Running& running) {
  constexpr int kMostReads = 256;
  int reads = 0;
  while (read_some(running) && ++reads < kMostReads) {
  }
  if (!running.is_over) ::kill(-running.pid, SIGKILL);
  running.is_over = true;
}

bool is_stopped(int stop_fd) {
  pollfd stop{stop_fd, POLLIN, 0};
  return stop_fd >= 0 && ::poll(&stop, 1, 0) > 0;
}

// A child may close its output and go on: it has until then, too.
void reap(Running& running, Instant until, int stop_fd) {
  constexpr int kReapPause = 2;
  for (int status = 0; running.pid > 0 && !running.status;) {
    if (::waitpid(running.pid, &status, WNOHANG) == running.pid) {
      running.status = status;
    } else if (!running.is_over || clock_now() >= until || is_stopped(stop_fd)) {
      running.is_over = false;
      return;
    } else {
      ::poll(nullptr, 0, kReapPause);
    }
  }
}

void wait_for(std::vector<Running>& all, Instant until, int stop_fd) {
  while (!is_stopped(stop_fd)) {
    std::vector<pollfd> fds;
    std::vector<Running*> waiting;
    for (auto& one : all) {
      if (one.is_over || !one.out) continue;
      fds.push_back({one.out.get(), POLLIN, 0});
      fds.push_back({one.process.get(), POLLIN, 0});  // a negative one is passed over
      waiting.push_back(&one);
    }
    if (fds.empty()) return;
    const auto left = std::chrono::ceil<Millis>(until - clock_now()).count();
    if (left <= 0) return;
    fds.push_back({stop_fd, POLLIN, 0});
    if (::poll(fds.data(), fds.size(), static_cast<int>(left)) <= 0) continue;
    for (std::size_t i = 0; i < waiting.size(); ++i) {
      if (fds[2 * i].revents != 0) read_some(*waiting[i]);
      if (fds[2 * i + 1].revents != 0) end_output(*waiting[i]);
    }
  }
}

std::string last_line(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  return printable(text.substr(text.rfind('\n') + 1), kShownOutput);  // npos + 1 is 0
}

ProbeRun result_of(const Running& running) {
  const auto& probe = *running.probe;
  const bool is_command = probe.name == "command";
  ProbeRun run{probe.name, is_command ? "" : probe.subject, ProbeEnd::done, {}};
  if (!running.status) {
    run.end = running.pid > 0 ? ProbeEnd::hung : ProbeEnd::crashed;
    return run;
  }
  if (is_command) {
    const int status = *running.status;
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    run.readings = {
        {"command", "", "exit_code", static_cast<double>(code), last_line(running.text)}};
    return run;
  }
  const auto json = HealthJson::parse(running.text, nullptr, false);
  if (json.is_discarded() || *running.status != 0) {
    run.end = ProbeEnd::crashed;
  } else {
    run.readings = decode_readings(json);
  }
  return run;
}

}  // namespace

std::string encode(const ProbeRequest& request) {
  auto probes = HealthJson::array();
  for (const auto& one : request.probes) probes.push_back({one.name, one.subject, one.use});
  return dump({{"probes", probes},
               {"patience_ms", request.patience.count()},
               {"root", request.setting.root},
               {"nvml", request.setting.nvml},
               {"kernel_log_from_us", request.setting.kernel_log_from_us}});
}

std::optional<ProbeRequest> decode_request(std::string_view text) {
  try {
    const auto json = HealthJson::parse(text);
    ProbeRequest request;
    for (const auto& one : json.at("probes"))
      request.probes.push_back({one.at(0), one.at(1), one.at(2)});
    request.patience = Millis{json.at("patience_ms").get<std::int64_t>()};
    request.setting = {json.at("root"), json.at("nvml"), json.at("kernel_log_from_us")};
    return request;
  } catch (const HealthJson::exception&) {
    return std::nullopt;
  }
}

std::string encode(const std::vector<ProbeRun>& runs) {
  auto list = HealthJson::array();
  for (const auto& run : runs) {
    list.push_back(
        {run.probe, run.subject, static_cast<int>(run.end), encode_readings(run.readings)});
  }
  return dump(list);
}

std::optional<std::vector<ProbeRun>> decode_runs(std::string_view text) {
  try {
    std::vector<ProbeRun> runs;
    for (const auto& one : HealthJson::parse(text)) {
      const int end = one.at(2);
      if (end < 0 || end > static_cast<int>(ProbeEnd::crashed)) return std::nullopt;
      runs.push_back(
          {one.at(0), one.at(1), static_cast<ProbeEnd>(end), decode_readings(one.at(3))});
    }
    return runs;
  } catch (const HealthJson::exception&) {
    return std::nullopt;
  }
}

std::vector<ProbeRun> run_probes(const ProbeRequest& request, int stop_fd) {
  const Instant until = clock_now() + request.patience;
  std::vector<Running> all;
  all.reserve(request.probes.size());
  for (const auto& probe : request.probes) all.push_back(start(probe, request.setting));
  wait_for(all, until, stop_fd);
  std::vector<ProbeRun> runs;
  for (auto& one : all) {
    reap(one, until, stop_fd);
    // One that hangs in the kernel dies when that lets it go; it isn't waited for.
    if (one.pid > 0 && (!one.status || !one.is_over)) ::kill(-one.pid, SIGKILL);
    runs.push_back(result_of(one));
  }
  if (is_stopped(stop_fd)) return {};
  return runs;
}

std::optional<int> prober_main(int argc, char** argv) {
  if (argc != 2 || std::string_view{argv[0]} != kProberName) return std::nullopt;
  ::prctl(PR_SET_NAME, kProberName);
  // Of the agent, when it gives the check up, and of the kernel, when the guardian dies: the
  // probes' groups must go first, or what a command has started would be left.
  sigset_t stop;
  ::sigemptyset(&stop);
  ::sigaddset(&stop, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &stop, nullptr);
  const UniqueFd stop_fd{::signalfd(-1, &stop, SFD_CLOEXEC | SFD_NONBLOCK)};
  const auto request = decode_request(argv[1]);
  if (!request) return 2;
  write_all_to(STDOUT_FILENO, encode(run_probes(*request, stop_fd.get())));
  return 0;
}

}  // namespace acc::agent::health
