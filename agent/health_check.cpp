#include "agent/health_check.hpp"

#include "common/log.hpp"

#include <boost/asio/buffer.hpp>

#include <fcntl.h>
#include <linux/sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <utility>

namespace acc::agent {

namespace {

// Beyond the probes' own time: the prober reports those that hang.
constexpr Millis kProberMargin{1'000};
constexpr std::size_t kMostAnswer = std::size_t{1} << 20U;
// A probe that hung isn't waited for again in each round.
constexpr Millis kSkipHung{std::chrono::minutes{10}};

std::string health_variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::int64_t kernel_log_clock_us() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000 + now.tv_nsec / 1'000;
}

// A copy of this process, which may have threads: system calls only.
[[noreturn]] void become_prober(int out, char** argv) {
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null >= 0) ::dup2(null, STDIN_FILENO);
  ::dup2(out, STDOUT_FILENO);
  ::syscall(SYS_close_range, 3U, ~0U, 4U /* CLOSE_RANGE_CLOEXEC */);
  ::execv("/proc/self/exe", argv);
  ::_exit(127);
}

}  // namespace

std::vector<health::Probe> probes_of(const JobPlan& plan) {
  std::vector<health::Probe> probes;
  const auto add_folder = [&](const std::string& folder, const char* use) {
    if (!folder.empty()) probes.push_back({"disk", folder, use});
  };
  const auto& progress = plan.progress_file;
  add_folder(plan.output.log_dir, "logs");
  add_folder(plan.health.checkpoint_folder, "checkpoints");
  if (!progress.empty()) {
    const auto folder = std::filesystem::path{progress}.parent_path().string();
    add_folder(folder.empty() ? "." : folder, "checkpoints");
  }
  for (const auto* name : {"memory", "shm", "cpu", "name", "net", "gpu"})
    probes.push_back({name, "", ""});
  if (!plan.health.command.empty()) probes.push_back({"command", plan.health.command, ""});
  return probes;
}

HealthCheck::HealthCheck(boost::asio::io_context& io, const HealthPlan& plan, bool has_other_nodes,
                         std::vector<health::Probe> probes, Hooks hooks)
    : plan_{plan},
      has_other_nodes_{has_other_nodes},
      probes_{std::move(probes)},
      hooks_{std::move(hooks)},
      began_us_{kernel_log_clock_us()},
      out_{io},
      deadline_{io} {}

HealthCheck::~HealthCheck() { cancel(); }

health::ProbeRequest HealthCheck::request_now() const {
  health::ProbeRequest request;
  const auto now = clock_now();
  std::ranges::copy_if(probes_, std::back_inserter(request.probes), [&](const auto& probe) {
    const auto subject = probe.name == "command" ? std::string{} : probe.subject;
    const auto found = skip_until_.find({probe.name, subject});
    return found == skip_until_.end() || found->second <= now;
  });
  request.patience = plan_.patience;
  request.setting = {health_variable("ACC_HEALTH_ROOT"), health_variable("ACC_NVML_LIBRARY"),
                     began_us_};
  return request;
}

void HealthCheck::check(bool is_before_round, std::function<void(const std::string&)> done) {
  cancel();
  is_before_round_ = is_before_round;
  done_ = std::move(done);
  deadline_.expires_after(plan_.patience + kProberMargin);
  deadline_.async_wait(alive_.bind([this, number = number_](boost::system::error_code cancelled) {
    if (cancelled || number != number_) return;
    log::warn("health_prober_hangs", {{"patience", describe(plan_.patience)}});
    finish({{"prober", "", health::ProbeEnd::hung, {}}});
  }));
  // Then without a check: what the round needs, it will miss itself.
  if (!start(request_now())) finish({{"prober", "", health::ProbeEnd::crashed, {}}});
}

bool HealthCheck::start(const health::ProbeRequest& request) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return false;
  UniqueFd read_end{ends[0]};
  const UniqueFd write_end{ends[1]};
  std::string name = health::kProberName;
  std::string words = encode(request);
  char* argv[] = {name.data(), words.data(), nullptr};
  int pidfd = -1;
  const auto flags = static_cast<unsigned long>(CLONE_PARENT | CLONE_PIDFD | SIGCHLD);
  const auto pid = ::syscall(SYS_clone, flags, nullptr, &pidfd, nullptr, nullptr);
  if (pid == 0) become_prober(write_end.get(), argv);
  if (pid < 0) return false;
  prober_.reset(pidfd);
  ::fcntl(read_end.get(), F_SETFL, O_NONBLOCK);
  out_.assign(read_end.release());
  read_on();
  return true;
}

void HealthCheck::read_on() {
  out_.async_read_some(
      boost::asio::buffer(bytes_),
      alive_.bind([this, number = number_](boost::system::error_code failed, std::size_t n) {
        if (number != number_ || failed == boost::asio::error::operation_aborted) return;
        text_.append(bytes_.data(), n);
        if (!failed && text_.size() < kMostAnswer) return read_on();
        auto runs = health::decode_runs(text_);
        finish(runs ? std::move(*runs)
                    : std::vector<health::ProbeRun>{{"prober", "", health::ProbeEnd::crashed, {}}});
      }));
}

void HealthCheck::finish(std::vector<health::ProbeRun> runs) {
  forget_prober(SIGTERM);
  for (const auto& run : runs) {
    const std::pair key{run.probe, run.subject};
    if (run.end == health::ProbeEnd::hung) {
      skip_until_[key] = clock_now() + kSkipHung;
    } else {
      skip_until_.erase(key);
    }
    if (!has_baseline_) baseline_.insert(baseline_.end(), run.readings.begin(), run.readings.end());
  }
  auto found = health::judge(runs, baseline_, {is_before_round_, has_other_nodes_, plan_.patience});
  has_baseline_ = true;
  std::vector<health::Finding> news;
  for (const auto& one : found) {
    const bool is_known = std::ranges::any_of(findings_, [&](const auto& old) {
      return old.probe == one.probe && old.subject == one.subject && old.severity == one.severity;
    });
    if (!is_known) news.push_back(one);
  }
  findings_ = std::move(found);
  const auto done = std::exchange(done_, nullptr);
  const Alive::Watch watch = alive_.watch();
  if (!news.empty() && hooks_.on_news) hooks_.on_news(news);
  if (watch.is_alive() && done) done(health::unfit_reason(findings_));
}

// The guardian reaps it.
void HealthCheck::forget_prober(int signo) {
  ++number_;
  deadline_.cancel();
  boost::system::error_code ignored;
  if (out_.is_open()) out_.close(ignored);
  if (prober_) ::syscall(SYS_pidfd_send_signal, prober_.get(), signo, nullptr, 0U);
  prober_.reset();
  text_.clear();
}

void HealthCheck::cancel() {
  forget_prober(SIGTERM);
  done_ = nullptr;
}

}  // namespace acc::agent
