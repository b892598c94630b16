#include "runtime/world/group_builder.hpp"

#include "runtime/bootstrap/manifest.hpp"
#include "runtime/bootstrap/tcp_store.hpp"
#include "runtime/net/fields.hpp"
#include "runtime/net/mailbox.hpp"
#include "runtime/user_call.hpp"
#include "tests/support/without_threads.hpp"

#include <catch2/catch.hpp>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <future>
#include <mutex>
#include <set>
#include <vector>

using namespace acc::runtime;
using namespace std::chrono_literals;

namespace {

GroupConfig config(int rank, int size, const std::shared_ptr<Store>& store) {
  GroupConfig made;
  made.rank = rank;
  made.size = size;
  made.key = "k";
  made.store = store;
  made.options.init_timeout = 20s;
  made.options.backend = BackendKind::cpu;
  return made;
}

/// What each rank makes of it: "well", or the error.
std::vector<std::string> form(std::vector<GroupConfig> formations) {
  std::vector<std::future<std::string>> ranks;
  for (auto& each : formations) {
    ranks.push_back(std::async(std::launch::async, [each]() -> std::string {
      try {
        const auto group = form_group(each);
        return "well";
      } catch (const Error& error) {
        return std::string{to_string(error.code())} + ": " + error.what();
      }
    }));
  }
  std::vector<std::string> said;
  for (auto& rank : ranks) said.push_back(rank.get());
  return said;
}

/// Knows its keys.
class CountingStore final : public Store {
 public:
  [[nodiscard]] std::string kind() const override { return store_->kind(); }
  void set(const std::string& key, const std::string& value) override {
    store_->set(key, value);
    const std::lock_guard lock{mutex_};
    keys_.insert(key);
  }
  [[nodiscard]] std::string get(const std::string& key, Deadline deadline) override {
    return store_->get(key, deadline);
  }
  [[nodiscard]] std::optional<std::string> peek(const std::string& key) override {
    return store_->peek(key);
  }
  std::int64_t add(const std::string& key, std::int64_t delta) override {
    const auto sum = store_->add(key, delta);
    const std::lock_guard lock{mutex_};
    keys_.insert(key);
    return sum;
  }
  void remove(const std::string& key) override {
    store_->remove(key);
    const std::lock_guard lock{mutex_};
    keys_.erase(key);
  }
  [[nodiscard]] std::set<std::string> keys() {
    const std::lock_guard lock{mutex_};
    return keys_;
  }

 private:
  std::shared_ptr<Store> store_ = make_memory_store();
  std::mutex mutex_;
  std::set<std::string> keys_;
};

std::string here(int rank) {
  return std::to_string(rank) + " (host " + host_facts().name + ", pid " +
         std::to_string(::getpid()) + ")";
}

}  // namespace

TEST_CASE("threads find each other and become a group", "[bootstrap][form]") {
  for (const int size : {1, 2, 5, 8}) {
    auto groups = ProcessGroup::threads(size);
    std::vector<std::future<void>> ranks;
    for (int r = 0; r < size; ++r) {
      ranks.push_back(std::async(std::launch::async, [&groups, r, size] {
        auto& group = groups[static_cast<std::size_t>(r)];
        if (group.rank() != r || group.size() != size || group.local_rank() != r ||
            group.local_size() != size)
          throw std::logic_error{"wrong numbers"};
        group.barrier();
      }));
    }
    for (auto& rank : ranks) CHECK_NOTHROW(rank.get());
    const auto& facts = groups[0].impl().facts();
    CHECK(facts.ranks.size() == static_cast<std::size_t>(size));
    CHECK(facts.ranks.back().pid == ::getpid());
    CHECK(facts.ranks.back().host == host_facts().name);
  }
}

TEST_CASE("a rank that doesn't come is named, and who did, on every rank", "[bootstrap][form]") {
  const auto store = make_memory_store();
  SECTION("one of the last") {
    auto zero = config(0, 3, store), two = config(2, 3, store);
    zero.options.init_timeout = two.options.init_timeout = 900ms;
    const auto said = form({zero, two});
    const auto expected =
        "timed_out: rank 1 of 3 has not joined after 900 ms; joined: " + here(0) + ", " + here(2);
    CHECK(said[0] == expected);
    CHECK(said[1] == expected);
  }
  SECTION("rank 0") {
    auto one = config(1, 3, store), two = config(2, 3, store);
    one.options.init_timeout = two.options.init_timeout = 900ms;
    const auto said = form({one, two});
    CHECK(said[0] ==
          "timed_out: rank 0 of 3 has not joined after 900 ms; joined: " + here(1) + ", " + here(2));
  }
  SECTION("several") {
    auto one = config(1, 8, store);
    one.options.init_timeout = 900ms;
    CHECK(form({one}) ==
          std::vector<std::string>{
              "timed_out: ranks 0,2-7 of 8 have not joined after 900 ms; joined: " + here(1)});
  }
}

TEST_CASE("what fails on one rank fails all at once, long before the timeout",
          "[bootstrap][form]") {
  const auto store = make_memory_store();
  const auto began = Clock::now();
  SECTION("ranks of another world") {
    const auto said = form({config(0, 2, store), config(1, 3, store)});
    const auto expected =
        "invalid_argument: rank " + here(1) + " has a world size of 3, rank " + here(0) + " of 2";
    CHECK(said == std::vector<std::string>(2, expected));
  }
  SECTION("two processes of one rank") {
    const auto said = form({config(0, 3, store), config(1, 3, store), config(1, 3, store)});
    const auto expected =
        "invalid_argument: two processes are one rank: " + here(1) + " and " + here(1);
    CHECK(said == std::vector<std::string>(3, expected));
  }
  SECTION("different backends") {
    auto other = config(1, 2, store);
    other.options.backend = BackendKind::nccl;
    const auto said = form({config(0, 2, store), other});
    CHECK_THAT(said[0], Catch::Contains("the ranks ask for different backends: cpu rank 0 (host") &&
                            Catch::Contains("nccl rank 1 (host"));
    CHECK(said[1] == said[0]);
  }
  SECTION("groups formed in another order, or named otherwise") {
    auto zero = config(0, 3, store), one = config(1, 3, store), two = config(2, 3, store);
    zero.options.name = "train";
    one.options.name = two.options.name = "eval";
    SECTION("all of them") {
      const auto expected =
          "mismatch: rank 0 forms group 'train', ranks 1,2 form group 'eval': every rank must form "
          "the same groups in the same order";
      CHECK(form({zero, one, two}) == std::vector<std::string>(3, expected));
    }
    SECTION("one is missing") {
      zero.options.init_timeout = 900ms;
      CHECK_THAT(form({zero, two}).at(1),
                 Catch::Contains("rank 0 forms group 'train', rank 2 forms group 'eval'"));
    }
  }
  SECTION("one rank that doesn't compare the calls") {
    auto zero = config(0, 2, store), one = config(1, 2, store);
    const bool first = GENERATE(true, false);
    (first ? zero : one).options.check = false;
    const auto expected = "mismatch: rank " + here(first ? 1 : 0) +
                          " compares the ranks' calls, rank " + here(first ? 0 : 1) +
                          " doesn't: GroupOptions::check and ACC_CHECK must be the same on all "
                          "ranks";
    CHECK(form({zero, one}) == std::vector<std::string>(2, expected));
  }
  SECTION("a rank that can't take part, while another is still missing") {
    Member me;
    me.rank = 2;
    me.pid = 7;
    me.host.name = "b";
    auto rank_0 = std::async(std::launch::async, [&] { return form({config(0, 3, store)}); });
    report_failure(*store, "k", me, Error{ErrorCode::system, "no descriptors left"});
    CHECK(rank_0.get() ==
          std::vector<std::string>{"system: rank 2 (host b, pid 7): no descriptors left"});
    CHECK(form({config(1, 3, store)}) ==
          std::vector<std::string>{"system: rank 2 (host b, pid 7): no descriptors left"});
  }
  CHECK(Clock::now() - began < 10s);
}

TEST_CASE("when the ranks of a host can't meet, each says the cause, not that another is gone",
          "[bootstrap][form]") {
  // Rank 1 joins and ends before it reaches the leader; rank 2 finds the leader gone.
  const auto store = make_memory_store();
  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  const auto child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    char none = 0;
    ::close(ready[1]);
    [[maybe_unused]] const auto n = ::read(ready[0], &none, 1);
    ::_exit(3);
  }
  ::close(ready[0]);
  Member dying;
  dying.rank = 1;
  dying.size = 3;
  dying.pid = child;
  dying.host = host_facts();
  dying.local_group = "nobody listens here";
  dying.backend = kWantsCpu;
  dying.group = GroupOptions{}.name;
  Mailbox{*store, "k/members/sent"}.put(pack({"1", to_text(dying)}));
  auto others = std::async(std::launch::async, [&] {
    return form({config(0, 3, store), config(2, 3, store)});
  });
  ::kill(child, SIGKILL);
  const auto said = others.get();
  const auto cause = "rank 1 (host " + host_facts().name + ", pid " + std::to_string(child) +
                     ") is gone: its process ended";
  CHECK(said == std::vector<std::string>(2, "peer_lost: " + cause));
  ::waitpid(child, nullptr, 0);
  ::close(ready[1]);
}

TEST_CASE("ranks of another world are told at once also through rank 0's store",
          "[bootstrap][form]") {
  TcpStorePlace place;
  place.name = "acc-test-form/" + std::to_string(::getpid());
  place.job = "j";
  place.size = 2;
  auto theirs = place;
  theirs.rank = 1;
  theirs.size = 3;
  const auto began = Clock::now();
  const auto zero = open_tcp_store(place, Clock::now() + 10s);
  const auto one = open_tcp_store(theirs, Clock::now() + 10s);
  const auto said = form({config(0, 2, zero), config(1, 3, one)});
  CHECK(said ==
        std::vector<std::string>(2, "invalid_argument: rank " + here(1) +
                                        " has a world size of 3, rank " + here(0) + " of 2"));
  CHECK(Clock::now() - began < 10s);
}

TEST_CASE("threads that can't be started end the group with an Error", "[bootstrap][form]") {
  CHECK_THROWS_WITH(ProcessGroup::threads(1'000'000'000), Catch::Contains("1 to 512 ranks"));
  acc::testing::check_without_threads([] {
    try {
      (void)ProcessGroup::threads(3);
    } catch (const Error& error) {
      const std::string what = error.what();
      return error.code() == ErrorCode::system && what.find("start a thread") != std::string::npos
                 ? 0
                 : 2;
    } catch (...) {
      return 3;
    }
    return 4;
  });
}

TEST_CASE("a rank that says what is the default anyway agrees with the others",
          "[bootstrap][form]") {
  const auto store = make_memory_store();
  std::vector<std::future<std::shared_ptr<Group>>> ranks;
  for (int r = 0; r < 3; ++r) {
    auto mine = config(r, 3, store);
    if (r == 1) mine.options.check = true;
    ranks.push_back(std::async(std::launch::async, [mine] { return form_group(mine); }));
  }
  for (auto& rank : ranks) CHECK(rank.get()->options().check == true);
}

TEST_CASE("a split whose name differs by rank is refused, and the parent stays",
          "[bootstrap][form]") {
  auto groups = ProcessGroup::threads(2);
  std::vector<std::future<std::string>> ranks;
  for (auto& group : groups) {
    ranks.push_back(std::async(std::launch::async, [&group]() -> std::string {
      try {
        (void)group.split(0, group.rank(), group.rank() == 0 ? "one" : "two");
        return "formed";
      } catch (const Error& error) {
        group.barrier();
        return error.what();
      }
    }));
  }
  for (auto& rank : ranks)
    CHECK(
        rank.get() ==
        "rank 0 forms group 'one', rank 1 forms group 'two': every rank must form the same groups "
        "in the same order");
}

TEST_CASE("groups split into groups", "[bootstrap][form]") {
  auto groups = ProcessGroup::threads(5);
  std::vector<std::future<std::vector<int>>> ranks;
  for (auto& group : groups) {
    ranks.push_back(std::async(std::launch::async, [&group] {
      const auto odd = group.split(group.rank() % 2, -group.rank(), "odd");
      return std::vector{odd.rank(), odd.size(), odd.local_size()};
    }));
  }
  const std::vector<std::vector<int>> expected{
      {2, 3, 3}, {1, 2, 2}, {1, 3, 3}, {0, 2, 2}, {0, 3, 3}};
  for (std::size_t r = 0; r < ranks.size(); ++r) CHECK(ranks[r].get() == expected[r]);
}

TEST_CASE("sub-groups that are made and dropped leave no keys in the store", "[bootstrap][form]") {
  const auto store = std::make_shared<CountingStore>();
  std::vector<std::future<std::shared_ptr<Group>>> forming;
  for (int r = 0; r < 3; ++r)
    forming.push_back(
        std::async(std::launch::async, [mine = config(r, 3, store)] { return form_group(mine); }));
  std::vector<std::shared_ptr<Group>> groups;
  for (auto& each : forming) groups.push_back(each.get());
  const auto of_the_job = store->keys();
  std::vector<std::future<void>> ranks;
  for (int r = 0; r < 3; ++r)
    ranks.push_back(std::async(std::launch::async, [&, r] {
      auto& group = *groups[static_cast<std::size_t>(r)];
      for (int i = 0; i < 3; ++i) {
        const auto pair = group.sub_group(std::array{2, 0}, "", {});
        const auto all = group.split(0, r, "", {});
        const auto inner = all->split(r == 1 ? 1 : 0, 0, "", {});
      }
    }));
  for (auto& rank : ranks) CHECK_NOTHROW(rank.get());
  CHECK(store->keys() == of_the_job);
}

TEST_CASE("a rank that dies while a sub-group forms is known at once, not after the time to join",
          "[bootstrap][form]") {
  const auto store = make_memory_store();
  std::vector<std::future<std::shared_ptr<Group>>> forming;
  for (int r = 0; r < 3; ++r) {
    auto mine = config(r, 3, store);
    mine.options.init_timeout = 300s;
    forming.push_back(std::async(std::launch::async, [mine] { return form_group(mine); }));
  }
  std::vector<std::shared_ptr<Group>> groups;
  for (auto& each : forming) groups.push_back(each.get());
  std::vector<std::future<std::string>> survivors;
  for (int r = 0; r < 2; ++r) {
    survivors.push_back(std::async(std::launch::async, [&, r]() -> std::string {
      try {
        (void)groups[static_cast<std::size_t>(r)]->split(0, r, "part", {});
        return "formed";
      } catch (const Error& error) {
        return std::string{to_string(error.code())} + ": " + error.what();
      }
    }));
  }
  // Rank 2 takes part in the exchange of colors, and dies before it joins.
  const std::array<std::int64_t, 2> wish{0, 2};
  std::array<std::int64_t, 6> wishes{};
  Call call;
  call.what.operation = Operation::all_gather;
  call.what.dtype = DType::i64;
  call.what.count = 2;
  call.send = wish.data();
  call.recv = wishes.data();
  {
    const InUserCall within{UserCall::split};
    groups[2]->run(call, {});
  }
  groups[0]->backend().lost(2, "killed by SIGKILL");
  for (auto& survivor : survivors) {
    REQUIRE(survivor.wait_for(60s) == std::future_status::ready);
    CHECK_THAT(survivor.get(), Catch::StartsWith("peer_lost: ") && Catch::Contains("rank 2"));
  }
}

TEST_CASE("nonsense is refused without asking anybody", "[bootstrap][form]") {
  CHECK_THROWS_AS(form_group(config(2, 2, make_memory_store())), Error);
  CHECK_THROWS_AS(form_group(config(0, 0, make_memory_store())), Error);
  CHECK_THROWS_AS(form_group(config(0, 2, nullptr)), Error);
  CHECK_THROWS_AS(ProcessGroup::threads(0), Error);
}
