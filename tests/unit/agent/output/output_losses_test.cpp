#include "tests/unit/agent/output/support.hpp"

#include <poll.h>
#include <pthread.h>
#include <sys/mount.h>
#include <sys/socket.h>

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

/// A pipe whose end is read by the test itself, at its pace.
struct SlowConsole {
  UniqueFd in;
  UniqueFd out;
  SlowConsole() {
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    in.reset(ends[0]);
    out.reset(ends[1]);
  }
  std::string read_some(std::size_t most) const {
    std::string bytes(most, '\0');
    pollfd ready{in.get(), POLLIN, 0};
    const ssize_t n = ::poll(&ready, 1, 0) > 0 ? ::read(in.get(), bytes.data(), most) : 0;
    bytes.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
    return bytes;
  }
};

/// Reads a SlowConsole `most` bytes every `pause`, on a thread.
struct SlowReader {
  std::atomic<bool> is_stopping{false};
  std::atomic<std::size_t> seen{0};
  std::string text;  // after stop()
  std::thread thread;
  SlowReader(const SlowConsole& console, std::size_t most, Millis pause) {
    thread = std::thread{[this, &console, most, pause] {
      while (!is_stopping) {
        std::this_thread::sleep_for(pause);
        text += console.read_some(most);
        seen = text.size();
      }
    }};
  }
  void stop() {
    is_stopping = true;
    if (thread.joinable()) thread.join();
  }
  ~SlowReader() { stop(); }
};

/// Fills the queue of a hub whose console is `console`: `bytes` of lines of 100.
void write_lines(Bench& bench, std::size_t bytes) {
  auto worker = bench.open(0);
  std::atomic<bool> is_done{false};
  std::thread writer{[&] {
    const std::string line = std::string(99, 'x') + "\n";
    std::string block;
    while (block.size() < bytes) block += line;
    write_all(worker.out.get(), block);
    worker = {};
    is_done = true;
  }};
  CHECK(bench.run_until([&] { return is_done.load(); }));
  writer.join();
}

std::size_t lines_in(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

}  // namespace

SCENARIO("a console that is slow but moves gets the end of the output and the report",
         "[agent][output]") {
  Bench bench;
  SlowConsole console;
  bench.start({}, 1, {.same_target = true}, {.out = console.out.get(), .err = console.out.get()});
  write_lines(bench, 2'000'000);
  SlowReader reader{console, 64 * 1024, Millis{40}};  // 1.3 s in all
  bench.hub->finish(Millis{500}, Millis{20'000});
  CHECK(bench.hub->losses().empty());
  bench.hub->say("the report");
  bench.hub->finish(Millis{500}, Millis{20'000});
  CHECK(bench.run_until([&] { return reader.seen == 2'000'000 + 11; }));
  reader.stop();
  CHECK(reader.text.ends_with("x\nthe report\n"));
}

SCENARIO("a console that takes longer than the cap loses the rest, counted, not the report",
         "[agent][output][timing]") {
  Bench bench;
  SlowConsole console;
  bench.start({}, 1, {.same_target = true}, {.out = console.out.get(), .err = console.out.get()});
  write_lines(bench, 2'000'000);
  SlowReader reader{console, 4096, Millis{10}};
  const auto before = std::chrono::steady_clock::now();
  bench.hub->finish(Millis{500}, Millis{1000});
  CHECK(std::chrono::steady_clock::now() - before >= Millis{1000});
  CHECK(std::chrono::steady_clock::now() - before < Millis{4000});
  const auto losses = bench.hub->losses();
  REQUIRE(losses.size() == 1);
  CHECK(losses[0].why == "it had not taken all when the job ended");
  bench.hub->say("the report");
  bench.hub->finish(Millis{500}, Millis{10'000});
  CHECK(bench.hub->losses()[0].bytes == losses[0].bytes);
  CHECK(bench.run_until([&] { return reader.seen + losses[0].bytes == 2'000'000 + 11; }));
  reader.stop();
  CHECK(reader.text.ends_with("the report\n"));
  CHECK(lines_in(reader.text) + losses[0].lines == 20'000 + 1);
}

SCENARIO("a console that nobody reads is given up after the patience, and is counted",
         "[agent][output][timing]") {
  Bench bench;
  SlowConsole console;
  bench.start({}, 1, {.same_target = true}, {.out = console.out.get(), .err = console.out.get()});
  write_lines(bench, 2'000'000);
  const auto before = std::chrono::steady_clock::now();
  bench.hub->finish(Millis{300}, Millis{20'000});
  CHECK(std::chrono::steady_clock::now() - before < Millis{2000});
  const auto losses = bench.hub->losses();
  REQUIRE(losses.size() == 1);
  WHEN("somebody reads it at last") {
    bench.hub->say("the report");
    SlowReader reader{console, 64 * 1024, Millis{1}};
    bench.hub->finish(Millis{1000}, Millis{20'000});
    CHECK(bench.run_until([&] { return reader.seen + losses[0].bytes == 2'000'000 + 11; }));
    reader.stop();
    CHECK(reader.text.ends_with("the report\n"));
    CHECK(lines_in(reader.text) + losses[0].lines == 20'000 + 1);
  }
  WHEN("nobody ever does") {
    bench.hub->say("the report");
    bench.hub->finish(Millis{300}, Millis{20'000});
    THEN("the report is counted too") {
      CHECK(bench.hub->losses()[0].bytes == losses[0].bytes + 11);
      CHECK(bench.hub->losses()[0].lines == losses[0].lines + 1);
    }
  }
}

SCENARIO("a reader of stdout was stuck, and a free stderr said nothing of it before the report",
         "[agent][output]") {
  Bench bench;
  SlowConsole console;
  Console err;
  OutputPlan plan;
  plan.patience = Millis{200};
  bench.start(plan, 1, {}, {.out = console.out.get(), .err = err.fd()});
  WHEN("less than the queue holds waits for it, and the workers write no more") {
    write_lines(bench, 1'000'000);
    THEN("it is told after the patience, once") {
      CHECK(bench.run_until([&] { return !err.text().empty(); }));
      CHECK(err.text() ==
            "acc-launch: warning: stdout: it took nothing for 200 ms; output waits in memory, and "
            "is dropped beyond 4096 KiB or if it is not read by the end of the job\n");
      bench.io.run_for(Millis{500});
      CHECK(lines_in(err.text()) == 1);
      CHECK(bench.hub->losses().empty());
    }
  }
  WHEN("it reads what is there in time") {
    SlowReader reader{console, 64 * 1024, Millis{1}};
    write_lines(bench, 1'000'000);
    bench.io.run_for(Millis{500});
    THEN("nothing is told") { CHECK(err.text().empty()); }
  }
}

SCENARIO("a socket whose write blocks is given up too", "[agent][output]") {
  Bench bench;
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  UniqueFd in{ends[0]};
  UniqueFd out{ends[1]};
  bench.start({}, 1, {.same_target = true}, {.out = out.get(), .err = out.get()});
  write_lines(bench, 2'000'000);
  bench.hub->finish(Millis{300}, Millis{20'000});
  const auto losses = bench.hub->losses();
  REQUIRE(losses.size() == 1);
  bench.hub->say("the report");
  bench.hub->finish(Millis{300}, Millis{20'000});
  CHECK(bench.hub->losses()[0].bytes == losses[0].bytes + 11);
  ::shutdown(in.get(), SHUT_RDWR);  // the thread comes back
  bench.hub->finish(Millis{300}, Millis{20'000});
  CHECK(bench.hub->losses()[0].bytes == losses[0].bytes + 11);
}

SCENARIO("a reader that begins late gets everything", "[agent][output]") {
  Bench bench;
  SlowConsole console;
  bench.start({}, 1, {.same_target = true}, {.out = console.out.get(), .err = console.out.get()});
  std::thread late;
  std::atomic<std::size_t> seen{0};
  std::atomic<bool> is_stopping{false};
  late = std::thread{[&] {
    std::this_thread::sleep_for(Millis{300});  // python3 imports its modules
    while (!is_stopping) seen += console.read_some(64 * 1024).size();
  }};
  write_lines(bench, 20'000'000);
  CHECK(bench.run_until([&] { return seen == 20'000'000 || !bench.hub->losses().empty(); }));
  is_stopping = true;
  late.join();
  CHECK(seen == 20'000'000);
  CHECK(bench.hub->losses().empty());
}

SCENARIO("a reader that pauses for longer than a second loses nothing", "[agent][output]") {
  Bench bench;
  SlowConsole console;
  OutputPlan plan;
  plan.log_dir = bench.folder.path.string();
  bench.start(plan, 1, {.same_target = true},
              {.out = console.out.get(), .err = console.out.get(), .console_queue_bytes = kMiB});
  constexpr int kLines = 60'000;
  Writer writer{bench.open(0), kLines};
  std::atomic<bool> is_stopping{false};
  std::atomic<std::size_t> lines{0};
  std::thread reader{[&] {
    for (int pause = 0; pause < 2; ++pause) {
      std::this_thread::sleep_for(Millis{1300});
      for (std::size_t bytes = 0; bytes < 2 * kMiB && !is_stopping;) {
        const std::string some = console.read_some(64 * 1024);
        bytes += some.size();
        lines += lines_in(some);
      }
    }
    while (!is_stopping) lines += lines_in(console.read_some(64 * 1024));
  }};
  CHECK(bench.run_until([&] { return lines == kLines && writer.is_done; }));
  is_stopping = true;
  reader.join();
  CHECK(writer.longest > Millis{900});  // it was pushed back, as by a pipe
  bench.hub->finish(Millis{5000});
  CHECK(bench.hub->losses().empty());
  CHECK(lines_of(content(bench.run_folder() + "/attempt_0/0/stdout.log")).size() == kLines);
}

SCENARIO("a reader that takes a line now and then frees no page of its pipe for long",
         "[agent][output]") {
  Bench bench;
  SlowConsole console;
  OutputPlan plan;
  plan.patience = Millis{2500};
  bench.start(plan, 1, {.same_target = true},
              {.out = console.out.get(), .err = console.out.get(), .console_queue_bytes = kMiB});
  int told = 0;
  bench.hub->on_degraded([&](const Losses&) { ++told; });
  Writer writer{bench.open(0), 20'000};
  const auto end = std::chrono::steady_clock::now() + Millis{6000};
  CHECK(bench.run_until([&] {
    static auto next = std::chrono::steady_clock::now();
    if (std::chrono::steady_clock::now() >= next) {
      console.read_some(100);
      next += Millis{500};
    }
    return std::chrono::steady_clock::now() > end;
  }));
  CHECK(told == 0);
  CHECK_FALSE(writer.is_done.load());
  SlowReader reader{console, 64 * 1024, Millis{1}};
  CHECK(bench.run_until([&] { return writer.is_done.load(); }));
  bench.hub->finish(Millis{5000});
  CHECK(bench.hub->losses().empty());
}

SCENARIO("the job is stopped while a reader is stuck", "[agent][output]") {
  Bench bench;
  SlowConsole console;
  bench.start({}, 1, {.same_target = true},
              {.out = console.out.get(), .err = console.out.get(), .console_queue_bytes = kMiB});
  Writer writer{bench.open(0), 20'000};
  bench.io.run_for(Millis{300});
  CHECK_FALSE(writer.is_done.load());
  bench.hub->shorten_patience(Millis{200});
  THEN("the workers get on") {
    CHECK(bench.run_until([&] { return writer.is_done.load(); }));
  }
}

SCENARIO("the end of the output is waited for until a Ctrl-C", "[agent][output][timing]") {
  Bench bench;
  SlowConsole console;
  bench.start({}, 1, {.same_target = true}, {.out = console.out.get(), .err = console.out.get()});
  write_lines(bench, 2'000'000);
  int asked = 0;
  const auto before = std::chrono::steady_clock::now();
  bench.hub->finish([&] {
    ++asked;
    const bool is_hurried = std::chrono::steady_clock::now() - before > Millis{700};
    return is_hurried ? FlushLimits{Millis{100}, Millis{100}}
                      : FlushLimits{Millis{60'000}, Millis{600'000}};
  });
  CHECK(std::chrono::steady_clock::now() - before < Millis{3000});
  CHECK(asked > 3);
  REQUIRE(bench.hub->losses().size() == 1);
  CHECK(bench.hub->losses()[0].why == "it had not taken all when the job ended");
}

SCENARIO("all workers die with full pipes while the console is a moment behind",
         "[agent][output]") {
  Bench bench;
  SlowConsole console;
  constexpr std::uint32_t kWorkers = 8;
  OutputPlan plan;
  plan.log_dir = bench.folder.path.string();
  bench.start(plan, kWorkers, {.same_target = true},
              {.out = console.out.get(),
               .err = console.out.get(),
               .console_queue_bytes = 64 * 1024,
               .files_queue_bytes = 64 * 1024});
  std::vector<Bench::Worker> workers;
  for (std::uint32_t i = 0; i < kWorkers; ++i) workers.push_back(bench.open(i));
  std::size_t bytes = 0;
  for (auto& worker : workers) {
    const auto room = static_cast<std::size_t>(::fcntl(worker.out.get(), F_GETPIPE_SZ));
    write_all(worker.out.get(), std::string(room - 1, 'x') + "\n");
    bytes += room;
    worker = {};
  }
  for (std::uint32_t i = 0; i < kWorkers; ++i) bench.hub->drain(LocalRank{i});
  bench.hub->end_round();
  SlowReader reader{console, 64 * 1024, Millis{1}};
  bench.hub->finish(Millis{1000}, Millis{10'000});
  CHECK(bench.hub->losses().empty());
  // A line longer than 64 KiB goes out in parts, between the others'.
  CHECK(bench.run_until([&] { return reader.seen >= bytes; }));
  reader.stop();
  CHECK(static_cast<std::size_t>(std::count(reader.text.begin(), reader.text.end(), 'x')) ==
        bytes - kWorkers);
  for (std::uint32_t i = 0; i < kWorkers; ++i)
    CHECK(content(bench.run_folder() + "/attempt_0/" + std::to_string(i) + "/stdout.log").size() ==
          bytes / kWorkers);
}

SCENARIO("no thread can be started", "[agent][output]") {
  Bench bench;
  Console out;
  pthread_attr_t before;
  REQUIRE(::pthread_getattr_default_np(&before) == 0);
  // Also when a check ends this test.
  const std::shared_ptr<pthread_attr_t> restored{
      &before, [](pthread_attr_t* attributes) { ::pthread_setattr_default_np(attributes); }};
  pthread_attr_t huge;
  ::pthread_attr_init(&huge);
  REQUIRE(::pthread_attr_setstacksize(&huge, std::size_t{1} << 47U) == 0);
  OutputPlan plan;
  plan.log_dir = bench.folder.path.string();
  plan.patience = Millis{1000};
  bench.start(plan, 1, {.same_target = true},
              {.out = out.fd(), .err = out.fd(), .console_queue_bytes = 64 * 1024});
  Writer writer{bench.open(0), 5000};
  // With a line of ours: the log files, too, take nothing for the patience.
  const auto is_all = [](std::size_t lines) { return lines == 5000 || lines == 5001; };
  std::string told;
  bench.hub->on_degraded([&](const Losses& losses) { told += losses.why; });
  REQUIRE(::pthread_setattr_default_np(&huge) == 0);
  CHECK(bench.run_until([&] { return writer.is_done.load() && !told.empty(); }));
  THEN("the loss is told, and the workers go on") {
    CHECK(told == "Resource temporarily unavailable");
    CHECK(writer.longest < std::chrono::seconds{3});
    WHEN("threads can be started again") {
      REQUIRE(::pthread_setattr_default_np(&before) == 0);
      bench.hub->finish(Millis{3000}, Millis{10'000});
      THEN("what is queued comes out, and all is accounted for") {
        CHECK(lines_of(content(bench.run_folder() + "/attempt_0/0/stdout.log")).size() == 5000);
        REQUIRE(bench.hub->losses().size() == 1);
        const auto lost = bench.hub->losses()[0].lines;
        CHECK(bench.run_until([&] { return is_all(lines_in(out.text()) + lost); }));
      }
    }
    WHEN("they never can") {
      bench.hub->finish(Millis{300}, Millis{10'000});
      THEN("the loop writes what is queued, and all is accounted for") {
        CHECK(lines_of(content(bench.run_folder() + "/attempt_0/0/stdout.log")).size() == 5000);
        CHECK(bench.hub->losses().size() == 1);
        for (const auto& losses : bench.hub->losses())
          CHECK(is_all(lines_in(out.text()) + losses.lines));
      }
    }
  }
  ::pthread_setattr_default_np(&before);
  ::pthread_attr_destroy(&huge);
}

SCENARIO("the end comes while a worker can't be killed", "[agent][output]") {
  Bench bench;
  Console out;
  bench.start({}, 1, {.same_target = true}, {.out = out.fd(), .err = out.fd()});
  auto worker = bench.open(0);
  write_all(worker.out.get(), "a line\nunfinished");
  bench.hub->finish(Millis{1000}, Millis{10'000});  // no end_round()
  CHECK(bench.run_until([&] { return out.text() == "a line\nunfinished"; }));
  CHECK(bench.hub->tail(LocalRank{0}) == "a line\nunfinished");
}

SCENARIO("a log file that takes data again says at its end what is missing", "[agent][output]") {
  Bench bench;
  Console out;
  const fs::path blocker = bench.folder.path / "run_1";
  std::ofstream{blocker} << "not a folder";
  OutputPlan plan;
  plan.redirects.all = Streams::both;
  bench.start(plan, 1, {.same_target = true}, {.out = out.fd(), .err = out.fd()});
  auto worker = bench.open(0);
  write_all(worker.out.get(), "one\ntwo\nthree");
  CHECK(bench.run_until([&] { return !bench.hub->losses().empty(); }));
  const std::string log = bench.run_folder() + "/attempt_0/0/stdout.log";
  WHEN("it does when the round ends") {
    fs::remove(blocker);
    bench.hub->end_round();
    bench.hub->finish(Millis{5000});
    CHECK(content(log) == "[acc-launch: 13 bytes are missing here: Not a directory]\n");
  }
  WHEN("it doesn't") {
    bench.hub->end_round();
    bench.hub->finish(Millis{5000});
    THEN("it stays in the losses") { CHECK(!fs::exists(log)); }
  }
  REQUIRE(bench.hub->losses().size() == 1);
  CHECK(bench.hub->losses()[0].bytes == 13);
}

SCENARIO("a terminal that nobody reads", "[agent][output][timing]") {
  ::signal(SIGPIPE, SIG_IGN);
  Bench bench;
  Terminal terminal;
  OutputPlan plan;
  plan.log_dir = bench.folder.path.string();
  plan.capture = Choice::yes;
  plan.patience = Millis{1000};
  bench.start(plan, 1, {.out_is_tty = true, .err_is_tty = true, .same_target = true},
              {.out = terminal.program.get(),
               .err = terminal.program.get(),
               .console_queue_bytes = kMiB / 4});
  int told = 0;
  bench.hub->on_degraded([&](const Losses& losses) {
    ++told;
    CHECK(losses.where == "console");
    CHECK(losses.why == "it took nothing for 1 s");
    CHECK(losses.cure == "a longer --output_patience waits for it");
  });
  constexpr int kLines = 30'000;
  Writer writer{bench.open(0), kLines};
  CHECK(bench.run_until([&] { return writer.is_done.load(); }));

  THEN("the worker is never blocked for long, its file is whole, the loss is told once") {
    CHECK(writer.longest < std::chrono::seconds{3});  // a second of push-back and a busy machine
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
      REQUIRE(bench.hub->losses().size() == 1);
      const auto is_shown = [](const std::string& line) {
        return line.starts_with("line ") && line.ends_with("..\r");
      };
      // What was held when the terminal was read again follows the notice.
      CHECK(bench.run_until([&] {
        seen += terminal.read_some();
        const auto shown = std::ranges::count_if(lines_of(seen), is_shown);
        return static_cast<std::size_t>(shown) + bench.hub->losses()[0].lines == kLines;
      }));
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
  std::ptrdiff_t seen = 0;
  std::vector<char> buffer(16 * 1024);
  CHECK(bench.run_until([&] {
    pollfd ready{in.get(), POLLIN, 0};
    if (::poll(&ready, 1, 0) > 0) {
      const ssize_t n = ::read(in.get(), buffer.data(), buffer.size());
      if (n > 0) seen += std::count(buffer.data(), buffer.data() + n, '\n');
    }
    return seen == kLines;
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
  int told = 0;
  bench.hub->on_degraded([&](const Losses&) { ++told; });
  Writer writer{bench.open(0), 50'000};
  CHECK(bench.run_until([&] { return writer.is_done.load() && told == 1; }));
  bench.hub->end_round();
  bench.hub->finish(Millis{10'000});
  THEN("the worker goes on, its file is whole, the loss is told once and counted") {
    CHECK(lines_of(content(bench.run_folder() + "/attempt_0/0/stdout.log")).size() == 50'000);
    REQUIRE(bench.hub->losses().size() == 1);
    const auto losses = bench.hub->losses()[0];
    CHECK(losses.where == "stdout");
    CHECK(losses.why == "its reader went away");
    CHECK(losses.reader_left);
    CHECK(losses.lines == 50'000);
    CHECK(told == 1);
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
    const std::size_t all_bytes = [&] {
      std::size_t bytes = 0;
      for (int i = 0; i < kLines; ++i) bytes += 106 + std::to_string(i).size() + 1;
      return bytes;
    }();
    CHECK(bench.run_until([&] {
      const auto losses = bench.hub->losses();
      return !losses.empty() && content(path).size() + losses[0].bytes == all_bytes;
    }));
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
