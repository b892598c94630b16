#include "agent/daemon/quota_owners.hpp"

#include "common/log.hpp"

#include <boost/asio/executor_work_guard.hpp>
#include <catch2/catch.hpp>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

using namespace acc;
using namespace acc::agent::daemon;

TEST_CASE("the daemon aborted at a user's connection when no thread was left", "[agent][http]") {
  boost::asio::io_context io{1};
  bool has_threads = false;
  QuotaOwners owners{io, 500, [](uid_t) { return true; },
                     [&] {
                       if (!has_threads)
                         throw std::system_error{EAGAIN, std::generic_category(), "thread"};
                       return std::make_unique<boost::asio::thread_pool>(1);
                     }};
  std::optional<bool> told;
  owners.find(1001, [&](bool has_account) { told = has_account; });
  CHECK(told == false);
  has_threads = true;  // it isn't taken for one without an account later on
  told.reset();
  const auto work = boost::asio::make_work_guard(io);
  owners.find(1001, [&](bool has_account) { told = has_account; });
  while (!told) io.run_one();
  CHECK(told == true);
}

TEST_CASE("the daemon's log had a line for each connection while no thread was left",
          "[agent][http]") {
  boost::asio::io_context io{1};
  const auto no_thread = []() -> std::unique_ptr<boost::asio::thread_pool> {
    throw std::system_error{EAGAIN, std::generic_category(), "thread"};
  };
  QuotaOwners owners{io, 500, [](uid_t) { return true; }, no_thread};
  std::string seen;
  log::set_writer([&](std::string_view line) { seen += line; });
  for (int i = 0; i < 100; ++i) owners.find(1001, [](bool) {});
  log::set_writer([](std::string_view line) {  // which ends the first one
    std::fwrite(line.data(), 1, line.size(), stderr);
  });
  CHECK(std::ranges::count(seen, '\n') == 1);
  CHECK_THAT(seen, Catch::Contains("not_logged"));
}

SCENARIO("the thousands of uids of one user have one share together", "[agent][http]") {
  GIVEN("a machine with an account for the uid 1001") {
    boost::asio::io_context io{1};
    const auto work = boost::asio::make_work_guard(io);
    std::atomic<int> looked = 0;
    QuotaOwners owners{io, 500, [&](uid_t uid) {
                         ++looked;
                         return uid == 1001;
                       }};
    const auto find = [&](uid_t uid) {
      std::optional<bool> told;
      owners.find(uid, [&](bool has_account) { told = has_account; });
      while (!told) io.run_one();
      return *told;
    };
    THEN("root and the daemon's user need none, and nothing is looked up for them") {
      CHECK(find(0));
      CHECK(find(500));
      CHECK(looked == 0);
    }
    THEN("each uid is looked up once") {
      for (int i = 0; i < 3; ++i) {
        CHECK(find(1001));
        CHECK_FALSE(find(100'001));
      }
      CHECK(looked == 2);
    }
    THEN("many uids at once don't wait for their look-ups") {
      std::size_t without = 0;
      const auto count = [&](bool has_account) { without += has_account ? 0 : 1; };
      for (uid_t i = 0; i < QuotaOwners::kMostUids; ++i) owners.find(100'000 + i, count);
      CHECK(without == 0);
      owners.find(200'000, count);
      CHECK(without == 1);
      while (without < QuotaOwners::kMostUids + 1) io.run_one();
    }
    THEN("questions about one uid wait for one look-up, and too many don't wait") {
      int with = 0;
      int without = 0;
      const auto count = [&](bool has_account) { ++(has_account ? with : without); };
      constexpr int kOfOne = static_cast<int>(QuotaOwners::kMostWaitingOfOne);
      for (int i = 0; i < kOfOne; ++i) owners.find(1001, count);
      CHECK(with == 0);
      owners.find(1001, count);
      CHECK(without == 1);
      const int others = static_cast<int>(QuotaOwners::kMostWaiting) - kOfOne;
      for (int i = 0; i < others; ++i) owners.find(100'000 + static_cast<uid_t>(i / kOfOne), count);
      CHECK(without == 1);
      owners.find(200'000, count);
      CHECK(without == 2);
      while (with < kOfOne || without < others + 2) io.run_one();
      CHECK(looked == 1 + others / kOfOne);
      CHECK_FALSE(find(200'000));
    }
  }
}
