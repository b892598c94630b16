// Plays a worker in tests. Its words are carried out in order; `rank=N` and `attempt=N` make the
// words up to the next `any` hold for that rank or attempt only:
//
//   fake_worker mark=up rank=1 attempt=0 after=50ms signal=KILL any hold
//
// clang-format off
//   out=TEXT err=TEXT    a line to stdout or stderr
//   raw=TEXT             to stdout without a newline
//   lines=N              N numbered lines to stdout
//   after=DURATION       waits
//   mark=WORD            appends "WORD rank attempt pid" to $FAKE_EVENTS
//   all=WORD             waits until all ranks of this attempt have marked WORD
//   exit=N               ends with that code
//   signal=NAME          sends itself that signal
//   ignore=NAME          ignores that signal
//   on=NAME:N            exits with N at that signal
//   note=NAME            appends got_NAME to $FAKE_EVENTS at that signal, and goes on
//   child                a child in our group that sleeps for ever
//   escape               a double-forked one in its own session; escape_stubborn: which also ignores SIGTERM
//   leave=N              N children in our group that sleep for ever; leave_stubborn: and ignore SIGTERM
//   hold_pipe=DURATION   a child in its own session that keeps our stdout that long
//   memory=MIB           touches that much memory
//   hold                 sleeps for ever
//   lost=DURATION        asks the agent who was lost: a line "lost RANK PID HOW" for each
// clang-format on
#include "common/agent_client.hpp"
#include "common/duration.hpp"
#include "common/exit_status.hpp"
#include "common/text.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>

namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "-";
}

/// A line in a buffer of its own: a signal may interrupt malloc.
class MarkLine {
 public:
  void add(std::string_view text) {
    const auto taken = std::min(text.size(), sizeof bytes_ - size_);
    std::memcpy(bytes_ + size_, text.data(), taken);
    size_ += taken;
  }
  void add_number(int number) {
    char digits[16];
    add({digits, std::to_chars(digits, digits + sizeof digits, number).ptr});
  }
  void add_variable(const char* name) {
    const char* value = std::getenv(name);
    add(value != nullptr ? value : "-");
  }
  [[nodiscard]] std::string_view text() const { return {bytes_, size_}; }

 private:
  char bytes_[256];
  std::size_t size_ = 0;
};

/// Also from signal handlers.
void mark(std::string_view word) {
  const char* path = std::getenv("FAKE_EVENTS");
  if (path == nullptr) return;
  MarkLine line;
  line.add(word);
  for (const char* name : {"RANK", "ACC_ROUND"}) {
    line.add(" ");
    line.add_variable(name);
  }
  line.add(" ");
  line.add_number(::getpid());
  line.add("\n");
  const int fd = ::open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (::write(fd, line.text().data(), line.text().size()) < 0) std::abort();
  ::close(fd);
}

int marked(const std::string& word) {
  std::ifstream events{variable("FAKE_EVENTS")};
  std::string line;
  int count = 0;
  while (std::getline(events, line)) {
    const auto parts = acc::split(line, ' ');
    if (parts.size() == 4 && parts[0] == word && parts[2] == variable("ACC_ROUND")) ++count;
  }
  return count;
}

void wait_for_all(const std::string& word) {
  const int ranks = acc::parse_number<int>(variable("WORLD_SIZE")).value();
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds{60};
  while (marked(word) < ranks) {
    if (std::chrono::steady_clock::now() > end) std::abort();
    std::this_thread::sleep_for(std::chrono::milliseconds{2});
  }
}

int exit_at[32];  // by signal number
void exit_on_signal(int signo) { ::_exit(exit_at[signo]); }
char got_signal[32][16];  // by signal number: "got_SIGTERM"
void note_signal(int signo) {
  const int error = errno;
  mark(got_signal[signo]);
  errno = error;
}
void note(int signo) {
  ("got_" + acc::signal_name(signo)).copy(got_signal[signo], sizeof got_signal[signo] - 1);
  ::signal(signo, note_signal);
}

[[noreturn]] void hold() {
  for (;;) ::pause();
}

void escape(bool stubborn) {
  if (::fork() != 0) return;
  if (::fork() != 0) ::_exit(0);
  ::setsid();
  if (stubborn) ::signal(SIGTERM, SIG_IGN);
  mark("escaped");
  hold();
}

void hold_pipe(acc::Millis time) {
  if (::fork() != 0) return;
  ::setsid();
  ::signal(SIGTERM, SIG_IGN);
  mark("holder");
  std::this_thread::sleep_for(time);
  ::_exit(0);
}

void fill_memory(std::size_t mebibytes) {
  const std::size_t size = mebibytes << 20U;
  void* const memory =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) ::_exit(12);
  std::memset(memory, 1, size);
}

void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const auto n = ::write(fd, text.data(), text.size());
    if (n < 0) ::_exit(9);
    text.remove_prefix(static_cast<std::size_t>(n));
  }
}

void numbered_lines(long count) {
  for (long i = 0; i < count; ++i)
    write_all(1, "line " + variable("RANK") + ' ' + std::to_string(i) + '\n');
}

void ask_who_is_lost(acc::Millis patience) {
  auto agent = acc::AgentClient::from_environment();
  const auto lost = agent ? agent->lost(patience) : agent.error();
  if (!lost) return write_all(1, "lost: " + lost.error().what + '\n');
  for (const auto& one : *lost)
    write_all(1, "lost " + std::to_string(one.rank.value()) + ' ' + std::to_string(one.pid) + ' ' +
                     one.how + '\n');
  mark("told");
}

void carry_out(std::string_view key, const std::string& value) {
  const int number = acc::parse_number<int>(value).value_or(0);
  if (key == "out")
    write_all(1, value + '\n');
  else if (key == "err")
    write_all(2, value + '\n');
  else if (key == "raw")
    write_all(1, value);
  else if (key == "lines")
    numbered_lines(number);
  else if (key == "after")
    std::this_thread::sleep_for(acc::parse_duration(value).value());
  else if (key == "exit")
    std::exit(number);
  else if (key == "signal")
    ::kill(::getpid(), acc::signal_number(value));
  else if (key == "ignore")
    ::signal(acc::signal_number(value), SIG_IGN);
  else if (key == "note")
    note(acc::signal_number(value));
  else if (key == "on") {
    const auto parts = acc::split(value, ':');
    const int signo = acc::signal_number(parts.at(0));
    exit_at[signo] = acc::parse_number<int>(parts.at(1)).value();
    ::signal(signo, exit_on_signal);
  } else if (key == "mark")
    mark(value);
  else if (key == "all")
    wait_for_all(value);
  else if (key == "child") {
    if (::fork() == 0) hold();
  } else if (key == "leave" || key == "leave_stubborn") {
    if (key == "leave_stubborn") ::signal(SIGTERM, SIG_IGN);
    for (int i = 0; i < number; ++i) {
      if (::fork() == 0) hold();
    }
  } else if (key == "escape")
    escape(false);
  else if (key == "escape_stubborn")
    escape(true);
  else if (key == "hold_pipe")
    hold_pipe(acc::parse_duration(value).value());
  else if (key == "memory")
    fill_memory(static_cast<std::size_t>(number));
  else if (key == "lost")
    ask_who_is_lost(acc::parse_duration(value).value());
  else if (key == "hold")
    hold();
  else {
    std::fprintf(stderr, "fake_worker: unknown word '%.*s'\n", static_cast<int>(key.size()),
                 key.data());
    std::exit(64);
  }
}

}  // namespace

int main(int argc, char** argv) {
  bool applies = true;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const auto equals = word.find('=');
    const auto key = word.substr(0, equals);
    const std::string value{equals == std::string_view::npos ? std::string_view{}
                                                             : word.substr(equals + 1)};
    if (key == "any")
      applies = true;
    else if (key == "rank")
      applies = applies && variable("RANK") == value;
    else if (key == "attempt")
      applies = applies && variable("ACC_ROUND") == value;
    else if (applies)
      carry_out(key, value);
  }
  return 0;
}
