#include "tests/unit/agent/output/support.hpp"

#include <poll.h>
#include <sys/mount.h>

#include <atomic>

using namespace acc;
using namespace acc::agent;
using namespace acc::agent::testing;

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20U;

/// A worker that writes numbered lines as fast as it can, and notes how long its longest write
/// took.
struct Writer {
  Bench::Worker worker;
  int lines;
  std::atomic<bool> is_done{false};
  std::chrono::steady_clock::duration longest{};
  std::thread thread;
  Writer(Bench::Worker w, int n) : worker{std::move(w)}, lines{n} {
    thread = std::thread{[this] {
      for (int i = 0; i < lines; ++i) {
        const auto before = std::chrono::steady_clock::now();
        write_all(worker.out.get(),
                  "line " + std::to_string(i) + " " + std::string(100, '.') + "\n");
        longest = std::max(longest, std::chrono::steady_clock::now() - before);
      }
      worker = {};
      is_done = true;
    }};
  }
  ~Writer() { thread.join(); }
};

struct Terminal {
  UniqueFd user{::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK)};
  UniqueFd program;
  Terminal() {
    REQUIRE(::grantpt(user.get()) == 0);
    REQUIRE(::unlockpt(user.get()) == 0);
    program.reset(::open(::ptsname(user.get()), O_RDWR | O_NOCTTY | O_CLOEXEC));
    REQUIRE(program.get() >= 0);
  }
  std::string read_some() const {
    char buffer[65536];
    const ssize_t n = ::read(user.get(), buffer, sizeof buffer);
    return {buffer, n > 0 ? static_cast<std::size_t>(n) : 0};
  }
};

struct SmallDisk : Folder {
  bool is_mounted = ::mount("tmpfs", path.c_str(), "tmpfs", 0, "size=1m") == 0;
  ~SmallDisk() {
    if (is_mounted) ::umount2(path.c_str(), MNT_DETACH);
  }
};

}  // namespace

SCENARIO("a terminal that nobody reads", "[agent][output]") {
  ::signal(SIGPIPE, SIG_IGN);
  Bench bench;
  Terminal terminal;
  OutputPlan plan;
  plan.log_dir = bench.folder.path.string();
  plan.capture = Choice::yes;
  bench.start(plan, 1, {.out_is_tty = true, .err_is_tty = true, .same_target = true},
              {.out = terminal.program.get(),
               .err = terminal.program.get(),
               .console_queue_bytes = kMiB / 4});
  int told = 0;
  bench.hub->on_degraded([&](const Losses& losses) {
    ++told;
    CHECK(losses.where == "console");
  });
  constexpr int kLines = 30'000;
  Writer writer{bench.open(0), kLines};
  CHECK(bench.run_until([&] { return writer.is_done.load(); }));

  THEN("the worker is never blocked for long, its file is whole, the loss is told once") {
    CHECK(writer.longest < std::chrono::seconds{2});  // 100 ms of push-back and a busy machine
    CHECK(bench.run_until([&] { return told == 1; }));
    bench.hub->end_round();
    const auto before = std::chrono::steady_clock::now();
    bench.hub->finish(Millis{300});
    CHECK(std::chrono::steady_clock::now() - before < std::chrono::seconds{3});
    const auto lines = lines_of(content(bench.run_folder() + "/attempt_0/0/stdout.log"));
    CHECK(lines.size() == kLines);
    REQUIRE(bench.hub->losses().size() == 1);
    CHECK(bench.hub->losses()[0].lines > 0);
    const auto destroying = std::chrono::steady_clock::now();
    bench.hub.reset();
    CHECK(std::chrono::steady_clock::now() - destroying < std::chrono::seconds{3});
    CHECK(told == 1);
  }
  AND_WHEN("somebody reads it again") {
    std::string seen;
    CHECK(bench.run_until([&] {
      seen += terminal.read_some();
      return seen.find("works again; lost meanwhile: ") != std::string::npos;
    }));
    THEN("what was shown and what was lost make up all that was written") {
      const auto losses = bench.hub->losses();
      REQUIRE(losses.size() == 1);
      std::size_t shown = 0;
      for (const auto& line : lines_of(seen))
        shown += line.starts_with("line ") && line.ends_with("..\r") ? 1 : 0;
      CHECK(shown + losses[0].lines == kLines);
    }
  }
}

SCENARIO("a reader that is slow but moves gets every line", "[agent][output]") {
  Bench bench;
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  UniqueFd in{ends[0]};
  UniqueFd out{ends[1]};
  bench.start({}, 1, {.same_target = true},
              {.out = out.get(), .err = out.get(), .console_queue_bytes = 64 * 1024});
  constexpr int kLines = 20'000;
  Writer writer{bench.open(0), kLines};
  std::string seen;
  std::vector<char> buffer(16 * 1024);
  CHECK(bench.run_until([&] {
    pollfd ready{in.get(), POLLIN, 0};
    if (::poll(&ready, 1, 0) > 0) {
      const ssize_t n = ::read(in.get(), buffer.data(), buffer.size());
      if (n > 0) seen.append(buffer.data(), static_cast<std::size_t>(n));
    }
    return std::count(seen.begin(), seen.end(), '\n') == kLines;
  }));
  CHECK(bench.hub->losses().empty());
}

SCENARIO("stdout was closed by its reader", "[agent][output]") {
  ::signal(SIGPIPE, SIG_IGN);
  Bench bench;
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  ::close(ends[0]);
  UniqueFd out{ends[1]};
  OutputPlan plan;
  plan.log_dir = bench.folder.path.string();
  Console err;
  bench.start(plan, 1, {}, {.out = out.get(), .err = err.fd()});
  Writer writer{bench.open(0), 50'000};
  CHECK(bench.run_until([&] { return writer.is_done.load(); }));
  bench.hub->end_round();
  bench.hub->finish(Millis{10'000});
  THEN("the worker goes on, quietly, and its file is whole") {
    CHECK(lines_of(content(bench.run_folder() + "/attempt_0/0/stdout.log")).size() == 50'000);
    CHECK(bench.hub->losses().empty());
    CHECK(err.text().empty());
  }
}

SCENARIO("somebody has set our stdout to O_NONBLOCK", "[agent][output]") {
  Bench bench;
  Console out;
  REQUIRE(::fcntl(out.fd(), F_SETFL, O_NONBLOCK) == 0);
  bench.start({}, 1, {.same_target = true}, {.out = out.fd(), .err = out.fd()});
  Writer writer{bench.open(0), 50'000};
  CHECK(bench.run_until([&] { return lines_of(out.text()).size() == 50'000; }));
  CHECK(bench.hub->losses().empty());
}

SCENARIO("stdout is a full device", "[agent][output]") {
  Bench bench;
  Console err;
  UniqueFd full{::open("/dev/full", O_WRONLY | O_CLOEXEC)};
  bench.start({}, 1, {}, {.out = full.get(), .err = err.fd()});
  std::string told;
  bench.hub->on_degraded([&](const Losses& losses) { told += losses.where + ": " + losses.why; });
  Writer writer{bench.open(0), 1000};
  CHECK(bench.run_until([&] { return writer.is_done.load() && !told.empty(); }));
  bench.hub->end_round();
  bench.hub->finish(Millis{5000});
  CHECK(told == "stdout: No space left on device");
  REQUIRE(bench.hub->losses().size() == 1);
  CHECK(bench.hub->losses()[0].lines == 1000);
}

SCENARIO("the log folder can't be written", "[agent][output]") {
  Bench bench;
  Console out;
  OutputPlan plan;
  plan.log_dir = "/proc/acc-no-such-folder";
  plan.tee.all = Streams::both;
  bench.hub = std::make_unique<OutputHub>(bench.io, plan, 1, ConsoleFacts{.same_target = true},
                                          OutputOptions{.out = out.fd(), .err = out.fd()});
  bench.hub->begin_round(Round{0}, plan.log_dir + "/run_1");
  int told = 0;
  bench.hub->on_degraded([&](const Losses&) { ++told; });
  Writer writer{bench.open(0), 1000};
  CHECK(bench.run_until([&] { return writer.is_done.load() && told == 1; }));
  bench.hub->end_round();
  bench.hub->finish(Millis{5000});
  REQUIRE(bench.hub->losses().size() == 1);
  CHECK(bench.hub->losses()[0].where == "log files in /proc/acc-no-such-folder/run_1");
  CHECK(bench.hub->losses()[0].lines == 1000);
  CHECK(bench.run_until(
      [&] { return lines_of(out.text()).size() == 1000; }));  // the console has them all
}

SCENARIO("the disk of the logs is full", "[agent][output][root]") {
  SmallDisk disk;
  if (!disk.is_mounted) {
    WARN("SKIPPED: may not mount a tmpfs here");
    return;
  }
  {
    Bench bench;
    Console out;
    OutputPlan plan;
    plan.log_dir = disk.path.string();
    plan.redirects.all = Streams::both;
    bench.hub = std::make_unique<OutputHub>(bench.io, plan, 1, ConsoleFacts{.same_target = true},
                                            OutputOptions{.out = out.fd(), .err = out.fd()});
    bench.hub->begin_round(Round{0}, plan.log_dir + "/run_1");
    std::string told;
    bench.hub->on_degraded([&](const Losses& losses) { told += losses.why; });
    auto worker = bench.open(0);
    const int more = ::fcntl(worker.out.get(), F_DUPFD_CLOEXEC, 3);
    const std::string path = bench.hub->log_path(LocalRank{0}, Streams::out);
    constexpr int kLines = 30'000;
    {
      Writer writer{std::move(worker), kLines};
      CHECK(bench.run_until([&] { return writer.is_done.load() && !told.empty(); }));
      CHECK(writer.longest < std::chrono::seconds{3});
    }
    CHECK(told == "No space left on device");
    bench.hub->drain(LocalRank{0});
    bench.hub->finish(Millis{5000});
    const std::string before = content(path);
    THEN("the file is what the kernel took, the rest is counted, the tail is in memory") {
      const auto losses = bench.hub->losses();
      REQUIRE(losses.size() == 1);
      std::string all;
      for (int i = 0; i < kLines; ++i)
        all += "line " + std::to_string(i) + " " + std::string(100, '.') + "\n";
      CHECK((all.compare(0, before.size(), before) == 0));
      CHECK(before.size() + losses[0].bytes == all.size());
      CHECK((bench.hub->tail(LocalRank{0}) == all.substr(all.size() - 65'536)));
      // With room again it goes on, a second after the last try.
      REQUIRE(::mount("tmpfs", disk.path.c_str(), "tmpfs", MS_REMOUNT, "size=8m") == 0);
      CHECK(bench.run_until([&] {
        write_all(more, "after the gap\n");
        return content(path).ends_with("after the gap\n");
      }));
      const std::string after = content(path);
      CHECK((after.compare(0, before.size(), before) == 0));
      CHECK(after.find(" bytes are missing here: No space left on device]\nafter the gap\n") !=
            std::string::npos);
      CHECK(bench.run_until([&] { return out.text().find("works again") != std::string::npos; }));
    }
    ::close(more);
  }
}
