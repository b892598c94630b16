#include "runtime/group/group.hpp"

#include "tests/support/thread_groups.hpp"
#include "tests/unit/runtime/group/scripted_backend.hpp"

#include <catch2/catch.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <acc/agent.hpp>
#include <array>
#include <new>

using namespace acc::runtime;
using acc::testing::Scripted;
using namespace std::chrono_literals;

namespace {

template <class F>
Error error_of(F f) {
  try {
    f();
  } catch (const Error& e) {
    return e;
  }
  FAIL("no error came");
  throw;
}

}  // namespace

TEST_CASE("a wrong call is refused before any communication, and the group stays usable",
          "[group]") {
  Scripted s;
  float x = 1;
  const auto e = error_of([&] { s.group.broadcast(&x, 1, DType::f32, 2); });
  CHECK(e.code() == ErrorCode::invalid_argument);
  CHECK(e.operation() == "broadcast");
  CHECK(std::string{e.what()} ==
        "broadcast root 2 on group 'world', rank 0 of 2: the root isn't a rank of the group");
  CHECK(s.script->calls.empty());
  CHECK_FALSE(s.group.broken());
  s.group.broadcast(&x, 1, DType::f32, 1);
  CHECK(s.script->calls.at(0).what.sequence == 1);  // the refused one doesn't count
}

TEST_CASE("a span that is too short for what all ranks send is refused, not written behind",
          "[group]") {
  auto group = ProcessGroup::single();
  std::array<float, 4> send{};
  std::array<float, 8> recv{};
  const auto gathered =
      error_of([&] { group.all_gather(std::span<const float>{send}, std::span<float>{recv}); });
  CHECK(gathered.code() == ErrorCode::invalid_argument);
  CHECK(std::string{gathered.what()} ==
        "all_gather: recv has 8 elements, where send's 4 from each of 1 ranks are needed "
        "(group 'world')");
  const auto scattered =
      error_of([&] { group.reduce_scatter(std::span<const float>{send}, std::span<float>{recv}); });
  CHECK(std::string{scattered.what()}.starts_with("reduce_scatter: send has 4 elements"));
  CHECK_FALSE(group.broken());
}

TEST_CASE("calls are numbered: collectives together, messages by peer", "[group]") {
  Scripted s{0, 3};
  float x = 1;
  s.group.barrier();
  s.group.send(&x, 1, DType::f32, 1);
  s.group.send(&x, 1, DType::f32, 2);
  s.group.send(&x, 1, DType::f32, 1);
  s.group.recv(&x, 1, DType::f32, 1);
  s.group.all_reduce(&x, &x, 0, DType::f32);  // nothing to do, but it counts
  std::vector<std::uint64_t> numbers;
  for (const auto& call : s.script->calls) numbers.push_back(call.what.sequence);
  CHECK(numbers == std::vector<std::uint64_t>{1, 1, 1, 2, 1, 2});
}

TEST_CASE("the limit is the call's, else the group's, else half an hour", "[group]") {
  GroupOptions options;
  Scripted plain;
  plain.group.barrier();
  CHECK(plain.script->calls.at(0).limit == 1800s);
  options.timeout = 7s;
  Scripted s{0, 2, options};
  s.group.barrier();
  s.group.barrier({.timeout = 250ms});
  s.group.barrier({.timeout = 0ms});
  CHECK(s.script->calls.at(0).limit == 7s);
  CHECK(s.script->calls.at(1).limit == 250ms);
  CHECK(s.script->calls.at(2).limit == 0ms);
}

TEST_CASE("a timeout computed as what is left of a passed deadline doesn't mean for ever",
          "[group]") {
  const auto left = GENERATE(Millis{-1}, Millis{-5000}, Millis::min());
  const auto is_refused = [](auto work) {
    const auto e = error_of(work);
    CHECK_THAT(e.what(), Catch::Contains("negative"));
    return e.code() == ErrorCode::invalid_argument;
  };
  Scripted s{0, 2};
  float x = 1;
  CHECK(is_refused([&] { s.group.barrier({.timeout = left}); }));
  CHECK(is_refused([&] { s.group.send(&x, 1, DType::f32, 1, {.timeout = left}); }));
  CHECK(is_refused([&] {
    (void)s.group.all_reduce_async(std::span{&x, 1}, {}, {.timeout = left});
  }));
  CHECK(is_refused([&] { (void)s.group.all_gather_object("x", {.timeout = left}); }));
  CHECK(is_refused([&] { (void)s.group.split(0, 0, {}, {.timeout = left}); }));
  CHECK(is_refused([&] { (void)s.group.allocate_shared(64, {.timeout = left}); }));
  CHECK_FALSE(s.group.broken());
  CHECK(s.script->calls.empty());
  const auto work = s.group.barrier_async();
  CHECK(is_refused([&] { work.wait(left); }));
  work.wait();
  CHECK(s.script->calls.at(0).what.sequence == 1);  // none of them was counted

  GroupOptions options;
  options.init_timeout = left;
  CHECK(is_refused([&] { (void)ProcessGroup::single(options); }));
  options.init_timeout.reset();
  options.timeout = left;
  CHECK(is_refused([&] { (void)ProcessGroup::single(options); }));
  CHECK(is_refused([&] { (void)ProcessGroup::threads(2, options); }));
  CHECK(is_refused([&] { (void)acc::agent::is_current(left); }));
}

TEST_CASE("where several ranks abort, each of them goes on to name the first", "[group]") {
  GroupOptions options;
  options.backend = BackendKind::cpu;
  auto groups = ProcessGroup::threads(3, options);
  std::vector<int> values(4);
  const auto receiving = groups[2].recv_async(std::span{values}, 1);
  for (const int rank : {0, 1, 2}) groups[static_cast<std::size_t>(rank)].abort("self");
  const auto first = error_of([&] { receiving.wait(); });
  CHECK_THAT(first.what(), Catch::Contains("aborted by rank 0: self"));
  for (auto& group : groups) {
    const auto e = error_of([&] { group.barrier(); });
    CHECK(e.code() == ErrorCode::aborted);
    CHECK(e.ranks() == std::vector{0});
    CHECK_THAT(e.what(), Catch::Contains("aborted by rank 0: self"));
  }
}

TEST_CASE("the longest timeout there is doesn't wrap around", "[group]") {
  GroupOptions options;
  options.backend = BackendKind::cpu;
  options.init_timeout = Millis::max();
  options.timeout = Millis::max();
  auto groups = ProcessGroup::threads(2, options);
  acc::testing::on_all(groups, [&](ProcessGroup& group) {
    group.barrier();
    group.barrier({.timeout = Millis::max()});
    group.barrier_async().wait(Millis::max());
  });
  CHECK_FALSE(groups[0].broken());
}

TEST_CASE("after a failure every later call fails at once with the first cause", "[group]") {
  Scripted s;
  s.script->on_call = [](const Call&) {
    throw Error{ErrorCode::peer_lost, "rank 1 was killed by SIGKILL", {1}, "all_reduce", 17};
  };
  float x = 1;
  const auto first = error_of([&] { s.group.all_reduce(&x, &x, 1, DType::f32); });
  CHECK(std::string{first.what()} == "rank 1 was killed by SIGKILL");
  CHECK(s.group.broken());
  for (int i = 0; i < 2; ++i) {
    const auto e = error_of([&] { s.group.barrier(); });
    CHECK(e.code() == ErrorCode::peer_lost);
    CHECK(e.ranks() == std::vector{1});
    CHECK(e.operation() == "all_reduce");
    CHECK(e.sequence() == 17);
    CHECK(std::string{e.what()} == "group 'world' is broken: rank 1 was killed by SIGKILL");
  }
  CHECK(s.script->calls.size() == 1);
  s.group.abort();  // late: the first cause stays
  CHECK(error_of([&] { s.group.barrier(); }).code() == ErrorCode::peer_lost);
}

TEST_CASE("a backend that refuses a call leaves the group usable", "[group]") {
  Scripted s;
  s.script->on_call = [](const Call&) { throw Error{ErrorCode::invalid_argument, "not here"}; };
  CHECK(error_of([&] { s.group.barrier(); }).code() == ErrorCode::invalid_argument);
  CHECK_FALSE(s.group.broken());
}

TEST_CASE("a failure that only this rank knows is told to the peers", "[group]") {
  Scripted s;
  s.script->on_call = [](const Call&) { throw std::bad_alloc{}; };
  const auto e = error_of([&] { s.group.barrier(); });
  CHECK(e.code() == ErrorCode::system);
  CHECK(e.operation() == "barrier");
  CHECK_THAT(e.what(), Catch::StartsWith("barrier #1 on group 'world': "));
  CHECK(s.script->aborts.size() == 1);
}

TEST_CASE("abort from another thread wakes the one that waits", "[group]") {
  Scripted s;
  s.script->hold(true);
  std::thread other{[&] {
    REQUIRE(s.script->await_calls(1));
    s.group.abort("enough");
  }};
  const auto e = error_of([&] { s.group.barrier(); });
  other.join();
  CHECK(e.code() == ErrorCode::aborted);
  CHECK(std::string{e.what()} == "group 'world' was aborted by rank 0: enough");
  CHECK(error_of([&] { s.group.barrier(); }).code() == ErrorCode::aborted);
}

TEST_CASE("an empty group refuses everything but abort", "[group]") {
  ProcessGroup none;
  CHECK_FALSE(none);
  CHECK(error_of([&] { none.barrier(); }).code() == ErrorCode::invalid_argument);
  CHECK(error_of([&] { (void)none.rank(); }).code() == ErrorCode::invalid_argument);
  none.abort();
}

TEST_CASE("shared memory is asked of the backend as a call of its own", "[group]") {
  Scripted s;
  const auto buffer = s.group.allocate_shared(256);
  CHECK(buffer.as<float>().size() == 64);
  CHECK(s.script->calls.at(0).what.operation == Operation::allocate);
  CHECK(s.script->calls.at(0).what.count == 256);
}

TEST_CASE("the flight record tells what is done, failed and running", "[group]") {
  Scripted s;
  float x = 1;
  s.group.all_reduce(&x, &x, 1, DType::f32, ReduceOp::max);
  s.script->on_call = [&](const Call&) {
    CHECK_THAT(s.group.flight_record(),
               Catch::Contains("\"barrier\"") && Catch::Contains("running"));
    throw Error{ErrorCode::timed_out, "late"};
  };
  CHECK(error_of([&] { s.group.barrier(); }).code() == ErrorCode::timed_out);
  const auto lines = s.group.flight_record();
  CHECK(std::count(lines.begin(), lines.end(), '\n') == 2);
  CHECK_THAT(lines, Catch::Contains("\"reduce\":\"max\"") &&
                        Catch::Contains("\"state\":\"done\"") &&
                        Catch::Contains("\"state\":\"failed\""));
}

TEST_CASE("a forked process can neither use nor harm the group of its parent", "[group]") {
  Scripted s;
  s.group.barrier_async().wait();  // there is a thread that the child won't have
  s.script->hold(true);
  const auto begun = s.group.barrier_async();
  REQUIRE(s.script->await_calls(2));
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(10);  // a child that hangs ends
    bool refused = false;
    try {
      s.group.barrier();
    } catch (const Error& e) {
      refused = e.code() == ErrorCode::invalid_argument &&
                std::string{e.what()}.find("was forked") != std::string::npos;
    }
    try {
      begun.wait();
      refused = false;
    } catch (const Error& e) {
      refused = refused && e.code() == ErrorCode::invalid_argument &&
                std::string{e.what()}.find("was forked") != std::string::npos;
    }
    s.group = ProcessGroup{};  // destroyed
    ::_exit(refused && s.script->aborts.empty() ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
  s.script->hold(false);
  begun.wait();
  s.group.barrier();
  CHECK(s.script->calls.size() == 3);
}
