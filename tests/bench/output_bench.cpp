// The output path alone, in a launcher that does nothing else, to hold against launch_bench's floor
// in the same run:
//   launch_bench.py --parts log --peers acc,cfloor --base cfloor
// with ACC_LAUNCH=<this program> ACC_TEMPLATE='{acc} {n} - {worker}' ACC_TEMPLATE_LOG='{acc} {n}
// {logdir} {worker}'. Usage: output-bench N LOG_DIR COMMAND…   (LOG_DIR "-": no files and no
// prefix)
#include "agent/output/output_hub.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <string>

namespace asio = boost::asio;
using namespace acc;

namespace {

pid_t start(char** command, std::uint32_t rank, agent::ChildStreams streams) {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  if (streams.out >= 0) ::dup2(streams.out, 1);
  if (streams.err >= 0) ::dup2(streams.err, 2);
  ::signal(SIGPIPE, SIG_DFL);
  ::setenv("RANK", std::to_string(rank).c_str(), 1);
  ::execv(command[0], command);
  ::_exit(127);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  const auto workers = static_cast<std::uint32_t>(std::atoi(argv[1]));
  const std::string log_dir = argv[2];
  ::signal(SIGPIPE, SIG_IGN);
  agent::OutputPlan plan;
  if (log_dir != "-") {
    plan.log_dir = log_dir;
    plan.tee.all = agent::Streams::both;
  }
  asio::io_context io{1};
  agent::OutputHub hub{io, plan, workers, agent::detect_console()};
  hub.begin_round(Round{0}, log_dir + "/run_0");
  asio::signal_set children{io, SIGCHLD};
  std::map<pid_t, LocalRank> alive;
  for (std::uint32_t i = 0; i < workers; ++i) {
    const auto streams = hub.open(LocalRank{i}, Rank{i});
    if (!streams) return 3;
    alive[start(argv + 3, i, *streams)] = LocalRank{i};
    hub.close_child_ends(LocalRank{i});
  }
  const auto reap = [&] {
    for (pid_t pid; (pid = ::waitpid(-1, nullptr, WNOHANG)) > 0;) {
      hub.drain(alive.at(pid));
      alive.erase(pid);
    }
  };
  while (!alive.empty()) {
    bool is_signalled = false;
    children.async_wait([&](auto, int) { is_signalled = true; });
    reap();
    while (!is_signalled && !alive.empty()) io.run_one();
    reap();
  }
  hub.end_round();
  hub.finish(Millis{5000});
  for (const auto& lost : hub.losses())
    hub.say("lost: " + lost.where + " " + lost.why + " " + std::to_string(lost.lines) + " lines");
  return 0;
}
