// What goes wrong on one host is the same error on all, in time.
#include "runtime/bootstrap/tcp_store.hpp"

#include <catch2/catch.hpp>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <thread>
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
      std::atomic<int> failed{0};
      on_ranks(groups, [](ProcessGroup& group) { group.barrier(); });
      const auto began = SteadyClock::now();
      const auto said = on_ranks(groups, [&](ProcessGroup& group) {
        if (group.rank() == late) {
          while (failed.load() + 1 < group.size()) std::this_thread::yield();
          return;
        }
        struct Count {
          std::atomic<int>& all;
          ~Count() { all.fetch_add(1); }
        } const count{failed};
        sum(group, 100'000, ReduceOp::sum, {.timeout = 200ms});
      });
      CHECK(SteadyClock::now() - began < 2s);
      for (int r = 0; r < static_cast<int>(layout.size()); ++r) {
        const auto& text = said[static_cast<std::size_t>(r)];
        if (r == late) {
          CHECK(text == "well");
          continue;
        }
        CHECK_THAT(text, Catch::StartsWith("timed_out: all_reduce f32 x100000 sum #2"));
        CHECK_THAT(text, Catch::Contains("timed out after 200 ms: rank " + std::to_string(late) +
                                         " (host " + layout[static_cast<std::size_t>(late)]));
        CHECK_THAT(text, Catch::Contains("has not come; it last completed barrier"));
        CHECK_THAT(text, !Catch::Contains("rank " + std::to_string(r) + " (host"));
      }
    }
  }
}

TEST_CASE("a message that doesn't come names its sender", "[tcp][hosts]") {
  auto groups = hosted_groups("ab");
  std::atomic<bool> done{false};
  const auto said = on_ranks(groups, [&](ProcessGroup& group) {
    group.barrier();
    if (group.rank() == 1) {
      while (!done) std::this_thread::yield();
      return;
    }
    struct Done {
      std::atomic<bool>& flag;
      ~Done() { flag = true; }
    } const at_end{done};
    float value = 0;
    group.recv(&value, 1, DType::f32, 1, {.timeout = 150ms});
  });
  CHECK_THAT(said[0], Catch::StartsWith("timed_out: recv f32 x1") &&
                          Catch::Contains("rank 1 (host b") &&
                          Catch::Contains("has not sent; it last completed barrier"));
}

TEST_CASE("abort on one rank wakes all waiters of all hosts", "[tcp][hosts]") {
  for (const int who : {0, 1, 3}) {
    CAPTURE(who);
    auto groups = hosted_groups("aabb");
    std::atomic<int> waiting{0};
    std::atomic<std::int64_t> aborted_at{0}, woke_at{0};
    const auto now = [] { return SteadyClock::now().time_since_epoch().count(); };
    const auto said = on_ranks(groups, [&](ProcessGroup& group) {
      group.barrier();
      if (group.rank() == who) {
        while (waiting.load() < 3) std::this_thread::yield();
        aborted_at = now();
        group.abort("enough");
        return;
      }
      waiting.fetch_add(1);
      try {
        sum(group, 1000);
      } catch (...) {
        auto last = woke_at.load();
        const auto mine = now();
        while (last < mine && !woke_at.compare_exchange_weak(last, mine)) {
        }
        throw;
      }
    });
    for (int r = 0; r < 4; ++r) {
      if (r == who) continue;
      CHECK_THAT(said[static_cast<std::size_t>(r)], Catch::StartsWith("aborted: "));
      CHECK_THAT(said[static_cast<std::size_t>(r)], Catch::Contains("enough"));
    }
    CHECK(std::chrono::nanoseconds{woke_at - aborted_at} < 500ms);
    CHECK_THROWS_AS(groups[0].barrier(), Error);  // for good
    CHECK_THROWS_AS(groups[3].barrier(), Error);
  }
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

/// Ranks as processes on pretended hosts; each writes what it says into shared memory.
class Processes {
 public:
  Processes(const std::string& layout, std::chrono::milliseconds timeout,
            const std::function<void(ProcessGroup&)>& body) {
    void* at =
        ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(at != MAP_FAILED);
    shared_ = new (at) Shared;
    TcpStorePlace place;
    place.name = "acc-test-hosts/" + std::to_string(::getpid()) + "/" + std::to_string(++count_);
    place.size = static_cast<int>(layout.size());
    for (std::size_t r = 0; r < layout.size(); ++r) {
      const auto pid = ::fork();
      REQUIRE(pid >= 0);
      if (pid == 0) play(r, layout, place, timeout, body);
      pids_.push_back(pid);
    }
  }
  ~Processes() {
    for (const auto pid : pids_) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
    ::munmap(shared_, sizeof(Shared));
  }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  void signal(std::size_t rank, int signal_number) const { ::kill(pids_[rank], signal_number); }
  void await_ready() const {
    const auto until = SteadyClock::now() + 20s;
    while (shared_->ready.load() < static_cast<int>(pids_.size()) && SteadyClock::now() < until)
      std::this_thread::yield();
    REQUIRE(shared_->ready.load() == static_cast<int>(pids_.size()));
  }
  /// What a rank says in the end.
  [[nodiscard]] std::string said(std::size_t rank, std::chrono::milliseconds limit) const {
    const auto until = SteadyClock::now() + limit;
    while (!shared_->done[rank].load() && SteadyClock::now() < until) std::this_thread::yield();
    return shared_->done[rank].load() ? shared_->text[rank] : "nothing";
  }
  [[nodiscard]] pid_t pid(std::size_t rank) const { return pids_[rank]; }

 private:
  struct Shared {
    std::atomic<int> ready{0};
    std::atomic<bool> done[8]{};
    char text[8][1024]{};
  };

  [[noreturn]] void play(std::size_t rank, const std::string& layout, TcpStorePlace place,
                         std::chrono::milliseconds timeout,
                         const std::function<void(ProcessGroup&)>& body) const {
    std::string text = "well";
    ProcessGroup group;
    try {
      place.rank = static_cast<int>(rank);
      Formation mine;
      mine.rank = place.rank;
      mine.size = place.size;
      mine.key = "processes";
      mine.store = open_tcp_store(place, SteadyClock::now() + 20s);
      mine.options.backend = BackendKind::cpu;
      mine.options.init_timeout = 20s;
      mine.options.timeout = timeout;
      mine.master_address = "127.0.0.1";
      mine.host = HostFacts{"key of " + std::string(1, layout[rank]), std::string(1, layout[rank]),
                            "one network"};
      group = ProcessGroup{form_group(std::move(mine))};
      group.barrier();
      shared_->ready.fetch_add(1);
      body(group);
    } catch (const Error& error) {
      text = std::string{to_string(error.code())} + ": " + error.what();
    }
    text.copy(shared_->text[rank], sizeof shared_->text[rank] - 1);
    shared_->done[rank] = true;
    for (;;) ::pause();  // others may still want to hear of it; the test ends us
  }

  static inline int count_ = 0;
  Shared* shared_;
  std::vector<pid_t> pids_;
};

void sum_for_ever(ProcessGroup& group) {
  for (;;) sum(group, 50'000);
}

}  // namespace

TEST_CASE("a killed process is named on all hosts at once", "[tcp][hosts]") {
  for (const std::string layout : {"ab", "aabb", "abc"}) {
    for (std::size_t victim = 0; victim < layout.size(); ++victim) {
      CAPTURE(layout, victim);
      const Processes ranks{layout, 20s, sum_for_ever};
      ranks.await_ready();
      const auto killed = SteadyClock::now();
      ranks.signal(victim, SIGKILL);
      for (std::size_t r = 0; r < layout.size(); ++r) {
        if (r == victim) continue;
        const auto text = ranks.said(r, 5s);
        CHECK_THAT(text, Catch::StartsWith("peer_lost: all_reduce f32 x50000 sum #"));
        CHECK_THAT(text,
                   Catch::Contains("rank " + std::to_string(victim) + " (host " + layout[victim] +
                                   ", pid " + std::to_string(ranks.pid(victim))));
      }
      CHECK(SteadyClock::now() - killed < 1s);
    }
  }
}

TEST_CASE("a stopped process is named when the time is up", "[tcp][hosts]") {
  for (const std::size_t victim : {0UL, 1UL, 2UL}) {
    CAPTURE(victim);
    const Processes ranks{"aab", 300ms, sum_for_ever};
    ranks.await_ready();
    ranks.signal(victim, SIGSTOP);
    for (std::size_t r = 0; r < 3; ++r) {
      if (r == victim) continue;
      const auto text = ranks.said(r, 5s);
      CHECK_THAT(text, Catch::StartsWith("timed_out: all_reduce"));
      CHECK_THAT(text, Catch::Contains("rank " + std::to_string(victim) + " (host"));
      CHECK_THAT(text, Catch::Contains("stopped"));
    }
  }
}
