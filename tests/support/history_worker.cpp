// A worker that writes down its life, so that a checker can prove afterwards that no two rounds
// overlapped and that ranks were a bijection (tests/chaos/history.py):
//
//   history_worker [run=DURATION] [crash=DURATION] [every=DURATION] [linger=DURATION]
//                  [ckpt=DURATION]
//
// Appends to $HISTORY_DIR/<node>.<round>.<rank>.<pid>, one line each, written at once:
//
//   start   NANOSECONDS round= rank= world= local= nodes= node= pid= restarts= master= port=
//   overlap NANOSECONDS ROUND…      processes of these other rounds live at this moment
//   alive   NANOSECONDS             every 20 ms (`every=`)
//   signal  NANOSECONDS NUMBER      USR1, USR2, HUP, TERM, INT came
//   wrote   NANOSECONDS             rank 0, each `ckpt=`: it asked its agent and may make a
//                                   checkpoint valid (docs/worker-socket.md, `current`)
//   refused NANOSECONDS             … and may not, or nobody could tell
//   end     NANOSECONDS REASON
//
// Times are CLOCK_MONOTONIC by system call, which all network namespaces of a machine share, and
// which no preloaded library moves. `overlap` is exact:
// each process holds a shared lock on its round's file for as long as the kernel lets it live, and
// tries those of the other rounds with its first instructions.
#include "common/agent_client.hpp"
#include "common/duration.hpp"
#include "common/text.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

namespace {

constexpr int kWatched[] = {SIGUSR1, SIGUSR2, SIGHUP, SIGTERM, SIGINT};

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "-";
}

long long nanoseconds() {
  timespec now{};
  ::syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

class Diary {
 public:
  explicit Diary(const std::string& path)
      : file_{::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666)} {
    if (file_ < 0) std::exit(73);
  }
  void write(const std::string& word, long long at, const std::string& rest = "") const {
    const std::string line =
        word + ' ' + std::to_string(at) + (rest.empty() ? "" : ' ' + rest) + '\n';
    if (::write(file_, line.data(), line.size()) < 0) std::exit(73);
  }

 private:
  int file_;
};

struct flock whole_file(short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return lock;
}

/// Locks our round for our life time, and finds the other rounds of which a process lives. Asking
/// (F_OFD_GETLK) takes no lock, so that two who ask at once don't see each other.
std::string lock_and_look(const std::string& folder, const std::string& round) {
  const std::string mine = "lock." + round;
  const int held = ::open((folder + '/' + mine).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  auto shared = whole_file(F_RDLCK);
  if (held < 0 || ::fcntl(held, F_OFD_SETLK, &shared) != 0) std::exit(73);
  std::string others;
  DIR* const entries = ::opendir(folder.c_str());
  if (entries == nullptr) std::exit(73);
  while (const dirent* entry = ::readdir(entries)) {
    const std::string name = static_cast<const char*>(entry->d_name);
    if (!name.starts_with("lock.") || name == mine) continue;
    const int other = ::open((folder + '/' + name).c_str(), O_RDWR | O_CLOEXEC);
    auto asked = whole_file(F_WRLCK);
    if (other >= 0 && ::fcntl(other, F_OFD_GETLK, &asked) == 0 && asked.l_type != F_UNLCK)
      others += (others.empty() ? "" : " ") + name.substr(5);
    if (other >= 0) ::close(other);
  }
  ::closedir(entries);
  return others;
}

struct Plan {
  acc::Millis every{20};
  std::optional<acc::Millis> run, crash;
  acc::Millis linger{0};
  std::optional<acc::Millis> ckpt;
};

Plan parse(int argc, char** argv) {
  Plan plan;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const auto equals = word.find('=');
    if (equals == std::string_view::npos) continue;  // the harness's token
    const auto key = word.substr(0, equals);
    const auto time = acc::parse_duration(word.substr(equals + 1));
    if (!time) continue;
    if (key == "run") plan.run = *time;
    if (key == "crash") plan.crash = *time;
    if (key == "every") plan.every = *time;
    if (key == "linger") plan.linger = *time;
    if (key == "ckpt") plan.ckpt = *time;
  }
  return plan;
}

sigset_t watched() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signo : kWatched) ::sigaddset(&set, signo);
  return set;
}

std::string facts() {
  return "round=" + variable("ACC_ROUND") + " rank=" + variable("RANK") +
         " world=" + variable("WORLD_SIZE") + " local=" + variable("LOCAL_RANK") +
         " node_rank=" + variable("GROUP_RANK") + " nodes=" + variable("GROUP_WORLD_SIZE") +
         " node=" + variable("HISTORY_NODE") + " pid=" + std::to_string(::getpid()) +
         " restarts=" + variable("TORCHELASTIC_RESTART_COUNT") +
         " master=" + variable("MASTER_ADDR") + " port=" + variable("MASTER_PORT");
}

/// Waits for the next line's time; a signal that came meanwhile.
std::optional<int> sleep_or_signal(acc::Millis time) {
  const sigset_t set = watched();
  const timespec limit{.tv_sec = time.count() / 1000, .tv_nsec = time.count() % 1000 * 1'000'000};
  const int signo = ::sigtimedwait(&set, nullptr, &limit);
  if (signo < 0) return std::nullopt;
  return signo;
}

// Rank 0's checkpoints, in a thread: a question may take its time, and the diary goes on.
[[noreturn]] void keep_writing(const Diary& diary, acc::Millis every, acc::Round round) {
  constexpr acc::Millis kPatience{2'000};
  for (;; std::this_thread::sleep_for(every)) {
    auto agent = acc::AgentClient::connect(variable("ACC_AGENT_SOCKET"), acc::Rank{0}, std::nullopt);
    if (!agent) continue;
    const auto granted = agent->current(round, kPatience);
    diary.write(granted && *granted ? "wrote" : "refused", nanoseconds());
  }
}

}  // namespace

int main(int argc, char** argv) {
  const long long start = nanoseconds();
  const sigset_t set = watched();
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  const std::string folder = variable("HISTORY_DIR"), round = variable("ACC_ROUND");
  const std::string others = lock_and_look(folder, round);
  const Diary diary{folder + "/log." + variable("HISTORY_NODE") + '.' + round + '.' +
                    variable("RANK") + '.' + std::to_string(::getpid())};
  diary.write("start", start, facts());
  if (!others.empty()) diary.write("overlap", start, others);
  const Plan plan = parse(argc, argv);
  if (plan.ckpt && variable("RANK") == "0") {
    std::thread{[&diary, every = *plan.ckpt, number = std::stoull(round)] {
      keep_writing(diary, every, acc::Round{number});
    }}.detach();
  }
  const auto over = [&](std::optional<acc::Millis> limit) {
    return limit && nanoseconds() - start >= limit->count() * 1'000'000LL;
  };
  while (true) {
    const auto signo = sleep_or_signal(plan.every);
    if (signo) {
      diary.write("signal", nanoseconds(), std::to_string(*signo));
      if (*signo == SIGTERM || *signo == SIGINT) {
        const long long until = nanoseconds() + plan.linger.count() * 1'000'000LL;
        while (nanoseconds() < until) {
          sleep_or_signal(plan.every);
          diary.write("alive", nanoseconds());
        }
        diary.write("end", nanoseconds(), "signal");
        ::_exit(128 + *signo);
      }
    }
    diary.write("alive", nanoseconds());
    if (over(plan.crash)) {
      diary.write("end", nanoseconds(), "crash");
      ::kill(::getpid(), SIGKILL);
    }
    if (over(plan.run)) {
      diary.write("end", nanoseconds(), "done");
      ::_exit(0);
    }
  }
}
