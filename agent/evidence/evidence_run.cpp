#include "agent/evidence/evidence_run.hpp"

#include "agent/evidence/collector.hpp"
#include "common/duration.hpp"
#include "common/unique_fd.hpp"

#include <fcntl.h>
#include <linux/sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <string>
#include <utility>

namespace acc::agent::evidence {

namespace {

constexpr Millis kAfterLimit{1'000};
// A debugger that reads a large program takes a while until it heeds SIGTERM.
constexpr Millis kLetGoPatience{10'000};
constexpr Millis kLetGoLook{50};
constexpr int kQuietLooks = 5;
constexpr std::size_t kMostAnswer = 64 * 1024 * 1024;

UniqueFd memory_with(const std::string& text) {
  UniqueFd fd{::memfd_create("acc-evidence", MFD_CLOEXEC)};
  if (!fd || ::write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    return {};
  ::lseek(fd.get(), 0, SEEK_SET);
  return fd;
}

struct Files {
  int in;
  int out;
  int page;  ///< -1: none
};

// A copy of this process, which may have threads: system calls only.
[[noreturn]] void become_collector(Files files, char* const* words) {
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::setpgid(0, 0);
  ::dup2(files.in, STDIN_FILENO);
  ::dup2(files.out, STDOUT_FILENO);
  const int null = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (null >= 0) ::dup2(null, STDERR_FILENO);
  constexpr int kPage = 3;
  if (files.page >= 0) ::dup2(files.page, kPage);
  ::syscall(SYS_close_range, files.page >= 0 ? kPage + 1U : kPage + 0U, ~0U,
            4U /* CLOSE_RANGE_CLOEXEC */);
  ::execv("/proc/self/exe", words);
  ::_exit(127);
}

// Not by posix_spawn, which waits until the program is opened: its server may be away, and be why
// the ranks hang.
UniqueFd start_collector(Files files) {
  std::string name = "acc-launch";
  std::string word{kCollectWord};
  const std::array<char*, 3> words{name.data(), word.data(), nullptr};
  int pidfd = -1;
  const auto flags = static_cast<unsigned long>(CLONE_PIDFD | SIGCHLD);
  const auto pid = ::syscall(SYS_clone, flags, nullptr, &pidfd, nullptr, nullptr);
  if (pid == 0) become_collector(files, words.data());
  return UniqueFd{pid < 0 ? -1 : pidfd};
}

}  // namespace

EvidenceRun::EvidenceRun(boost::asio::io_context& io) : out_{io}, deadline_{io}, look_{io} {}
EvidenceRun::~EvidenceRun() { cancel(); }

void EvidenceRun::start(const Request& request, int page, Done done) {
  end_process();
  look_.cancel();  // what is still held is let go after this run
  for (const auto& worker : request.workers) held_.note_with_children(worker.pid);
  done_ = std::move(done);
  text_.clear();
  int ends[2] = {-1, -1};
  const auto in = memory_with(encode(request));
  if (!in || ::pipe2(ends, O_CLOEXEC) != 0)
    return finish(system_error(errno, "start the collection of stacks"));
  UniqueFd out{ends[0]};
  const UniqueFd its_out{ends[1]};
  ::fcntl(out.get(), F_SETFL, O_NONBLOCK);
  // Above 3, where the child's own descriptors go.
  const UniqueFd high_page{page >= 0 ? ::fcntl(page, F_DUPFD_CLOEXEC, 4) : -1};
  process_ = start_collector({in.get(), its_out.get(), high_page.get()});
  if (!process_) return finish(system_error(errno, "start the collection of stacks"));
  out_.assign(out.release());
  deadline_.expires_after(Millis{request.limit_ms} + kAfterLimit);
  deadline_.async_wait(alive_.bind([this](boost::system::error_code cancelled) {
    if (!cancelled) finish(Error{Errc::timed_out, "the stacks could not be collected in time"});
  }));
  take_in();
}

void EvidenceRun::take_in() {
  std::array<char, 65536> chunk;
  while (done_) {
    const auto n = ::read(out_.native_handle(), chunk.data(), chunk.size());
    if (n > 0 && text_.size() < kMostAnswer) {
      text_.append(chunk.data(), static_cast<std::size_t>(n));
    } else if (n < 0 && errno == EAGAIN) {
      out_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                      alive_.bind([this](boost::system::error_code error) {
                        if (!error) take_in();
                      }));
      return;
    } else if (n >= 0 || errno != EINTR) {
      return finish(decode_answer(text_));
    }
  }
}

void EvidenceRun::finish(Result<Answer> answer) {
  auto done = std::exchange(done_, nullptr);
  // Before anybody is told: from then on a worker may be stopped by a user.
  if (!process_ || (answer && held_.let_go())) {
    end_process();
    held_.clear();
  } else {
    cancel();
  }
  if (done) done(std::move(answer));
}

// It is reaped with the orphans, by the group of workers; its own children end with it.
void EvidenceRun::cancel() {
  const bool was_running = static_cast<bool>(process_);
  end_process();
  if (!was_running) return;
  quiet_ = 0;
  let_go_until_ = clock_now() + kLetGoPatience;
  let_go();
}

void EvidenceRun::cancel_for_stop() {
  end_process();
  held_.clear();
  look_.cancel();
}

// The collecting process does the same, unless it was ended before it could.
void EvidenceRun::let_go() {
  quiet_ = held_.let_go() ? quiet_ + 1 : 0;
  if (quiet_ >= kQuietLooks || clock_now() >= let_go_until_) return held_.clear();
  look_.expires_after(kLetGoLook);
  look_.async_wait(alive_.bind([this](boost::system::error_code cancelled) {
    if (!cancelled) let_go();
  }));
}

void EvidenceRun::end_process() {
  done_ = nullptr;
  if (process_) ::syscall(SYS_pidfd_send_signal, process_.get(), SIGKILL, nullptr, 0U);
  process_.reset();
  boost::system::error_code ignored;
  out_.close(ignored);
  deadline_.cancel();
}

}  // namespace acc::agent::evidence
