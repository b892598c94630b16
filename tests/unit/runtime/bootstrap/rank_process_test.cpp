#include "runtime/bootstrap/rank_process.hpp"

#include "common/unique_fd.hpp"
#include "runtime/bootstrap/member.hpp"
#include "runtime/bootstrap/tcp_store.hpp"

#include <catch2/catch.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <thread>

using namespace acc::runtime;
using namespace std::chrono_literals;

namespace {

Deadline within(std::chrono::milliseconds time) { return std::chrono::steady_clock::now() + time; }

TcpStorePlace place_of_rank(int rank) {
  TcpStorePlace place;
  place.name = "acc-rank-process-test/" + std::to_string(::getpid());
  place.job = "a job";
  place.rank = rank;
  place.size = 8;
  return place;
}

/// A process that forms one group as rank 3, and runs until it is told to end.
class Program {
 public:
  explicit Program(TcpStorePlace place) {
    int to[2], from[2];
    REQUIRE(::pipe(to) == 0);
    REQUIRE(::pipe(from) == 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(to[1]);
      const auto said = form(std::move(place)) + "\n";
      char end = 0;
      const bool is_told = ::write(from[1], said.data(), said.size()) > 0;
      ::_exit(is_told && ::read(to[0], &end, 1) >= 0 ? 0 : 1);
    }
    ::close(to[0]);
    ::close(from[1]);
    end_ = acc::UniqueFd{to[1]};
    const acc::UniqueFd answer{from[0]};
    for (char c = 0; ::read(answer.get(), &c, 1) == 1 && c != '\n';) said_ += c;
  }
  ~Program() { end(); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void end() {
    end_.reset();
    if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  const std::string& said() const { return said_; }
  std::string who() const {
    return "3 (host " + host_facts().name + ", pid " + std::to_string(pid_) + ")";
  }

 private:
  static std::string form(TcpStorePlace place) {
    try {
      const auto store = open_tcp_store(place, within(10s));
      RankProcess process{*store, "p", 3};
      process.count_group();
      const auto other = process.running_predecessor();
      return process.key() + (other ? " beside " + *other : "");
    } catch (const std::exception& error) {
      return error.what();
    }
  }

  pid_t pid_ = 0;
  acc::UniqueFd end_;
  std::string said_;
};

}  // namespace

TEST_CASE("the groups of a process have its number and their own", "[bootstrap]") {
  const auto store = make_memory_store();
  for (const auto* expected : {"p/0/0", "p/0/1", "p/0/2"}) {
    RankProcess process{*store, "p", 3};
    process.count_group();
    CHECK(process.key() == expected);
    CHECK_FALSE(process.running_predecessor());
  }
  RankProcess other_round{*store, "q", 3};
  other_round.count_group();
  CHECK(other_round.key() == "q/0/0");
}

TEST_CASE("the second program of a worker doesn't meet what the first has left", "[bootstrap]") {
  const auto server = open_tcp_store(place_of_rank(0), within(10s));
  for (const auto* expected : {"p/0/0", "p/1/0", "p/2/0"}) {
    Program program{place_of_rank(1)};
    CHECK(program.said() == expected);
  }
}

TEST_CASE("two programs that run at once as one rank are found", "[bootstrap]") {
  const auto server = open_tcp_store(place_of_rank(0), within(10s));
  Program first{place_of_rank(1)};
  REQUIRE(first.said() == "p/0/0");
  Program second{place_of_rank(2)};
  CHECK(second.said() == "p/1/0 beside " + first.who());
  second.end();
  Program third{place_of_rank(2)};  // the refused one has ended, the first still runs
  CHECK(third.said() == "p/2/0 beside " + first.who());
  third.end();
  first.end();
  Program fourth{place_of_rank(2)};
  CHECK(fourth.said() == "p/3/0");
}

TEST_CASE("of two programs that began at once as one rank both waited until the time was up",
          "[bootstrap]") {
  const auto server = open_tcp_store(place_of_rank(0), within(10s));
  RankProcess self{*server, "another prefix", 3};
  self.count_group();
  const auto identity = server->get("another prefix/process/3/0", within(10s));
  // This process is the first one, and slow: it has its number, and nothing is known of it yet.
  REQUIRE(server->add("p/processes/3", 1) == 1);
  std::thread slow{[&] {
    (void)server->get("p/process/3/1", within(10s));  // the second one's
    std::this_thread::sleep_for(50ms);
    server->set("p/process/3/0", identity);
  }};
  Program second{place_of_rank(1)};
  slow.join();
  CHECK(second.said() ==
        "p/1/0 beside 3 (host " + host_facts().name + ", pid " + std::to_string(::getpid()) + ")");
}
