#include "agent/gpu_watch.hpp"

#include "common/poll_now.hpp"

#include <boost/asio/buffer.hpp>

#include <fcntl.h>
#include <linux/sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

namespace acc::agent {

namespace {

constexpr Millis kKeptFor{10'000};
constexpr Millis kFresh{5'000};  // a sample; there is one a second
constexpr Millis kTryAgainAfter{60'000};
constexpr std::size_t kLongestSample = std::size_t{1} << 20U;

bool may_have_gpus() {
  const char* library = std::getenv("ACC_NVML_LIBRARY");
  return (library != nullptr && *library != '\0') || ::access("/dev/nvidiactl", F_OK) == 0;
}

// A copy of this process, which may have threads: system calls only. A child of the guardian, as a
// prober is (health_check.hpp): a round is over when the agent has no child left.
[[noreturn]] void become_sampler(int out, char** argv) {
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null >= 0) {
    ::dup2(null, STDIN_FILENO);
    ::dup2(null, STDERR_FILENO);
  }
  ::dup2(out, STDOUT_FILENO);
  ::syscall(SYS_close_range, 3U, ~0U, 4U /* CLOSE_RANGE_CLOEXEC */);
  ::execv("/proc/self/exe", argv);
  ::_exit(127);
}

}  // namespace

GpuWatch::GpuWatch(boost::asio::io_context& io) : out_{io}, idle_{io}, has_gpus_{may_have_gpus()} {}

GpuWatch::~GpuWatch() { stop(); }

const std::vector<gpu::Sample>& GpuWatch::ask() {
  if (!has_gpus_) return samples_;
  asked_ = clock_now();
  if (!out_.is_open() && asked_ >= not_before_) start();
  if (asked_ - sampled_ > kFresh) samples_.clear();
  return samples_;
}

void GpuWatch::start() {
  // A call to a driver that hangs isn't ended by SIGKILL: one such sampler is enough.
  if (sampler_ && !is_ready(sampler_.get(), POLLIN)) return;
  not_before_ = clock_now() + kTryAgainAfter;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return;
  UniqueFd read_end{ends[0]};
  const UniqueFd write_end{ends[1]};
  std::string name = gpu::kSamplerName;
  char* argv[] = {name.data(), nullptr};
  int pidfd = -1;
  const auto flags = static_cast<unsigned long>(CLONE_PARENT | CLONE_PIDFD | SIGCHLD);
  const auto pid = ::syscall(SYS_clone, flags, nullptr, &pidfd, nullptr, nullptr);
  if (pid == 0) become_sampler(write_end.get(), argv);
  if (pid < 0) return;
  sampler_.reset(pidfd);
  ::fcntl(read_end.get(), F_SETFL, O_NONBLOCK);
  out_.assign(read_end.release());
  read_on();
  stop_when_idle();
}

void GpuWatch::read_on() {
  out_.async_read_some(boost::asio::buffer(bytes_),
                       alive_.bind([this](boost::system::error_code failed, std::size_t n) {
                         if (failed == boost::asio::error::operation_aborted) return;
                         take(n);
                         if (failed || text_.size() > kLongestSample) return stop();
                         read_on();
                       }));
}

void GpuWatch::take(std::size_t bytes) {
  text_.append(bytes_.data(), bytes);
  for (auto end = text_.find('\n'); end != std::string::npos; end = text_.find('\n')) {
    if (auto samples = gpu::decode_samples(std::string_view{text_}.substr(0, end)))
      samples_ = std::move(*samples);
    sampled_ = clock_now();
    text_.erase(0, end + 1);
    not_before_ = Instant{};  // it works
  }
}

void GpuWatch::stop_when_idle() {
  idle_.expires_at(asked_ + kKeptFor);
  idle_.async_wait(alive_.bind([this](boost::system::error_code cancelled) {
    if (cancelled) return;
    clock_now() >= asked_ + kKeptFor ? stop() : stop_when_idle();
  }));
}

void GpuWatch::stop() {
  idle_.cancel();
  boost::system::error_code ignored;
  if (out_.is_open()) out_.close(ignored);
  // The guardian reaps it.
  if (sampler_) ::syscall(SYS_pidfd_send_signal, sampler_.get(), SIGKILL, nullptr, 0U);
  text_.clear();
  samples_.clear();
}

}  // namespace acc::agent
