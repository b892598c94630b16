#include "agent/preload/hook_archive.hpp"
#include "agent/preload/preload_course.hpp"
#include "agent/preload/preload_environment.hpp"
#include "agent/preload/preload_messages.hpp"
#include "agent/preload/worker_set.hpp"
#include "common/unique_fd.hpp"

#include <catch2/catch.hpp>

#include <sys/socket.h>

#include <cerrno>
#include <csignal>
#include <string>
#include <vector>

using namespace acc;
using namespace acc::agent;
using namespace acc::agent::preload;
using Catch::Matchers::Contains;

using Phase = PreloadCourse::Phase;
using Next = PreloadCourse::Next;
using namespace std::string_literals;

namespace {

constexpr std::uint64_t kMega = std::uint64_t{1} << 20U;

PreloadCourse importing(const std::string& module = "torch") {
  PreloadCourse course{Millis{60'000}};
  course.begin(Instant{});
  CHECK(course.on(Started{}) == Next::nothing);
  CHECK(course.on(Importing{module}) == Next::nothing);
  return course;
}

PreloadCourse ready() {
  auto course = importing();
  CHECK(course.on(Ready{1.3, 200 * kMega, "torch"}) == Next::nothing);
  return course;
}

std::string warning_of(PreloadCourse& course) { return course.take_warning().value_or(""); }

WorkerEnvironment environment(std::vector<std::string> variables) {
  WorkerEnvironment worker;
  worker.own = std::move(variables);
  for (auto& text : worker.own) worker.pointers.push_back(text.data());
  worker.pointers.push_back(nullptr);
  return worker;
}

}  // namespace

TEST_CASE("a packet of the preloader that isn't a message is refused, and its text is made printable",
          "[agent][preload]") {
  for (const auto& packet :
       {""s, "ready"s, "ready\0 1.5\0 1\0 torch"s, "ready\0x\0001\0torch"s, "ready\0-1\0001\0torch"s,
        "worker\0001\0000\0001"s, "worker\0001\0-1\00050"s, "worker\0000\00050"s, "maker\0001\0zero"s, "maker\0001\0000"s, "made\0000"s, "Ready"s,
        "waits\0001"s, "waits\0001\0-5"s, "failed\0000\0001"s, "unsafe\0torch"s, "started\0001"s})
    CHECK_FALSE(decode(packet));
  const auto unsafe = decode("unsafe\0torch\0printed '\x1b[31m'"s);
  REQUIRE(unsafe);
  CHECK(std::get<Unsafe>(*unsafe).reason.find('\x1b') == std::string::npos);
  const auto waits = decode("waits\0007\0004096"s);
  REQUIRE(waits);
  CHECK(std::get<Waits>(*waits).fork == 7);
  CHECK(std::get<Waits>(*waits).own_bytes == 4096);
  const auto made = decode("worker\0009\0003\0004711"s);
  REQUIRE(made);
  CHECK(std::get<WorkerMade>(*made).local == LocalRank{3});
  CHECK(std::get<WorkerMade>(*made).fork == 9);
  CHECK(std::get<WorkerMade>(*made).pid == 4711);
}

TEST_CASE("the user reads what was preloaded once, also if it is preloaded again",
          "[agent][preload]") {
  auto course = ready();
  CHECK(course.phase() == Phase::ready);
  CHECK(course.take_note() == "preloaded torch in 1.3 s; workers are forked from that process");
  CHECK(course.on_exit(Signaled{SIGKILL}, "") == Next::replace);
  course.begin(Instant{});
  static_cast<void>(course.on(Started{}));
  static_cast<void>(course.on(Ready{1.1, 200 * kMega, "torch"}));
  CHECK_FALSE(course.take_note());
}

TEST_CASE("what can't be forked starts cold, and the warning names the module and the reason",
          "[agent][preload]") {
  SECTION("unsafe") {
    auto course = importing();
    CHECK(course.on(Unsafe{"torch", "started 3 threads"}) == Next::drop);
    CHECK(warning_of(course) == "--preload: 'torch' started 3 threads: the workers start cold");
    CHECK(course.is_settled());
  }
  SECTION("ended by an import") {
    auto course = importing("bad");
    CHECK(course.on_exit(Exited{3}, "") == Next::drop);
    CHECK(warning_of(course) ==
          "--preload: the preloader exited with code 3 while it imported 'bad': the workers start cold");
  }
  SECTION("its interpreter is none") {
    PreloadCourse course{Millis{60'000}};
    course.begin(Instant{});
    CHECK(course.on_exit(Exited{2}, "unknown option -c") == Next::drop);
    CHECK_THAT(warning_of(course), Contains("the interpreter can't run the preloader: it exited "
                                            "with code 2 (unknown option -c)"));
  }
  SECTION("an import that hangs") {
    auto course = importing("slow");
    CHECK(course.deadline() == Instant{} + Millis{60'000});
    CHECK(course.on_time_out() == Next::drop);
    CHECK_THAT(warning_of(course), Contains("the import of 'slow' was not over after") &&
                                       Contains("--preload_timeout"));
  }
  SECTION("nothing to import") {
    auto course = importing();
    CHECK(course.on(Ready{0.1, kMega, ""}) == Next::drop);
    CHECK_THAT(warning_of(course), Contains("imports no installed package"));
  }
  SECTION("a message out of order") {
    auto course = ready();
    CHECK(course.on(Started{}) == Next::drop);
  }
}

TEST_CASE("a preloader that dies, grows or fails to fork is replaced three times and no more",
          "[agent][preload]") {
  auto course = ready();
  for (std::uint32_t i = 0; i < PreloadCourse::kReplacements; ++i) {
    CAPTURE(i);
    Next next{};
    switch (i % 3) {
      case 0:
        next = course.on_exit(Signaled{SIGKILL}, "");
        CHECK(warning_of(course) == "--preload: the preloader was killed by SIGKILL (9): another "
                                    "preloader is started");
        break;
      case 1:
        course.begin_round();
        CHECK_FALSE(course.is_settled());
        next = course.end_round(300 * kMega);
        CHECK_THAT(warning_of(course), Contains("from 200 MiB to 300 MiB"));
        break;
      default:
        course.begin_round();
        next = course.fail_round("no memory");
        CHECK_THAT(warning_of(course), Contains("in this round they start cold"));
    }
    CHECK(next == Next::replace);
    CHECK_FALSE(course.is_settled());
    course.begin(Instant{});
    static_cast<void>(course.on(Started{}));
    static_cast<void>(course.on(Ready{1.3, 200 * kMega, "torch"}));
    CHECK(course.phase() == Phase::ready);
  }
  CHECK(course.on_exit(Signaled{SIGKILL}, "") == Next::drop);
  CHECK_THAT(warning_of(course), Contains("again: the workers start cold"));
  CHECK(course.phase() == Phase::off);
}

TEST_CASE("a preloader that ended with its node's lease is started again by the next round, however often",
          "[agent][preload]") {
  auto course = ready();
  for (std::uint32_t i = 0; i < 2 * PreloadCourse::kReplacements; ++i) {
    CAPTURE(i);
    CHECK(course.on_lease_over() == Next::postpone);
    CHECK(course.phase() == Phase::postponed);
    CHECK(course.is_settled());  // a round that comes now starts it, or starts cold
    CHECK_FALSE(course.has_process());
    CHECK(course.on_exit(Signaled{SIGKILL}, "") == Next::nothing);
    CHECK(warning_of(course).empty());
    course.begin(Instant{});
    CHECK_FALSE(course.is_settled());
    static_cast<void>(course.on(Started{}));
    static_cast<void>(course.on(Ready{1.3, 200 * kMega, "torch"}));
    CHECK(course.phase() == Phase::ready);
  }
  CHECK(course.on_exit(Signaled{SIGKILL}, "") == Next::replace);
}

TEST_CASE("a job that starts cold for a reason of its own isn't tried again after a lease",
          "[agent][preload]") {
  auto course = importing();
  CHECK(course.on(Unsafe{"torch", "started 4 threads"}) == Next::drop);
  CHECK(course.on_lease_over() == Next::nothing);
  CHECK(course.phase() == Phase::off);
}

TEST_CASE("between rounds it may gain a few pages", "[agent][preload]") {
  auto course = ready();
  course.begin_round();
  CHECK(course.end_round(220 * kMega) == Next::nothing);
  CHECK(course.phase() == Phase::ready);
}

TEST_CASE("a preloader finds what all workers have in all rounds, and nothing of a rank",
          "[agent][preload]") {
  std::vector<WorkerEnvironment> workers;
  workers.push_back(environment({"PATH=/bin", "RANK=0", "GPU=0", "MASTER_PORT=29500", "WORLD_SIZE=2", "ONLY=0"}));
  workers.push_back(environment({"PATH=/bin", "RANK=1", "GPU=1", "MASTER_PORT=29500", "WORLD_SIZE=2"}));
  const PreloadEnvironment alone{workers, false};
  CHECK(alone.shared() == std::vector<std::string>{"PATH=/bin", "WORLD_SIZE=2"});
  CHECK_THAT(alone.own_names(), Catch::Matchers::VectorContains("GPU"s) &&
                                    Catch::Matchers::VectorContains("ONLY"s) &&
                                    Catch::Matchers::VectorContains("MASTER_PORT"s));
  CHECK(alone.unobservable().empty());
  const PreloadEnvironment with_others{workers, true};
  CHECK(with_others.shared() == std::vector<std::string>{"PATH=/bin"});

  const auto later = environment({"PATH=/bin", "RANK=0", "GPU=7", "MASTER_PORT=41000", "WORLD_SIZE=2"});
  CHECK(alone.fits(later.pointers.data()));
  const auto other = environment({"PATH=/usr/bin", "RANK=0", "WORLD_SIZE=2"});
  CHECK_FALSE(alone.fits(other.pointers.data()));
  const auto less = environment({"RANK=0", "WORLD_SIZE=2"});
  CHECK_FALSE(alone.fits(less.pointers.data()));
  const auto more = environment({"PATH=/bin", "RANK=0", "WORLD_SIZE=2", "NEW=1"});
  CHECK_FALSE(alone.fits(more.pointers.data()));
}

TEST_CASE("an import may ask for the terminal's width, as accelerate's does", "[agent][preload]") {
  std::vector<WorkerEnvironment> workers;
  workers.push_back(environment({"PATH=/bin", "COLUMNS=100", "LINES=30"}));
  workers.push_back(environment({"PATH=/bin", "COLUMNS=99", "LINES=30"}));
  const PreloadEnvironment shown{workers, false};
  CHECK(shown.shared() == std::vector<std::string>{"PATH=/bin", "COLUMNS=99", "LINES=30"});
  for (const auto& name : shown.own_names()) CHECK((name != "COLUMNS" && name != "LINES"));
  const auto resized = environment({"PATH=/bin", "COLUMNS=41", "LINES=9"});
  CHECK(shown.fits(resized.pointers.data()));
  const auto without = environment({"PATH=/bin"});
  CHECK(shown.fits(without.pointers.data()));

  workers.clear();
  workers.push_back(environment({"PATH=/bin"}));
  const PreloadEnvironment into_a_file{workers, false};
  CHECK(into_a_file.shared() == std::vector<std::string>{"PATH=/bin"});
  for (const auto& name : into_a_file.own_names()) CHECK((name != "COLUMNS" && name != "LINES"));
}

TEST_CASE("a number of threads that differs between ranks is read by libraries, unseen: no warm start",
          "[agent][preload]") {
  std::vector<WorkerEnvironment> workers;
  workers.push_back(environment({"OMP_NUM_THREADS=1"}));
  workers.push_back(environment({"OMP_NUM_THREADS=2"}));
  CHECK(PreloadEnvironment{workers, false}.unobservable() == "OMP_NUM_THREADS");
}

TEST_CASE("variables by which OpenMP takes cores while it is loaded are found",
          "[agent][preload]") {
  const auto placement = [](std::vector<std::string> entries) {
    std::vector<WorkerEnvironment> workers;
    workers.push_back(environment(std::move(entries)));
    return PreloadEnvironment{workers, false}.placement();
  };
  CHECK(placement({"A=1", "OMP_PROC_BIND=close"}) == "OMP_PROC_BIND");
  CHECK(placement({"OMP_PLACES={0},{1}"}) == "OMP_PLACES");
  CHECK(placement({"GOMP_CPU_AFFINITY=0-3"}) == "GOMP_CPU_AFFINITY");
  CHECK(placement({"OMP_PROC_BIND=FALSE", "OMP_PLACES=", "OMP_NUM_THREADS=2"}).empty());
}

TEST_CASE("a round's environments stand one behind the other", "[agent][preload]") {
  Environments all;
  const auto one = environment({"A=1", "B=22"});
  const auto two = environment({"C=3"});
  CHECK(all.add(one.pointers.data()) == std::pair<std::size_t, std::size_t>{0, 9});
  CHECK(all.add(two.pointers.data()) == std::pair<std::size_t, std::size_t>{9, 4});
  CHECK(all.text() == "A=1\0B=22\0C=3\0"s);
}

TEST_CASE("what is left of a cancelled start is told as such, and costs the preloader",
          "[agent][preload]") {
  auto course = ready();
  course.begin_round();
  CHECK(course.fail_cancelled("it took too long") == Next::replace);
  CHECK(warning_of(course) == "--preload: a cancelled start of workers was not cleaned up: it took "
                              "too long: another preloader is started");
}

TEST_CASE("a packet of which its receiver would read only a part isn't sent", "[agent][preload]") {
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
  const UniqueFd ours{ends[0]}, theirs{ends[1]};
  const int room = 1 << 22;  // as on clusters whose net.core.wmem_default was raised
  (void)::setsockopt(ours.get(), SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room);
  CHECK_FALSE(send_packet(ours.get(), std::string(kLongestMessage + 1, 'x'), {}));
  CHECK(errno == EMSGSIZE);
  CHECK(send_packet(ours.get(), "x", {}));
}

TEST_CASE("the archive is a zip file with stored members", "[agent][preload]") {
  const std::vector<PythonModule> modules{{"one", "print('here')\n"}, {"two", "print('there')\n"}};
  const auto archive = make_archive(modules);
  CHECK(archive.starts_with("PK\x03\x04"));
  CHECK(archive.find("one.pyprint('here')\n") != std::string::npos);
  CHECK(archive.find("two.pyprint('there')\n") != std::string::npos);
  CHECK(preloader_archive().size() < kLongestMessage / 2);
}
