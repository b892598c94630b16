#include "common/heartbeat_page.hpp"
#include "runtime/capi/handles.hpp"
#include "tests/support/thread_groups.hpp"

#include <catch2/catch.hpp>

#include <acc/acc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <thread>

extern "C" int acc_test_from_c(void);

namespace {

/// n communicators over the reference backend, each used by a thread of its own.
template <class Body>
void on_ranks(int n, Body body) {
  auto groups = acc::testing::thread_groups(n);
  std::vector<std::thread> threads;
  std::vector<std::string> faults(static_cast<std::size_t>(n));
  for (int r = 0; r < n; ++r)
    threads.emplace_back([&, r] {
      const auto at = static_cast<std::size_t>(r);
      auto* comm = new acc_comm{groups[at]};
      try {
        body(comm);
      } catch (const std::exception& e) {
        faults[at] = e.what();
        acc_abort(comm, e.what());
      }
      acc_finalize(comm);
    });
  for (auto& thread : threads) thread.join();
  for (const auto& fault : faults) CHECK(fault == "");
}

void expect(bool truth, const std::string& what) {
  if (!truth) throw std::runtime_error{what + "; last error: " + acc_last_error()};
}
#define EXPECT_OK(call) expect((call) == ACC_OK, #call)

std::string object(const acc_objects* objects, std::size_t i) {
  return {static_cast<const char*>(acc_objects_data(objects, i)), acc_objects_size(objects, i)};
}

struct Alone {
  acc_comm* comm = new acc_comm{acc::testing::thread_groups(1)[0]};
  ~Alone() { acc_finalize(comm); }
};

}  // namespace

TEST_CASE("the header serves C, and its initializers agree with its functions", "[capi]") {
  CHECK(acc_test_from_c() == 0);
}

TEST_CASE("each operation reaches the group with its arguments in place", "[capi]") {
  on_ranks(3, [](acc_comm* comm) {
    const int32_t me = acc_rank(comm);
    std::array<int32_t, 6> x{me, me * 10, 0, 0, 0, 0};
    std::array<int32_t, 6> y{};
    EXPECT_OK(acc_all_reduce(comm, x.data(), y.data(), 2, ACC_I32, ACC_SUM, nullptr));
    expect(y[0] == 3 && y[1] == 30, "all_reduce");
    EXPECT_OK(acc_all_reduce(comm, x.data(), y.data(), 2, ACC_I32, ACC_MAX, nullptr));
    expect(y[1] == 20, "max");
    EXPECT_OK(acc_reduce(comm, x.data(), y.data(), 2, ACC_I32, ACC_AVG, 1, nullptr));
    if (me == 1) expect(y[1] == 10, "reduce");
    y = {me, me};
    EXPECT_OK(acc_broadcast(comm, y.data(), 2, ACC_I32, 2, nullptr));
    expect(y[1] == 2, "broadcast");
    EXPECT_OK(acc_all_gather(comm, x.data(), y.data(), 2, ACC_I32, nullptr));
    expect(y[4] == 2 && y[5] == 20, "all_gather");
    EXPECT_OK(acc_gather(comm, x.data(), me == 0 ? y.data() : nullptr, 2, ACC_I32, 0, nullptr));
    const std::array<std::size_t, 3> counts{1, 0, 2};
    y.fill(-1);
    EXPECT_OK(acc_all_gather_v(comm, x.data(), y.data(), counts.data(), ACC_I32, nullptr));
    expect(y[0] == 0 && y[1] == 2 && y[2] == 20 && y[3] == -1, "all_gather_v");
    EXPECT_OK(acc_gather_v(comm, x.data(), y.data(), counts.data(), ACC_I32, 2, nullptr));
    const std::array<int32_t, 6> wide{0, 1, 2, 3, 4, 5};
    EXPECT_OK(acc_scatter(comm, me == 1 ? wide.data() : nullptr, y.data(), 2, ACC_I32, 1, nullptr));
    expect(y[0] == 2 * me && y[1] == 2 * me + 1, "scatter");
    EXPECT_OK(acc_reduce_scatter(comm, wide.data(), y.data(), 2, ACC_I32, ACC_SUM, nullptr));
    expect(y[1] == 3 * (2 * me + 1), "reduce_scatter");
    EXPECT_OK(acc_all_to_all(comm, wide.data(), y.data(), 2, ACC_I32, nullptr));
    expect(y[4] == 2 * me && y[5] == 2 * me + 1, "all_to_all");
    EXPECT_OK(acc_barrier(comm, nullptr));
    if (me == 0) EXPECT_OK(acc_send(comm, wide.data(), 3, ACC_I32, 2, nullptr));
    if (me == 2) {
      EXPECT_OK(acc_recv(comm, y.data(), 3, ACC_I32, 0, nullptr));
      expect(y[2] == 2, "recv");
    }
  });
}

TEST_CASE("operations that are begun", "[capi]") {
  on_ranks(2, [](acc_comm* comm) {
    const int32_t me = acc_rank(comm);
    const int32_t other = 1 - me;
    std::array<double, 4> x{1, 2, 3, 4};
    std::array<double, 4> y{};
    std::vector<acc_work*> works;
    const auto next = [&] { return &works.emplace_back(nullptr); };
    EXPECT_OK(acc_all_reduce_async(comm, x.data(), y.data(), 4, ACC_F64, ACC_SUM, nullptr, next()));
    EXPECT_OK(acc_reduce_async(comm, x.data(), y.data(), 4, ACC_F64, ACC_SUM, 0, nullptr, next()));
    EXPECT_OK(acc_broadcast_async(comm, x.data(), 4, ACC_F64, 0, nullptr, next()));
    EXPECT_OK(acc_all_gather_async(comm, x.data(), y.data(), 2, ACC_F64, nullptr, next()));
    EXPECT_OK(acc_gather_async(comm, x.data(), y.data(), 2, ACC_F64, 0, nullptr, next()));
    EXPECT_OK(acc_scatter_async(comm, x.data(), y.data(), 2, ACC_F64, 0, nullptr, next()));
    EXPECT_OK(
        acc_reduce_scatter_async(comm, x.data(), y.data(), 2, ACC_F64, ACC_SUM, nullptr, next()));
    EXPECT_OK(acc_all_to_all_async(comm, x.data(), y.data(), 2, ACC_F64, nullptr, next()));
    EXPECT_OK(acc_barrier_async(comm, nullptr, next()));
    EXPECT_OK(acc_send_async(comm, x.data(), 1, ACC_F64, other, nullptr, next()));
    EXPECT_OK(acc_recv_async(comm, y.data(), 1, ACC_F64, other, nullptr, next()));
    for (auto* work : works) {
      EXPECT_OK(acc_work_wait(work, ACC_DEFAULT));
      int32_t done = 0;
      EXPECT_OK(acc_work_done(work, &done));
      expect(done == 1, "done");
      acc_work_free(work);
    }
    expect(y[0] == 1, "the message");
  });
}

TEST_CASE("objects, parts of a group, shared memory, the record", "[capi]") {
  on_ranks(3, [](acc_comm* comm) {
    const int32_t me = acc_rank(comm);
    const std::string mine(static_cast<std::size_t>(me), 'x');
    acc_objects* objects = nullptr;
    EXPECT_OK(acc_all_gather_object(comm, mine.data(), mine.size(), &objects));
    expect(acc_objects_count(objects) == 3 && object(objects, 2) == "xx", "all_gather_object");
    expect(acc_objects_data(objects, 3) == nullptr, "no such index");
    acc_objects_free(objects);
    EXPECT_OK(acc_gather_object(comm, mine.data(), mine.size(), 1, &objects));
    expect(acc_objects_count(objects) == (me == 1 ? 3 : 0), "gather_object");
    acc_objects_free(objects);
    EXPECT_OK(
        acc_broadcast_object(comm, me == 0 ? "hello" : nullptr, me == 0 ? 5 : 0, 0, &objects));
    expect(std::strcmp(static_cast<const char*>(acc_objects_data(objects, 0)), "hello") == 0,
           "broadcast_object");
    acc_objects_free(objects);
    const std::array<const void*, 3> roots{"a", "bb", ""};
    const std::array<std::size_t, 3> bytes{1, 2, 0};
    EXPECT_OK(acc_scatter_object(comm, me == 2 ? roots.data() : nullptr,
                                 me == 2 ? bytes.data() : nullptr, 2, &objects));
    expect(object(objects, 0) ==
               std::array<std::string, 3>{"a", "bb", ""}[static_cast<std::size_t>(me)],
           "scatter_object");
    acc_objects_free(objects);

    acc_comm* part = nullptr;
    EXPECT_OK(acc_split(comm, me == 0 ? -1 : 0, -me, "pair", &part));
    expect((part == nullptr) == (me == 0), "split");
    if (part != nullptr) {
      expect(acc_size(part) == 2 && acc_rank(part) == 2 - me, "the order of keys");
      expect(std::strcmp(acc_name(part), "pair") == 0, "name");
      EXPECT_OK(acc_barrier(part, nullptr));
    }
    EXPECT_OK(acc_barrier(comm, nullptr));
    acc_finalize(part);
    const std::array<int32_t, 1> only{1};
    EXPECT_OK(acc_sub_group(comm, only.data(), 1, nullptr, &part));
    expect((part != nullptr) == (me == 1), "sub_group");
    acc_finalize(part);

    acc_buffer* buffer = nullptr;
    EXPECT_OK(acc_allocate_shared(comm, 100, &buffer));
    expect(acc_buffer_size(buffer) == 100, "size");
    std::memset(acc_buffer_data(buffer), 1, 100);
    EXPECT_OK(acc_all_reduce(comm, acc_buffer_data(buffer), acc_buffer_data(buffer), 100, ACC_U8,
                             ACC_SUM, nullptr));
    expect(static_cast<unsigned char*>(acc_buffer_data(buffer))[99] == 3, "a reduction of it");
    acc_buffer_free(buffer);

    EXPECT_OK(acc_flight_record(comm, &objects));
    expect(object(objects, 0).find("\"allocate\"") != std::string::npos, "the record");
    acc_objects_free(objects);
  });
}

TEST_CASE("an error tells its kind, words, operation, number and ranks", "[capi]") {
  on_ranks(3, [](acc_comm* comm) {
    float x[2] = {};
    EXPECT_OK(acc_barrier(comm, nullptr));
    const std::size_t count = acc_rank(comm) == 1 ? 1 : 2;
    expect(acc_all_reduce(comm, x, x, count, ACC_F32, ACC_SUM, nullptr) == ACC_MISMATCH,
           "the kind");
    expect(std::string{acc_last_error()}.find("rank 1: all_reduce f32 x1 sum #2, ranks 0,2: x2") !=
               std::string::npos,
           "the words");
    expect(std::string{acc_last_error_operation()} == "all_reduce", "the operation");
    expect(acc_last_error_sequence() == 2, "the number");
    int32_t ranks[4] = {-1, -1, -1, -1};
    expect(acc_last_error_ranks(ranks, 4) == 1 && ranks[0] == 1 && ranks[1] == -1, "the ranks");
    expect(acc_last_error_ranks(nullptr, 0) == 1, "their number");
    expect(acc_is_broken(comm) == 1, "broken");
    expect(acc_barrier(comm, nullptr) == ACC_MISMATCH, "at once, with the first cause");
  });
}

TEST_CASE("errors belong to their thread", "[capi]") {
  CHECK(acc_barrier(nullptr, nullptr) == ACC_INVALID_ARGUMENT);
  CHECK(std::string{acc_last_error()} == "comm is a null pointer");
  std::string elsewhere;
  std::thread{[&] { elsewhere = acc_last_error(); }}.join();
  CHECK(elsewhere == "no call of this thread has failed");
}

TEST_CASE("wrong arguments are refused in words", "[capi]") {
  Alone alone;
  float x = 0;
  CHECK(acc_all_reduce(alone.comm, &x, &x, 1, 10, ACC_SUM, nullptr) == ACC_INVALID_ARGUMENT);
  CHECK_THAT(acc_last_error(), Catch::Contains("no such element type"));
  CHECK(acc_all_reduce(alone.comm, &x, &x, 1, 256 + ACC_F32, ACC_SUM, nullptr) ==
        ACC_INVALID_ARGUMENT);
  CHECK(acc_all_reduce(alone.comm, &x, &x, 1, ACC_F32, -1, nullptr) == ACC_INVALID_ARGUMENT);
  CHECK_THAT(acc_last_error(), Catch::Contains("no such reduction"));
  CHECK(acc_broadcast(alone.comm, &x, 1, ACC_F32, 1, nullptr) == ACC_INVALID_ARGUMENT);
  CHECK(acc_all_gather_v(alone.comm, &x, &x, nullptr, ACC_F32, nullptr) == ACC_INVALID_ARGUMENT);
  CHECK(acc_barrier_async(alone.comm, nullptr, nullptr) == ACC_INVALID_ARGUMENT);
  CHECK(acc_all_gather_object(alone.comm, nullptr, 3, nullptr) == ACC_INVALID_ARGUMENT);
  acc_objects* objects = nullptr;
  CHECK(acc_all_gather_object(alone.comm, nullptr, 3, &objects) == ACC_INVALID_ARGUMENT);
  CHECK(objects == nullptr);
  CHECK(acc_work_wait(nullptr, 0) == ACC_INVALID_ARGUMENT);
  CHECK(acc_init_threads(2, nullptr, nullptr) == ACC_INVALID_ARGUMENT);
  acc_config config = ACC_CONFIG_INIT;
  config.check = 5;
  acc_comm* comm = nullptr;
  CHECK(acc_init_single(&config, &comm) == ACC_INVALID_ARGUMENT);
  CHECK_THAT(acc_last_error(), Catch::Contains("check is 5"));
  CHECK(acc_is_broken(alone.comm) == 0);
  CHECK(acc_barrier(alone.comm, nullptr) == ACC_OK);
}

TEST_CASE("without a place for its handle nothing is begun", "[capi]") {
  Alone alone;
  CHECK(acc_barrier_async(alone.comm, nullptr, nullptr) == ACC_INVALID_ARGUMENT);
  CHECK(alone.comm->group.flight_record() == "");
}

TEST_CASE("null handles are legal where a handle is given back or asked for facts", "[capi]") {
  acc_finalize(nullptr);
  acc_work_free(nullptr);
  acc_buffer_free(nullptr);
  acc_objects_free(nullptr);
  acc_abort(nullptr, nullptr);
  CHECK(acc_rank(nullptr) == -1);
  CHECK(std::string{acc_backend(nullptr)} == "");
  CHECK(acc_objects_count(nullptr) == 0);
  CHECK(acc_buffer_data(nullptr) == nullptr);
}

TEST_CASE("structs of an older or a newer caller", "[capi]") {
  using acc::capi::to_options;
  acc_config config = ACC_CONFIG_INIT;
  config.name = "mine";
  config.timeout_ms = 5;
  CHECK(to_options(&config).name == "mine");
  CHECK(to_options(&config).timeout == acc::runtime::Millis{5});
  CHECK_FALSE(to_options(&config).init_timeout);
  config.size = offsetof(acc_config, name);  // an older one ended here
  CHECK(to_options(&config).name == "world");
  CHECK(to_options(&config).timeout == acc::runtime::Millis{5});

  struct {
    acc_config known;
    char more[64];
  } newer;
  std::memset(&newer, 0x77, sizeof newer);
  acc_config_init(&newer.known, sizeof newer);
  CHECK(newer.known.size == sizeof newer);
  CHECK(newer.more[63] == 0);
  CHECK(to_options(&newer.known).name == "world");

  config.size = 0;  // forgotten
  CHECK_THROWS_WITH(to_options(&config), Catch::Contains("wasn't initialised"));
  config = ACC_CONFIG_INIT;
  config.timeout_ms = -2;
  CHECK_THROWS_WITH(to_options(&config), "timeout_ms is negative");
  config = ACC_CONFIG_INIT;
  config.backend = 3;
  CHECK_THROWS_WITH(to_options(&config), "there is no backend number 3");
}

TEST_CASE("a limit for one call, and a wait with a limit that leaves the call alone", "[capi]") {
  on_ranks(2, [](acc_comm* comm) {
    if (acc_rank(comm) == 1) {
      // Comes when the other one has given up waiting for its handle.
      int32_t go = 0;
      EXPECT_OK(acc_recv(comm, &go, 1, ACC_I32, 0, nullptr));
      EXPECT_OK(acc_barrier(comm, nullptr));
      return;
    }
    acc_work* work = nullptr;
    EXPECT_OK(acc_barrier_async(comm, nullptr, &work));
    expect(acc_work_wait(work, 20) == ACC_TIMED_OUT, "the wait ends");
    int32_t done = 1;
    EXPECT_OK(acc_work_done(work, &done));
    expect(done == 0 && acc_is_broken(comm) == 0, "the call goes on");
    EXPECT_OK(acc_send(comm, &done, 1, ACC_I32, 1, nullptr));
    EXPECT_OK(acc_work_wait(work, ACC_DEFAULT));
    acc_work_free(work);
  });
  on_ranks(2, [](acc_comm* comm) {
    if (acc_rank(comm) == 1) return;
    acc_call how = ACC_CALL_INIT;
    how.timeout_ms = 30;
    const auto status = acc_barrier(comm, &how);
    // The other one may have left before the time was over.
    expect(status == ACC_TIMED_OUT || status == ACC_PEER_LOST, "nobody came");
  });
}

TEST_CASE("statuses have names", "[capi]") {
  CHECK(std::string{acc_status_name(ACC_OK)} == "ok");
  CHECK(std::string{acc_status_name(ACC_PEER_LOST)} == "peer_lost");
  CHECK(std::string{acc_status_name(ACC_INTERNAL)} == "internal");
  CHECK(std::string{acc_status_name(-1)} == "unknown");
}

TEST_CASE("ACC_DEFAULT was no time for the calls about the agent: never current, no section",
          "[capi]") {
  auto page = acc::heartbeat::Mapping::make(1, 0);
  REQUIRE(page.has_value());
  const std::string variable = "/proc/" + std::to_string(::getpid()) + "/fd/" +
                               std::to_string(page->fd()) + ":" +
                               std::to_string(acc::heartbeat::slot_offset(0));
  const pid_t child = ::fork();  // the page is looked for once a process
  REQUIRE(child >= 0);
  if (child == 0) {
    ::unsetenv("ACC_AGENT_SOCKET");
    ::setenv("ACC_HEARTBEAT_PAGE", variable.c_str(), 1);
    acc_agent_section_begin("checkpoint", ACC_DEFAULT);
    ::_exit(acc_agent_is_current(ACC_DEFAULT) == 1 && acc_agent_is_current(-2) == -1 ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
  const auto beat = read(page->slot(0));
  CHECK(beat.section == "checkpoint");
  CHECK(beat.section_limit_ms == 0);
}
