#include "common/unique_fd.hpp"
#include "tests/golden/sharding/row.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <acc/error.hpp>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

/// The ranks of a row: threads, or processes that find each other as under any launcher.
namespace acc::golden {

namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kLimit = std::chrono::seconds{60};  ///< of a row

bool threads_only = false;

runtime::GroupOptions group_options() {
  runtime::GroupOptions options;
  options.backend = runtime::BackendKind::cpu;
  options.init_timeout = options.timeout = std::chrono::seconds{20};
  return options;
}

Outcome outcome_of(runtime::ProcessGroup& group, const OnRank& work) {
  try {
    return {work(group), {}};
  } catch (const std::exception& failure) {
    return {{}, failure.what()};
  }
}

std::vector<Outcome> on_threads(int world, const OnRank& work) {
  auto groups = runtime::ProcessGroup::threads(world, group_options());
  std::vector<Outcome> outcomes(groups.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < groups.size(); ++rank)
    threads.emplace_back([&, rank] { outcomes[rank] = outcome_of(groups[rank], work); });
  for (auto& thread : threads) thread.join();
  return outcomes;
}

[[noreturn]] void fail(const char* what) {
  throw std::system_error{errno, std::generic_category(), what};
}

/// One that nobody listens on now.
int free_port() {
  const UniqueFd socket{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  if (!socket || ::bind(socket.get(), any, length) != 0 ||
      ::getsockname(socket.get(), any, &length) != 0)
    fail("look for a free port");
  return ntohs(address.sin_port);
}

void set(const char* name, int value) { ::setenv(name, std::to_string(value).c_str(), 1); }

/// In the child: what it tells the parent.
std::string be_rank(int rank, int world, int port, const OnRank& work) {
  ::unsetenv("ACC_AGENT_SOCKET");  // we may run under a launcher ourselves
  for (const char* name : {"RANK", "LOCAL_RANK"}) set(name, rank);
  for (const char* name : {"WORLD_SIZE", "LOCAL_WORLD_SIZE"}) set(name, world);
  ::setenv("MASTER_ADDR", "127.0.0.1", 1);
  set("MASTER_PORT", port);
  Outcome outcome;
  try {
    auto group = runtime::ProcessGroup::from_environment(group_options());
    outcome = outcome_of(group, work);
    // Who leaves early counts as lost, and that is none of the row's business.
    if (outcome.error.empty()) group.barrier();
  } catch (const std::exception& failure) {
    outcome.error = failure.what();
  }
  return json{{"value", outcome.value}, {"error", outcome.error}}.dump();
}

struct Child {
  pid_t pid = -1;
  UniqueFd pipe;
  std::string said;
};

Child start_rank(int rank, int world, int port, const OnRank& work) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) fail("make a pipe");
  Child child{-1, UniqueFd{ends[0]}, {}};
  UniqueFd out{ends[1]};
  const auto parent = ::getpid();
  child.pid = ::fork();
  if (child.pid < 0) fail("start a rank");
  if (child.pid > 0) return child;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  const auto words = be_rank(rank, world, port, work);
  for (std::size_t at = 0; at < words.size();) {
    const auto n = ::write(out.get(), words.data() + at, words.size() - at);
    if (n < 0 && errno != EINTR) break;
    if (n > 0) at += static_cast<std::size_t>(n);
  }
  ::_exit(0);  // what the parent left to be done at its end isn't ours to do
}

/// Until all have said their part and closed their pipes, or the limit is over.
void listen_to(std::vector<Child>& children) {
  const auto deadline = Clock::now() + kLimit;
  for (auto& child : children) {
    for (;;) {
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
      pollfd watched{child.pipe.get(), POLLIN, 0};
      const int ready = left <= 0 ? 0 : ::poll(&watched, 1, static_cast<int>(left));
      if (ready < 0 && errno == EINTR) continue;
      if (ready <= 0) return;
      char buffer[65536];
      const auto n = ::read(child.pipe.get(), buffer, sizeof buffer);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) break;
      child.said.append(buffer, static_cast<std::size_t>(n));
    }
    child.pipe.reset();
  }
}

Outcome end_of(Child& child) {
  if (child.pipe) ::kill(child.pid, SIGKILL);
  int status = 0;
  while (::waitpid(child.pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (child.pipe) return {{}, "no outcome after 60 s"};
  auto said = json::parse(child.said, nullptr, false);
  if (WIFSIGNALED(status) || said.is_discarded())
    return {{}, "the rank's process ended with status " + std::to_string(status)};
  return {std::move(said["value"]), said["error"]};
}

std::vector<Outcome> on_processes(int world, const OnRank& work) {
  const int port = free_port();
  std::vector<Child> children;
  for (int rank = 0; rank < world; ++rank) children.push_back(start_rank(rank, world, port, work));
  listen_to(children);
  std::vector<Outcome> outcomes;
  for (auto& child : children) outcomes.push_back(end_of(child));
  return outcomes;
}

}  // namespace

void ranks_are_threads(bool threads) { threads_only = threads; }

std::vector<Outcome> on_ranks(int world, const OnRank& work) {
  return threads_only ? on_threads(world, work) : on_processes(world, work);
}

}  // namespace acc::golden
