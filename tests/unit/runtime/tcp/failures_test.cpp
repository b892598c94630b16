// What goes wrong on one host is the same error on all. How soon isn't measured, as a busy machine
// takes its time: a call that ends with another error than timed_out ended before its limit of 20
// s.
#include "common/unique_fd.hpp"
#include "runtime/bootstrap/tcp_store.hpp"
#include "tests/support/descriptors.hpp"
#include "tests/support/slow_yields.hpp"
#include "tests/support/tally.hpp"

#include <catch2/catch.hpp>

#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "hosted_groups.hpp"

using namespace acc::runtime;
using namespace acc::testing;
using namespace std::chrono_literals;
using SteadyClock = std::chrono::steady_clock;

namespace {

std::vector<float> some(std::size_t count) { return std::vector<float>(count, 1.0F); }

void sum(ProcessGroup& group, std::size_t count, ReduceOp op = ReduceOp::sum,
         CallOptions how = {}) {
  auto data = some(count);
  group.all_reduce(std::span{data}, op, how);
}

}  // namespace

TEST_CASE("different calls on different hosts are the same mismatch everywhere", "[tcp][hosts]") {
  struct Row {
    std::string name;
    std::function<void(ProcessGroup&)> odd;
    std::string expected;
  };
  const std::vector<Row> rows{
      {"count", [](ProcessGroup& g) { sum(g, 900); }, "x900"},
      {"large count", [](ProcessGroup& g) { sum(g, 900'000); }, "x900000"},
      {"reduction", [](ProcessGroup& g) { sum(g, 1000, ReduceOp::max); }, "max"},
      {"operation", [](ProcessGroup& g) { g.barrier(); }, "barrier"},
      {"root",
       [](ProcessGroup& g) {
         auto data = some(1000);
         g.broadcast(std::span{data}, 2);
       },
       "broadcast"}};
  for (const std::string layout : {"abb", "aab", "abc"}) {
    for (const auto& row : rows) {
      for (const int odd : {0, 1, 2}) {
        CAPTURE(layout, row.name, odd);
        auto groups = hosted_groups(layout);
        const auto said = on_ranks(groups, [&](ProcessGroup& group) {
          group.barrier();
          group.rank() == odd ? row.odd(group) : sum(group, 1000);
        });
        for (const auto& text : said) {
          CHECK_THAT(text, Catch::StartsWith("mismatch: "));
          CHECK_THAT(text, Catch::Contains(row.expected));
          CHECK_THAT(text, Catch::Contains("rank " + std::to_string(odd)));
          CHECK(text == said[0]);
        }
      }
    }
  }
}

TEST_CASE("a rank that doesn't come is named by all that wait, on its host and others",
          "[tcp][hosts]") {
  for (const std::string layout : {"ab", "aabb", "abc"}) {
    for (const int late : {0, static_cast<int>(layout.size()) - 1}) {
      CAPTURE(layout, late);
      auto groups = hosted_groups(layout);
      Tally failed;
      on_ranks(groups, [](ProcessGroup& group) { group.barrier(); });
      const auto said = on_ranks(groups, [&](ProcessGroup& group) {
        if (group.rank() == late) return failed.await(group.size() - 1);
        const TallyAtEnd at_end{failed};
        sum(group, 100'000, ReduceOp::sum, {.timeout = 900ms});
      });
      for (int r = 0; r < static_cast<int>(layout.size()); ++r) {
        const auto& text = said[static_cast<std::size_t>(r)];
        if (r == late) {
          CHECK(text == "well");
          continue;
        }
        CHECK_THAT(text, Catch::StartsWith("timed_out: all_reduce f32 x100000 sum #2"));
        CHECK_THAT(text, Catch::Contains("timed out after 900 ms: rank " + std::to_string(late) +
                                         " (host " + layout[static_cast<std::size_t>(late)]));
        CHECK_THAT(text, Catch::Contains("has not arrived; it last completed barrier"));
        CHECK_THAT(text, !Catch::Contains("rank " + std::to_string(r) + " (host"));
      }
    }
  }
}

TEST_CASE("a message that doesn't come names its sender", "[tcp][hosts]") {
  auto groups = hosted_groups("ab");
  Tally done;
  const auto said = on_ranks(groups, [&](ProcessGroup& group) {
    group.barrier();
    if (group.rank() == 1) return done.await(1);
    const TallyAtEnd at_end{done};
    float value = 0;
    group.recv(&value, 1, DType::f32, 1, {.timeout = 900ms});
  });
  CHECK_THAT(said[0], Catch::StartsWith("timed_out: recv f32 x1") &&
                          Catch::Contains("rank 1 (host b") &&
                          Catch::Contains("has not sent; it last completed barrier"));
}

TEST_CASE("over hosts, too, a chain of receivers ends at the rank that hangs", "[tcp][hosts]") {
  for (const std::string layout : {"abc", "aab", "abb", "aba"}) {
    for (const int first : {0, 1}) {  // whose time is up
      CAPTURE(layout, first);
      auto groups = hosted_groups(layout);
      Tally ended;
      const auto said = on_ranks(groups, [&](ProcessGroup& group) {
        float value = 0;
        if (group.rank() == 2) {
          group.send(&value, 1, DType::f32, 1);
          return ended.await(2);
        }
        const TallyAtEnd at_end{ended};
        if (group.rank() == 1) {
          group.recv(&value, 1, DType::f32, 2);
          group.send(&value, 1, DType::f32, 0);
        } else {
          group.recv(&value, 1, DType::f32, 1);
        }
        group.recv(&value, 1, DType::f32, group.rank() + 1,
                   {.timeout = group.rank() == first ? 2s : 20s});
      });
      for (const std::size_t r : {0U, 1U}) {
        CHECK_THAT(said[r], Catch::StartsWith("timed_out: recv f32 x1 #2") &&
                                Catch::Contains("timed out after 2 s: rank 2 (host ") &&
                                Catch::Contains("it last completed send f32 x1 #1 to rank 1"));
        if (first == 0)
          CHECK_THAT(said[r], Catch::Contains(" has not sent to rank 1; ") &&
                                  Catch::Contains("; rank 1 (host ") &&
                                  Catch::Contains(") itself waits in recv from rank 2"));
      }
    }
  }
}

TEST_CASE("a message of another size or type is a mismatch, also where calls aren't compared",
          "[tcp][hosts]") {
  GroupOptions options;
  options.check = GENERATE(true, false);
  const auto sent = GENERATE(std::pair{4U, DType::i32}, std::pair{2U, DType::f32});
  for (const std::string layout : {"ab", "aab"}) {
    CAPTURE(layout, *options.check, sent.first);
    auto groups = hosted_groups(layout, options);
    const int last = static_cast<int>(layout.size()) - 1;
    const auto said = on_ranks(groups, [&](ProcessGroup& group) {
      std::array<int, 4> data{};
      if (group.rank() == 0) group.send(data.data(), sent.first, sent.second, last);
      if (group.rank() == last) group.recv(data.data(), 2, DType::i32, 0);
    });
    CHECK(said[0] == "well");  // it was on its way
    CHECK_THAT(said.back(), Catch::StartsWith("mismatch: ") && Catch::Contains("recv i32 x2") &&
                                Catch::Contains("send " + std::string{to_string(sent.second)} +
                                                " x" + std::to_string(sent.first)));
  }
}

TEST_CASE("over hosts, too, ranks that wait for each other are all named", "[tcp][hosts]") {
  for (const std::string layout : {"ab", "aab"}) {
    CAPTURE(layout);
    auto groups = hosted_groups(layout);
    const int last = static_cast<int>(layout.size()) - 1;
    Tally ended;
    const auto said = on_ranks(groups, [&](ProcessGroup& group) {
      if (group.rank() != 0 && group.rank() != last) return ended.await(2);
      const TallyAtEnd at_end{ended};
      float value = 0;
      group.recv(&value, 1, DType::f32, last - group.rank(), {.timeout = 2s});
    });
    const auto number = std::to_string(last);
    CHECK_THAT(said[0], Catch::Contains("ranks 0," + number + " wait for each other: rank 0") &&
                            Catch::Contains(") in recv from rank 0"));
  }
}

TEST_CASE("abort on one rank wakes all waiters of all hosts", "[tcp][hosts]") {
  for (const int who : {0, 1, 3}) {
    CAPTURE(who);
    auto groups = hosted_groups("aabb");
    Tally calling;
    const auto said = on_ranks(groups, [&](ProcessGroup& group) {
      group.barrier();
      if (group.rank() == who) {
        calling.await(3);
        group.abort("enough");
        return;
      }
      calling.add();
      sum(group, 1000);
    });
    for (int r = 0; r < 4; ++r) {
      if (r == who) continue;
      CHECK_THAT(said[static_cast<std::size_t>(r)], Catch::StartsWith("aborted: "));
      CHECK_THAT(said[static_cast<std::size_t>(r)], Catch::Contains("enough"));
    }
    CHECK_THROWS_AS(groups[0].barrier(), Error);  // for good
    CHECK_THROWS_AS(groups[3].barrier(), Error);
  }
}

TEST_CASE("abort wakes a waiter on a busy machine, too", "[tcp][hosts]") {
  auto groups = hosted_groups("aab");
  Tally yields;
  int before_abort = 0;
  const auto said = on_ranks(groups, [&](ProcessGroup& group) {
    group.barrier();
    if (group.rank() == 0) {
      const SlowYields busy{yields};
      return sum(group, 1000);
    }
    if (group.rank() == 2) return sum(group, 1000);
    // If yields were slow in the first barrier, it sleeps at once in the second.
    [[maybe_unused]] const bool is_awake = yields.reaches(1, 5s);
    group.abort("enough");
    before_abort = yields.count();
  });
  CHECK_THAT(said[0], Catch::StartsWith("aborted: "));
  CHECK_THAT(said[2], Catch::StartsWith("aborted: "));
  CHECK(yields.count() - before_abort <= 1);  // it may have been on its way into one more
}

/// Ranks whose program closes the sockets between them, opens files of its own under the same
/// numbers, and calls `call`. In a process of its own.
/// @param means  whether a rank may say this of it
void check_closed_sockets(const std::string& layout, const std::function<void(ProcessGroup&)>& call,
                          const std::function<bool(const std::string& said)>& means) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::alarm(60);
    int wrong = 0;
    std::vector<int> files;
    {
      std::vector<ProcessGroup> groups;
      files = descriptors_of([&] {
        groups = hosted_groups(layout);
        on_ranks(groups, [](ProcessGroup& group) { group.barrier(); });
      });
      put_files_in_place_of(files);
      for (const auto& said : on_ranks(groups, call))
        if (!means(said)) wrong |= 1;
    }
    ::_exit(harm_to_files(files) | wrong);
  }
  int status = -1;
  ::waitpid(pid, &status, 0);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

bool is_lost_peer(const std::string& said) { return said.starts_with("peer_lost: "); }

TEST_CASE("a program that closed the sockets between its hosts got their bytes in its own files",
          "[tcp][hosts]") {
  check_closed_sockets(
      "ab", [](ProcessGroup& group) { group.barrier(); }, is_lost_peer);
}

TEST_CASE("shared memory blamed a rank when the program had closed the sockets on its host",
          "[tcp][hosts]") {
  const auto allocate = [](ProcessGroup& group) { (void)group.allocate_shared(100); };
  check_closed_sockets("aaa", allocate, [](const std::string& said) {
    return is_lost_peer(said) &&
           said.find("this program has closed the connection") != std::string::npos;
  });
  // The other host's rank may be the first to see the end of a connection.
  check_closed_sockets("aabb", allocate, is_lost_peer);
}

TEST_CASE("a rank that left its group is named", "[tcp][hosts]") {
  for (const int who : {0, 1, 2}) {
    CAPTURE(who);
    auto groups = hosted_groups("aab");
    const auto said = on_ranks(groups, [&](ProcessGroup& group) {
      group.barrier();
      if (group.rank() == who) {
        group = {};
        return;
      }
      group.barrier();
    });
    for (int r = 0; r < 3; ++r) {
      if (r == who) continue;
      CHECK_THAT(said[static_cast<std::size_t>(r)], Catch::StartsWith("peer_lost: "));
      CHECK_THAT(said[static_cast<std::size_t>(r)], Catch::Contains("left"));
    }
  }
}

namespace {

/// Ranks as processes on pretended hosts. Each has a line to the test: packets, of which the last
/// is what the rank says in the end.
class Processes {
 public:
  using Line = acc::UniqueFd;
  using Body = std::function<void(ProcessGroup&, const Line&)>;

  Processes(const std::string& layout, const Body& body) {
    TcpStorePlace rank_state;
    rank_state.name =
        "acc-test-hosts/" + std::to_string(::getpid()) + "/" + std::to_string(++count_);
    rank_state.size = static_cast<int>(layout.size());
    for (std::size_t r = 0; r < layout.size(); ++r) {
      std::array<int, 2> ends{};
      REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) == 0);
      Line ours{ends[0]};
      const Line theirs{ends[1]};
      const auto pid = ::fork();
      REQUIRE(pid >= 0);
      if (pid == 0) play(r, layout, rank_state, body, theirs);
      pids_.push_back(pid);
      connections_.push_back(std::move(ours));
    }
  }
  ~Processes() {
    for (const auto pid : pids_) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
  }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  static void write(const Line& connection, const std::string& packet) {
    (void)::send(connection.get(), packet.data(), packet.size(), MSG_NOSIGNAL);
  }
  /// @return "nothing" when the other end is gone, and after 45 s: twice what a call may take.
  [[nodiscard]] static std::string read(const Line& connection) {
    pollfd wait{connection.get(), POLLIN, 0};
    std::string packet(4096, '\0');
    if (::poll(&wait, 1, 45'000) <= 0) return "nothing";
    const auto n = ::recv(connection.get(), packet.data(), packet.size(), 0);
    return n > 0 ? packet.substr(0, static_cast<std::size_t>(n)) : "nothing";
  }

  [[nodiscard]] const Line& connection(std::size_t rank) const { return connections_[rank]; }
  [[nodiscard]] std::string said(std::size_t rank) const { return read(connections_[rank]); }
  [[nodiscard]] pid_t pid(std::size_t rank) const { return pids_[rank]; }
  void kill(std::size_t rank) const { ::kill(pids_[rank], SIGKILL); }
  void stop(std::size_t rank) const {
    ::kill(pids_[rank], SIGSTOP);
    REQUIRE(::waitpid(pids_[rank], nullptr, WUNTRACED) == pids_[rank]);
  }

 private:
  [[noreturn]] static void play(std::size_t rank, const std::string& layout,
                                TcpStorePlace rank_state, const Body& body,
                                const Line& connection) {
    std::string text = "well";
    ProcessGroup group;
    try {
      rank_state.rank = static_cast<int>(rank);
      GroupConfig mine;
      mine.rank = rank_state.rank;
      mine.size = rank_state.size;
      mine.key = "processes";
      mine.store = open_tcp_store(rank_state, SteadyClock::now() + 20s);
      mine.options.backend = BackendKind::cpu;
      mine.options.init_timeout = 20s;
      mine.options.timeout = 20s;
      mine.master_address = "127.0.0.1";
      mine.host = HostFacts{"key of " + std::string(1, layout[rank]), std::string(1, layout[rank]),
                            "one network"};
      group = ProcessGroup{form_group(std::move(mine))};
      group.barrier();
      body(group, connection);
    } catch (const Error& error) {
      text = std::string{to_string(error.code())} + ": " + error.what();
    }
    write(connection, text);
    for (;;) ::pause();  // others may still want to hear of it; the test ends us
  }

  static inline int count_ = 0;
  std::vector<pid_t> pids_;
  std::vector<Line> connections_;
};

}  // namespace

TEST_CASE("a killed process is named on all hosts, and not waited for", "[tcp][hosts]") {
  for (const std::string layout : {"ab", "aabb", "abc"}) {
    for (std::size_t victim = 0; victim < layout.size(); ++victim) {
      CAPTURE(layout, victim);
      const Processes ranks{layout, [](ProcessGroup& group, const Processes::Line& connection) {
                              Processes::write(connection, "ready");
                              for (;;) sum(group, 50'000);
                            }};
      for (std::size_t r = 0; r < layout.size(); ++r) REQUIRE(ranks.said(r) == "ready");
      ranks.kill(victim);
      for (std::size_t r = 0; r < layout.size(); ++r) {
        if (r == victim) continue;
        const auto text = ranks.said(r);
        CHECK_THAT(text, Catch::StartsWith("peer_lost: all_reduce f32 x50000 sum #"));
        CHECK_THAT(text,
                   Catch::Contains("rank " + std::to_string(victim) + " (host " + layout[victim] +
                                   ", pid " + std::to_string(ranks.pid(victim))));
      }
    }
  }
}

TEST_CASE("a rank that aborted and exited at once was reported as lost, without its reason",
          "[tcp][hosts]") {
  for (const std::string layout : {"ab", "aabb"}) {
    for (std::size_t first = 0; first < layout.size(); first += layout.size() / 2) {
      CAPTURE(layout, first);
      const Processes ranks{layout, [&](ProcessGroup& group, const Processes::Line& connection) {
                              Processes::write(connection, "waits");
                              if (group.rank() == static_cast<int>(first)) {
                                (void)Processes::read(connection);
                                group.abort("I said so");
                                ::_exit(41);
                              }
                              for (;;) sum(group, 50'000);
                            }};
      for (std::size_t r = 0; r < layout.size(); ++r) REQUIRE(ranks.said(r) == "waits");
      Processes::write(ranks.connection(first), "abort");
      for (std::size_t r = 0; r < layout.size(); ++r) {
        if (r == first) continue;
        const auto text = ranks.said(r);
        CHECK_THAT(text, Catch::StartsWith("aborted: "));
        CHECK_THAT(text, Catch::Contains("I said so"));
      }
    }
  }
}

// The others call when it is stopped: were they in calls before, the limit would be for those, too.
TEST_CASE("a stopped process is named when the time is up", "[tcp][hosts]") {
  for (const std::size_t victim : {0UL, 1UL, 2UL}) {
    CAPTURE(victim);
    const Processes ranks{"aab", [](ProcessGroup& group, const Processes::Line& connection) {
                            Processes::write(connection, "ready");
                            if (Processes::read(connection) == "go")
                              sum(group, 50'000, ReduceOp::sum, {.timeout = 900ms});
                          }};
    for (std::size_t r = 0; r < 3; ++r) REQUIRE(ranks.said(r) == "ready");
    ranks.stop(victim);
    for (std::size_t r = 0; r < 3; ++r) Processes::write(ranks.connection(r), "go");
    for (std::size_t r = 0; r < 3; ++r) {
      if (r == victim) continue;
      const auto text = ranks.said(r);
      CHECK_THAT(text, Catch::StartsWith("timed_out: all_reduce"));
      CHECK_THAT(text, Catch::Contains("timed out after 900 ms: "));
      CHECK_THAT(text, Catch::Contains("rank " + std::to_string(victim) + " (host"));
      CHECK_THAT(text, Catch::Contains("stopped"));
    }
  }
}

TEST_CASE("a message that doesn't come while the own leader is stopped names its sender",
          "[tcp][hosts]") {
  const Processes ranks{"aab", [](ProcessGroup& group, const Processes::Line& connection) {
                          Processes::write(connection, "ready");
                          float value = 0;
                          if (Processes::read(connection) == "go")
                            group.recv(&value, 1, DType::f32, 2, {.timeout = 900ms});
                        }};
  for (std::size_t r = 0; r < 3; ++r) REQUIRE(ranks.said(r) == "ready");
  ranks.stop(0);
  Processes::write(ranks.connection(1), "go");
  const auto text = ranks.said(1);
  CHECK_THAT(text,
             Catch::Contains("timed out after 900 ms: rank 2 (host b") &&
                 Catch::Contains(" has not sent; nothing more is known of it; rank 0 (host") &&
                 Catch::Contains("doesn't answer"));
}
