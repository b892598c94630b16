#include "tests/unit/runtime/shm/verification.hpp"

#include <catch2/catch.hpp>

#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <ctime>
#include <thread>

using namespace acc::runtime;
using namespace acc::runtime::testing;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;

namespace {

/// What processes of a test count together.
class Shared {
 public:
  Shared()
      : count_{static_cast<std::atomic<int>*>(
            ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))} {}
  ~Shared() { ::munmap(count_, 4096); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  [[nodiscard]] std::atomic<int>& count() const { return *count_; }
  void await(int least) const {
    while (count() < least) std::this_thread::yield();
  }

 private:
  std::atomic<int>* count_;
};

using Verify = void (*)(LocalRank&, const Case&);
struct Named {
  const char* name;
  Verify verify;
};
constexpr Named kCollectives[] = {{"all_reduce", verify_all_reduce},
                                  {"reduce", verify_reduce},
                                  {"broadcast", verify_broadcast},
                                  {"all_gather", verify_all_gather},
                                  {"gather", verify_gather},
                                  {"scatter", verify_scatter},
                                  {"reduce_scatter", verify_reduce_scatter},
                                  {"all_to_all", verify_all_to_all},
                                  {"barrier", [](LocalRank& rank, const Case&) { rank.barrier(); }},
                                  {"send", verify_send_recv}};

/// Calls it over and over, for ever; counts in `rounds` once it is in full swing.
Body endlessly(const Named& collective, std::size_t count, const Shared& rounds,
               std::chrono::milliseconds limit) {
  return [=, &rounds](LocalRank& rank) {
    rank.limit = limit;
    for (std::uint64_t round = 0;; ++round) {
      collective.verify(rank, {.count = count, .round = round});
      if (round == 20) ++rounds.count();
    }
  };
}

}  // namespace

TEST_CASE(
    "a rank that is killed in the middle of a collective is named on all others, not waited for",
    "[runtime][shm]") {
  const auto collective = GENERATE(from_range(std::begin(kCollectives), std::end(kCollectives)));
  for (const std::size_t count : {10u, 100'000u}) {
    CAPTURE(collective.name, count);
    const Shared rounds;
    Processes ranks{3, endlessly(collective, count, rounds, 20s)};
    rounds.await(3);
    ::kill(ranks.pid(1), SIGKILL);
    for (const int r : {0, 2}) {
      const auto outcome = ranks.wait(r);
      REQUIRE(outcome);
      INFO(outcome->what);
      CHECK(outcome->code == ErrorCode::peer_lost);
      CHECK(outcome->ranks == std::vector<int>{1});
      CHECK_THAT(outcome->what,
                 Contains("rank 1 (host here, pid " + std::to_string(ranks.pid(1))) &&
                     Contains("was killed by SIGKILL (signal 9)"));
      if (collective.verify != verify_send_recv)
        CHECK_THAT(outcome->what, Contains(collective.name));
    }
    CHECK_FALSE(ranks.wait(1));
  }
}

TEST_CASE("ranks forked by a rank of another group waited for one that was killed",
          "[runtime][shm]") {
  const auto outcomes = as_processes(2, [](LocalRank& parent) {
    parent.barrier();
    if (parent.rank() == 0) {
      const Named barrier{"barrier", [](LocalRank& rank, const Case&) { rank.barrier(); }};
      const Shared rounds;
      Processes children{2, endlessly(barrier, 0, rounds, 12s)};
      rounds.await(2);
      ::kill(children.pid(1), SIGKILL);
      const auto killed = Clock::now();
      const auto outcome = children.wait(0);
      if (!outcome || outcome->code != ErrorCode::peer_lost || outcome->ended - killed > 5s)
        throw std::runtime_error{"after the death of a child: " +
                                 (outcome ? outcome->what : std::string{"nothing"})};
    }
    parent.barrier();
  });
  for (const auto& outcome : outcomes) {
    INFO(outcome.what);
    CHECK_FALSE(outcome.threw);
  }
}

TEST_CASE("a rank that is stopped in the middle of a collective is named, and that it is stopped",
          "[runtime][shm]") {
  const auto collective = GENERATE(from_range(std::begin(kCollectives), std::end(kCollectives)));
  const std::size_t count = 100'000;
  CAPTURE(collective.name);
  const Shared rounds;
  Processes ranks{3, endlessly(collective, count, rounds, 1900ms)};
  rounds.await(3);
  ::kill(ranks.pid(2), SIGSTOP);
  for (const int r : {0, 1}) {
    const auto outcome = ranks.wait(r);
    REQUIRE(outcome);
    INFO(outcome->what);
    CHECK(outcome->code == ErrorCode::timed_out);
    CHECK_THAT(outcome->what, Contains("timed out after 1.9 s"));
    if (collective.verify == verify_send_recv) continue;  // it waits for its neighbour
    CHECK(outcome->ranks == std::vector<int>{2});
    CHECK_THAT(outcome->what, Contains("it is stopped (process state T)"));
  }
}

TEST_CASE("a rank that comes too late learns why the others have gone", "[runtime][shm]") {
  const Shared failed;
  const auto outcomes = as_processes(3, [&](LocalRank& rank) {
    rank.limit = 900ms;
    if (rank.rank() == 0) failed.await(2);
    try {
      verify_all_reduce(rank, {.count = 10});
    } catch (...) {
      ++failed.count();
      throw;
    }
  });
  for (const auto& outcome : outcomes) {
    INFO(outcome.what);
    CHECK(outcome.code == ErrorCode::timed_out);
    CHECK(outcome.ranks == std::vector<int>{0});
    CHECK_THAT(outcome.what, Contains("rank 0 (host here") && Contains("has not arrived"));
  }
}

TEST_CASE("a rank that ends in good order, but without leaving, is lost", "[runtime][shm]") {
  const auto outcomes = as_processes(2, [](LocalRank& rank) {
    rank.barrier();
    if (rank.rank() == 1) ::_exit(3);
    rank.barrier();
  });
  INFO(outcomes[0].what);
  CHECK(outcomes[0].code == ErrorCode::peer_lost);
  CHECK_THAT(outcomes[0].what,
             Contains("exited with status 3") && Contains("last completed barrier"));
}

TEST_CASE("a rank that leaves by an exception ends before those who waited for it: it is the cause",
          "[runtime][shm]") {
  using std::chrono::milliseconds;
  const auto began = Clock::now();
  const auto since_begin = [began](Clock::time_point at) {
    return static_cast<int>(std::chrono::duration_cast<milliseconds>(at - began).count());
  };
  const Shared left;  // when
  const auto outcomes = as_processes(3, [&](LocalRank& rank) {
    rank.barrier();
    if (rank.rank() == 1) {
      left.count() = since_begin(Clock::now());
      rank.leave();                        // as the stack is unwound …
      std::this_thread::sleep_for(100ms);  // … and what comes before the process's end
      return;
    }
    rank.barrier();
  });
  for (const int r : {0, 2}) {
    const auto& outcome = outcomes[static_cast<std::size_t>(r)];
    INFO(outcome.what);
    CHECK(outcome.code == ErrorCode::peer_lost);
    CHECK_THAT(outcome.what, Contains("rank 1") && Contains("has left the group"));
    // Or it has waited for half a second, in which a busy machine lets nothing end.
    const int waited = since_begin(outcome.ended) - left.count();
    CHECK((outcome.ended > outcomes[1].ended || waited >= 500));
  }
}

TEST_CASE("a rank that leaves and lives on is told all the same", "[runtime][shm]") {
  const Shared told;
  const auto outcomes = as_processes(2, [&](LocalRank& rank) {
    rank.barrier();
    if (rank.rank() == 1) {
      rank.leave();
      return told.await(1);
    }
    try {
      rank.barrier();
    } catch (const Error&) {
      ++told.count();
      throw;
    }
  });
  CHECK(outcomes[0].code == ErrorCode::peer_lost);
}

TEST_CASE("ranks that end right after their last collective make it fail for none",
          "[runtime][shm]") {
  for (int round = 0; round < 20; ++round) {
    const Shared through;
    Processes ranks{4, [&](LocalRank& rank) {
                      verify_all_reduce(rank, {.count = 200'000});
                      verify_all_gather(rank, {.count = 100'000});
                      ++through.count();
                      ::_exit(0);
                    }};
    for (int r = 0; r < 4; ++r) {
      const auto outcome = ranks.wait(r);
      if (outcome) FAIL_CHECK(outcome->what);
    }
    CHECK(through.count() == 4);
  }
}

TEST_CASE("waiting for a late peer takes no processor time to speak of", "[runtime][shm]") {
  const auto outcomes = as_processes(2, [](LocalRank& rank) {
    rank.barrier();
    if (rank.rank() == 1) std::this_thread::sleep_for(1s);  // this is the lateness
    rank.barrier();
    timespec used{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    timespec before = used;
    if (rank.rank() == 1) std::this_thread::sleep_for(1s);
    rank.barrier();
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    const auto ns = (used.tv_sec - before.tv_sec) * 1'000'000'000 + used.tv_nsec - before.tv_nsec;
    if (ns > 10'000'000) throw std::runtime_error{std::to_string(ns) + " ns of processor time"};
  });
  for (const auto& outcome : outcomes) {
    INFO(outcome.what);
    CHECK_FALSE(outcome.threw);
  }
}
