#include <catch2/catch.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <acc/error.hpp>
#include <acc/prefetch.hpp>
#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

using namespace acc::runtime;
using namespace std::chrono_literals;

namespace {

/// A gate that opens when it is told to.
class Gate {
 public:
  void open() {
    {
      const std::scoped_lock lock{mutex_};
      open_ = true;
    }
    changed_.notify_all();
  }
  void pass() {
    std::unique_lock lock{mutex_};
    if (!changed_.wait_for(lock, 20s, [&] { return open_; }))
      throw std::runtime_error{"the gate stayed shut for 20 s"};
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

std::optional<int> number_below(std::size_t count, std::size_t number) {
  if (number >= count) return std::nullopt;
  return static_cast<int>(number);
}

PrefetchOptions with(unsigned workers, std::size_t ahead = 2) {
  return {workers, ahead, 20s, "loader"};
}

}  // namespace

TEST_CASE("items are returned in order, whichever thread made them", "[runtime][data]") {
  for (const unsigned workers : {0U, 1U, 2U, 5U}) {
    CAPTURE(workers);
    Prefetcher<int> prefetcher{[](std::size_t number) {
                                 if (number % 3 == 0) std::this_thread::yield();
                                 return number_below(500, number);
                               },
                               with(workers)};
    for (int expected = 0; expected < 500; ++expected) CHECK(prefetcher.next() == expected);
    CHECK_FALSE(prefetcher.next().has_value());
    CHECK_FALSE(prefetcher.next().has_value());
  }
}

TEST_CASE("a late first thing doesn't let a later one pass", "[runtime][data]") {
  Gate gate;
  std::atomic<int> made{0};
  Prefetcher<int> prefetcher{[&](std::size_t number) {
                               if (number == 0) gate.pass();
                               if (number == 3) gate.open();  // the others are ready by now
                               ++made;
                               return number_below(8, number);
                             },
                             with(2, 2)};
  for (int expected = 0; expected < 8; ++expected) CHECK(prefetcher.next() == expected);
  CHECK(made >= 8);
}

TEST_CASE("no more is made than may be held", "[runtime][data]") {
  std::mutex mutex;
  std::condition_variable changed;
  std::size_t most = 0;
  Prefetcher<int> prefetcher{[&](std::size_t number) {
                               const std::scoped_lock lock{mutex};
                               most = std::max(most, number + 1);
                               changed.notify_all();
                               return number_below(100, number);
                             },
                             with(3, 2)};
  for (std::size_t taken = 0; taken < 50; ++taken) {
    {
      std::unique_lock lock{mutex};
      // They come as far as they may ...
      REQUIRE(changed.wait_for(lock, 20s, [&] { return most == taken + 6; }));
    }
    REQUIRE(prefetcher.next().has_value());
    const std::scoped_lock lock{mutex};
    CHECK(most <= taken + 1 + 6);  // ... and no further
  }
}

TEST_CASE("what is thrown comes out at its place, and the rest behind it", "[runtime][data]") {
  for (const unsigned workers : {0U, 1U, 3U}) {
    CAPTURE(workers);
    Prefetcher<int> prefetcher{[](std::size_t number) {
                                 if (number == 2) throw std::runtime_error{"sample 2 is bad"};
                                 return number_below(4, number);
                               },
                               with(workers)};
    CHECK(prefetcher.next() == 0);
    CHECK(prefetcher.next() == 1);
    CHECK_THROWS_WITH(prefetcher.next(), "sample 2 is bad");
    CHECK(prefetcher.next() == 3);
    CHECK_FALSE(prefetcher.next().has_value());
  }
}

TEST_CASE("it may be left in the middle", "[runtime][data]") {
  for (int i = 0; i < 50; ++i) {
    std::atomic<int> running{0};
    {
      Prefetcher<int> prefetcher{[&](std::size_t number) {
                                   ++running;
                                   std::this_thread::yield();
                                   --running;
                                   return number_below(1000, number);
                                 },
                                 with(4)};
      for (int j = 0; j < i % 5; ++j) (void)prefetcher.next();
    }
    CHECK(running == 0);  // no thread works after its end
  }
}

TEST_CASE("a thing that never comes is an error that names it", "[runtime][data]") {
  Gate gate;
  Prefetcher<int> prefetcher{[&](std::size_t number) {
                               if (number == 1) gate.pass();
                               return number_below(4, number);
                             },
                             {1, 2, 50ms, "training data"}};
  CHECK(prefetcher.next() == 0);
  try {
    (void)prefetcher.next();
    FAIL("it came");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::timed_out);
    CHECK(std::string{error.what()} ==
          "training data: batch 1 is not there after 50 ms: reading its samples hangs or is too "
          "slow");
  }
  gate.open();
  CHECK(prefetcher.waited() >= 0ns);
}

TEST_CASE("a read that never returns ends the process, which would hang without a word",
          "[runtime][data]") {
  std::array<int, 2> ends{};
  REQUIRE(::pipe(ends.data()) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], STDERR_FILENO);
    try {
      Prefetcher<int> prefetcher{[](std::size_t) -> std::optional<int> {
                                   for (;;) ::pause();
                                 },
                                 {1, 2, 20ms, "training data", 30ms}};
      (void)prefetcher.next();
    } catch (const Error&) {  // it can't come as far as this
    }
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string said(1000, '\0');
  const auto length = ::read(ends[0], said.data(), said.size());
  ::close(ends[0]);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 74);
  said.resize(length > 0 ? static_cast<std::size_t>(length) : 0);
  CHECK(said ==
        "acc: training data: batch 0 is not there after 20 ms: reading its samples hangs or is too "
        "slow, and still does 30 ms later: the process ends with status 74\n");
}

TEST_CASE("a batch that came late at last ended the process when its loader was left later on",
          "[runtime][data]") {
  const pid_t child = ::fork();
  if (child == 0) {
    Gate late;
    {
      Prefetcher<int> prefetcher{[&](std::size_t number) -> std::optional<int> {
                                   if (number == 0) late.pass();
                                   if (number == 1) ::usleep(300'000);  // longer than the patience
                                   return 0;
                                 },
                                 {1, 1, 50ms, "training data", 30ms}};
      try {
        (void)prefetcher.next();
        ::_exit(1);
      } catch (const Error&) {
        late.open();
      }
      for (bool has_come = false; !has_come;) {
        try {
          has_come = prefetcher.next().has_value();
        } catch (const Error&) {
        }
      }
    }
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("time spent in waiting is told", "[runtime][data]") {
  Prefetcher<int> prefetcher{[](std::size_t number) {
                               const auto until = std::chrono::steady_clock::now() + 5ms;
                               while (std::chrono::steady_clock::now() < until) {
                               }
                               return number_below(2, number);
                             },
                             with(0)};
  (void)prefetcher.next();
  CHECK(prefetcher.waited() >= 5ms);
}
