// acc-bench-rendezvous [--tls] [--table] N: N agents connect, join and get their ranks, over
// loopback. One JSON line as the peers' harness wants it. The clock runs from the first connect to
// the last agent that holds its assignment (--table: and the whole rank table); the server is the
// production listener and coordinator in a process of its own, the agents share another one.

#include "rendezvous/codec.hpp"
#include "rendezvous/coordinator.hpp"
#include "rendezvous/frame_splitter.hpp"
#include "rendezvous/listener.hpp"
#include "rendezvous/secret.hpp"
#include "rendezvous/tls.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <new>
#include <string>
#include <vector>

namespace {

using namespace acc;
using namespace acc::rendezvous;
using Clock = std::chrono::steady_clock;

constexpr const char* kJob = "bench";

struct Shared {
  std::atomic<int> port{0};
  int is_up_fd = -1;  ///< the server writes a byte when it listens
  std::atomic<double> cpu_ms{0};
  std::atomic<long> rss_kb{0};
};

struct Wishes {
  std::uint32_t nodes = 0;
  bool tls = false;
  bool table = false;
};

[[noreturn]] void die(const char* what) {
  std::perror(what);
  std::_Exit(1);
}

double cpu_ms() {
  rusage use{};
  ::getrusage(RUSAGE_SELF, &use);
  const auto ms = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_usec) / 1e3;
  };
  return ms(use.ru_utime) + ms(use.ru_stime);
}

long peak_rss_kb() {
  std::ifstream file{"/proc/self/status"};
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("VmHWM:")) return std::atol(line.c_str() + 6);
  }
  return 0;
}

Secret bench_secret() {
  return Secret{"(bench)", {{"0badcafe", SecretBytes{std::string(64, 'k')}}}};
}

Join join_of(std::uint32_t i, std::uint32_t nodes) {
  Join join;
  join.job = kJob;
  join.node = {"node" + std::to_string(i), i + 1};
  join.host = join.node.name;
  join.slots = 8;
  join.listens = 29501;
  join.nodes_min = join.nodes_max = nodes;
  join.facts = {{"script", "train.py", 1}, {"mixed_precision", "bf16", 2}};
  return join;
}

int serve(Shared& shared, const Wishes& wishes) {
  boost::asio::io_context io{1};
  MembershipOptions options;
  options.job = kJob;
  options.name = "server";
  options.where = "loopback";
  options.nodes_min = options.nodes_max = wishes.nodes;
  options.policy = JobPolicy{};
  Coordinator::Hooks hooks;
  hooks.tell = [](const std::string& text, bool) { std::fprintf(stderr, "%s\n", text.c_str()); };
  hooks.stepped_down = [](const std::string&) { std::_Exit(3); };
  hooks.job_over = [](const Close&) {};
  Coordinator coordinator{io, options, hooks};
  ListenOptions listen;
  listen.at = {"127.0.0.1", 0};
  if (wishes.tls) listen.tls = TlsContext::for_listening(bench_secret());
  listen.admission.half_open = listen.admission.half_open_per_source = wishes.nodes + 16;
  listen.admission.greeting = Millis{60'000};
  auto listener = Listener::open(io, listen);
  if (!listener) {
    std::fprintf(stderr, "%s\n", listener.error().what.c_str());
    return 1;
  }
  std::uint64_t peers = 0;
  (*listener)->start(
      [&](std::shared_ptr<Channel> channel, std::string_view first) {
        const auto frame = decode(first);
        if (!frame) std::_Exit(4);
        coordinator.admit(PeerId{++peers}, link_over(std::move(channel)),
                          std::get<Join>(frame->message));
      },
      [](const TurnedAway& who) { std::fprintf(stderr, "turned away: %s\n", who.what.c_str()); });
  boost::asio::signal_set over{io, SIGUSR1};
  const double before = cpu_ms();
  over.async_wait([&](boost::system::error_code, int) {
    shared.cpu_ms = cpu_ms() - before;
    shared.rss_kb = peak_rss_kb();
    std::_Exit(0);
  });
  shared.port = (*listener)->at().port;
  if (::write(shared.is_up_fd, "u", 1) != 1) return 1;
  io.run();
  return 0;
}

/// One agent: a socket and as little else as possible, so that the server is what is measured.
struct Agent {
  int fd = -1;
  bool is_connected = false;
  bool has_shaken = false;
  bool has_joined = false;
  bool is_done = false;
  std::uint32_t rows = 0;
  std::unique_ptr<Stream> stream;
  FrameSplitter splitter{kMaxFrame};
};

class Crowd {
 public:
  Crowd(const Wishes& wishes, int port) : wishes_{wishes}, port_{port}, agents_(wishes.nodes) {
    if (wishes.tls) tls_ = TlsContext::for_dialling(bench_secret(), kJob);
    poll_ = ::epoll_create1(EPOLL_CLOEXEC);
  }

  double run() {
    const auto begin = Clock::now();
    std::vector<epoll_event> events(1024);
    while (done_ < wishes_.nodes) {
      // So many may be under way: a listener's queue has an end, and a dropped SYN costs a second.
      const std::uint32_t window = wishes_.tls ? 128 : 1024;
      while (started_ < wishes_.nodes && started_ - joined_ < window) connect_one();
      const int n = ::epoll_wait(poll_, events.data(), static_cast<int>(events.size()), 30'000);
      if (n <= 0) die("agents: stalled");
      for (int i = 0; i < n; ++i) serve(agents_[events[static_cast<std::size_t>(i)].data.u32]);
    }
    return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
  }

 private:
  void connect_one() {
    Agent& agent = agents_[started_];
    agent.fd = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (agent.fd < 0) die("socket");
    const int on = 1;
    ::setsockopt(agent.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<std::uint16_t>(port_));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(agent.fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0 &&
        errno != EINPROGRESS)
      die("connect");
    watch(agent, EPOLLOUT, EPOLL_CTL_ADD);
    ++started_;
  }

  void watch(Agent& agent, std::uint32_t what, int change) {
    epoll_event event{};
    event.events = what;
    event.data.u32 = static_cast<std::uint32_t>(&agent - agents_.data());
    ::epoll_ctl(poll_, change, agent.fd, &event);
  }

  void serve(Agent& agent) {
    if (!agent.is_connected) {
      int error = 0;
      socklen_t size = sizeof error;
      ::getsockopt(agent.fd, SOL_SOCKET, SO_ERROR, &error, &size);
      errno = error;
      if (error != 0) die("connect");
      agent.is_connected = true;
      agent.stream =
          tls_ ? std::make_unique<Stream>(agent.fd, tls_) : std::make_unique<Stream>(agent.fd);
    }
    if (!agent.has_shaken && !shake(agent)) return;
    if (!agent.has_joined) join(agent);
    read(agent);
  }

  bool shake(Agent& agent) {
    switch (agent.stream->shake_hands()) {
      case Io::done:
        agent.has_shaken = true;
        return true;
      case Io::want_read:
        watch(agent, EPOLLIN, EPOLL_CTL_MOD);
        return false;
      case Io::want_write:
        watch(agent, EPOLLOUT, EPOLL_CTL_MOD);
        return false;
      default:
        die("handshake");
    }
  }

  void join(Agent& agent) {
    const auto index = static_cast<std::uint32_t>(&agent - agents_.data());
    send(agent, join_of(index, wishes_.nodes));
    agent.has_joined = true;
    ++joined_;
    watch(agent, EPOLLIN, EPOLL_CTL_MOD);
  }

  static void send(Agent& agent, const Message& message) {
    const auto bytes = encode({{1, 0}, Round{0}}, message);
    std::size_t taken = 0;
    if (agent.stream->write(bytes, taken) != Io::done || taken != bytes.size()) die("write");
  }

  void read(Agent& agent) {
    for (;;) {
      std::size_t got = 0;
      const auto result = agent.stream->read(buffer_, got);
      if (result == Io::want_read) return;
      if (result != Io::done) die("read");
      agent.splitter.feed({buffer_, got});
      for (;;) {
        const auto bytes = agent.splitter.next();
        if (!bytes) die("frame");
        if (!*bytes) break;
        const auto frame = decode(**bytes);
        if (!frame) die("decode");
        take(agent, frame->message);
      }
    }
  }

  void take(Agent& agent, const Message& message) {
    if (std::holds_alternative<Refused>(message)) die("refused");
    if (const auto* table = std::get_if<Table>(&message)) {
      agent.rows += static_cast<std::uint32_t>(table->rows.size());
      if (agent.rows >= wishes_.nodes) finish(agent);
    } else if (std::holds_alternative<Assigned>(message)) {
      wishes_.table ? send(agent, TableRequest{}) : finish(agent);
    }
  }

  void finish(Agent& agent) {
    if (!agent.is_done) ++done_;
    agent.is_done = true;
  }

  Wishes wishes_;
  int port_;
  std::vector<Agent> agents_;
  std::shared_ptr<const TlsContext> tls_;
  int poll_ = -1;
  char buffer_[256 * 1024];
  std::uint32_t started_ = 0;
  std::uint32_t joined_ = 0;
  std::uint32_t done_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  Wishes wishes;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word{argv[i]};
    if (word == "--tls") {
      wishes.tls = true;
    } else if (word == "--table") {
      wishes.table = true;
    } else {
      wishes.nodes = static_cast<std::uint32_t>(std::atoi(argv[i]));
    }
  }
  if (wishes.nodes == 0) {
    std::fprintf(stderr, "usage: acc-bench-rendezvous [--tls] [--table] NODES\n");
    return 2;
  }
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  void* const page =
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto& shared = *new (page) Shared;
  int is_up[2];
  if (::pipe(is_up) != 0) die("pipe");
  shared.is_up_fd = is_up[1];
  const pid_t server = ::fork();
  if (server == 0) std::_Exit(serve(shared, wishes));
  // A server that can't listen ends, and with it the pipe: nobody waits for it in vain.
  ::close(is_up[1]);
  char ready = 0;
  if (::read(is_up[0], &ready, 1) != 1) {
    std::fprintf(stderr, "acc-bench-rendezvous: the server did not come up\n");
    return 3;
  }
  auto crowd = std::make_unique<Crowd>(wishes, shared.port);
  const double ms = crowd->run();
  ::kill(server, SIGUSR1);
  int status = 0;
  ::waitpid(server, &status, 0);
  if (status != 0) return 3;
  std::printf(
      "{\"nodes\":%u,\"join_to_all_assigned_ms\":%.2f,\"server_rss_kb\":%ld,"
      "\"server_cpu_ms\":%.2f,\"tls\":%s,\"table\":%s}\n",
      wishes.nodes, ms, shared.rss_kb.load(), shared.cpu_ms.load(), wishes.tls ? "true" : "false",
      wishes.table ? "true" : "false");
  return 0;
}
