#include "agent/output/line_splitter.hpp"
#include "tests/unit/agent/output/support.hpp"

#include <sys/ioctl.h>

#include <algorithm>
#include <map>
#include <random>

using namespace acc;
using namespace acc::agent;
using namespace acc::agent::testing;

namespace {

constexpr Streams kBoth = Streams::both;

struct Hub : Bench {
  Console out;
  Console err;
  void start(const OutputPlan& plan, std::uint32_t workers, ConsoleFacts facts = {}) {
    Bench::start(plan, workers, facts, {.out = out.fd(), .err = err.fd()});
  }
  void end() {
    hub->end_round();
    hub->finish(Millis{10'000});
  }
  [[nodiscard]] std::string log(std::uint32_t local, const char* name) const {
    return content(fs::path{run_folder()} / "attempt_0" / std::to_string(local) / name);
  }
  /// Whether all of it arrives on that console, and nothing else.
  bool shows(Console& console, const std::string& text) {
    return run_until([&] { return console.text() == text; });
  }
};

OutputPlan tee(const Hub& hub) {
  OutputPlan plan;
  plan.tee.all = kBoth;
  plan.log_dir = hub.folder.path.string();
  return plan;
}

}  // namespace

SCENARIO("four workers write as fast as they can through the tee", "[agent][output]") {
  Hub hub;
  hub.start(tee(hub), 4);
  std::vector<Bench::Worker> workers;
  for (std::uint32_t i = 0; i < 4; ++i) workers.push_back(hub.open(i));
  std::vector<std::string> wrote(4);
  std::vector<std::thread> writers;
  std::atomic<int> ended{0};
  for (std::uint32_t i = 0; i < 4; ++i)
    writers.emplace_back([&, i] {
      for (int n = 0; n < 20'000; ++n) {
        const std::string line =
            "w" + std::to_string(i) + " " + std::to_string(n) + " step loss=0.1 <\n";
        wrote[i] += line;
        write_all(workers[i].out.get(), line);
      }
      workers[i] = {};
      ++ended;
    });
  CHECK(hub.run_until([&] { return ended == 4; }));
  for (auto& writer : writers) writer.join();
  for (std::uint32_t i = 0; i < 4; ++i) hub.hub->drain(LocalRank{i});
  hub.end();
  THEN("each file has exactly its worker's bytes") {
    for (std::uint32_t i = 0; i < 4; ++i) CHECK((hub.log(i, "stdout.log") == wrote[i]));
  }
  THEN("the console has every line whole, in each worker's order, behind its prefix") {
    CHECK(hub.run_until([&] { return lines_of(hub.out.text()).size() == 80'000; }));
    std::map<std::string, std::string> shown;
    for (const auto& line : lines_of(hub.out.text()))
      shown[line.substr(0, 11)] += line.substr(11) + "\n";
    CHECK(shown.size() == 4);
    for (std::uint32_t i = 0; i < 4; ++i)
      CHECK((shown["[default" + std::to_string(i) + "]:"] == wrote[i]));
    CHECK(hub.hub->losses().empty());
  }
}

SCENARIO("binary bytes, long lines and a missing last newline", "[agent][output]") {
  Hub hub;
  hub.start(tee(hub), 1);
  auto worker = hub.open(0);
  const std::string bytes =
      std::string("a\0b\xff\n", 5) + std::string(kMaxLine + 4464, 'L') + "\nlast";
  std::thread writer{[&] {
    write_all(worker.out.get(), bytes);
    worker = {};
  }};
  THEN("the file has the exact bytes, the console whole lines of at most 1 MiB") {
    CHECK(hub.shows(hub.out, std::string("[default0]:a\0b\xff\n", 16) +
                                 "[default0]:" + std::string(kMaxLine, 'L') +
                                 "\n[default0]:" + std::string(4464, 'L') + "\n[default0]:last\n"));
    writer.join();
    hub.end();
    CHECK((hub.log(0, "stdout.log") == bytes));
    CHECK(hub.log(0, "stderr.log").empty());
    CHECK(fs::exists(hub.folder.path / "latest" / "attempt_0" / "0" / "stderr.log"));
  }
}

SCENARIO("output that nobody asked to tee", "[agent][output]") {
  Hub hub;
  GIVEN("two workers that write to stdout and stderr") {
    hub.start({}, 2);
    auto first = hub.open(0);
    auto second = hub.open(1);
    WHEN("one stops in the middle of a line while the other goes on") {
      write_all(first.out.get(), "one ");
      write_all(second.out.get(), "other\n");
      write_all(first.out.get(), "line\n");
      THEN("their lines don't tear each other") {
        CHECK(hub.run_until([&] { return hub.out.text().size() == 15; }));
        auto lines = lines_of(hub.out.text());
        std::sort(lines.begin(), lines.end());
        CHECK(lines == std::vector<std::string>{"one line", "other"});
      }
    }
    WHEN("a busy machine lets 0.1 s pass within a line, as between the two writes of print()") {
      write_all(first.out.get(), "one ");
      const auto later = std::chrono::steady_clock::now() + Millis{100};
      hub.run_until([&] { return std::chrono::steady_clock::now() >= later; });
      write_all(second.out.get(), "other\n");
      CHECK(hub.run_until([&] { return hub.out.text() == "other\n"; }));
      write_all(first.out.get(), "line\n");
      THEN("their lines aren't glued") { CHECK(hub.shows(hub.out, "other\none line\n")); }
    }
    WHEN("one asks something without a newline") {
      write_all(first.out.get(), "Continue? ");
      THEN("it is shown after a short silence, as it is") {
        CHECK(hub.shows(hub.out, "Continue? "));
      }
    }
    WHEN("one draws a progress bar") {
      write_all(first.err.get(), "10%\r");
      THEN("it moves at once") { CHECK(hub.shows(hub.err, "10%\r")); }
    }
    WHEN("one ends without a newline") {
      write_all(first.out.get(), "no newline");
      first = {};
      CHECK(hub.shows(hub.out, "no newline"));
      THEN("nothing is added, but the next line begins on its own") {
        write_all(second.out.get(), "next\n");
        CHECK(hub.shows(hub.out, "no newline\nnext\n"));
      }
    }
  }
}

SCENARIO("stdout and stderr lead to the same terminal or file", "[agent][output]") {
  Hub hub;
  hub.start({}, 1, {.same_target = true});
  auto worker = hub.open(0);
  std::string expected;
  for (int i = 0; i < 50; ++i) {
    write_all(i % 2 == 0 ? worker.out.get() : worker.err.get(), std::to_string(i) + "\n");
    expected += std::to_string(i) + "\n";
  }
  THEN("their order is kept, and ours with it") {
    CHECK(hub.shows(hub.out, expected));
    hub.hub->say("from the agent");
    CHECK(hub.shows(hub.out, expected + "from the agent\n"));
    CHECK(hub.hub->tail(LocalRank{0}) == expected);
  }
}

SCENARIO("a line of ours while a worker's line is unfinished", "[agent][output]") {
  Hub hub;
  hub.start({}, 1, {.same_target = true});
  auto worker = hub.open(0);
  write_all(worker.out.get(), "Loading...");
  CHECK(hub.shows(hub.out, "Loading..."));
  hub.hub->say("restarting\n");
  CHECK(hub.shows(hub.out, "Loading...\nrestarting\n"));
}

SCENARIO("ranks that are filtered out", "[agent][output]") {
  Hub hub;
  OutputPlan plan = tee(hub);
  plan.console = {LocalRank{1}};
  hub.start(plan, 2);
  auto first = hub.open(0);
  auto second = hub.open(1, 7);
  write_all(first.out.get(), "unseen\n");
  write_all(first.err.get(), "Traceback\n");
  write_all(second.out.get(), "seen\n");
  CHECK(hub.run_until([&] {
    return hub.hub->tail(LocalRank{0}) == "unseen\nTraceback\n" && !hub.out.text().empty();
  }));
  hub.end();
  CHECK(hub.log(0, "stdout.log") == "unseen\n");
  CHECK(hub.log(0, "stderr.log") == "Traceback\n");
  CHECK(hub.log(1, "stdout.log") == "seen\n");
  CHECK(hub.shows(hub.out, "[default1]:seen\n"));
  CHECK(hub.err.text().empty());
}

SCENARIO("redirects go to the file alone, and its path is known", "[agent][output]") {
  Hub hub;
  OutputPlan plan;
  plan.redirects.some = {{LocalRank{0}, Streams::err}};
  hub.start(plan, 2);
  auto first = hub.open(0);
  auto second = hub.open(1);
  write_all(first.err.get(), "to the file");
  write_all(second.err.get(), "to the console\n");
  CHECK(hub.shows(hub.err, "to the console\n"));
  hub.hub->drain(LocalRank{0});
  hub.end();
  CHECK(hub.log(0, "stderr.log") == "to the file");
  CHECK(hub.hub->log_path(LocalRank{0}, Streams::err) ==
        hub.run_folder() + "/attempt_0/0/stderr.log");
  CHECK(hub.hub->log_path(LocalRank{0}, Streams::out).empty());
  CHECK(hub.hub->log_path(LocalRank{0}, kBoth) == hub.run_folder() + "/attempt_0/0");
  CHECK(hub.hub->log_path(LocalRank{1}, kBoth).empty());
}

SCENARIO("the worker has exited but a child of it holds the pipe", "[agent][output][timing]") {
  Hub hub;
  hub.start(tee(hub), 1);
  auto held = hub.open(0);
  write_all(held.out.get(), "last words");
  WHEN("it is drained without another turn of the loop") {
    const auto before = std::chrono::steady_clock::now();
    hub.hub->drain(LocalRank{0});
    THEN("what is there is there at once") {
      CHECK(std::chrono::steady_clock::now() - before < std::chrono::seconds{1});
      CHECK(hub.hub->tail(LocalRank{0}) == "last words");
      hub.end();
      CHECK(hub.log(0, "stdout.log") == "last words");
      CHECK(hub.shows(hub.out, "[default0]:last words\n"));
    }
  }
}

SCENARIO("a worker that still writes when the round ends", "[agent][output]") {
  Hub hub;
  hub.start({}, 1);
  auto worker = hub.open(0);
  ::signal(SIGPIPE, SIG_IGN);
  std::thread writer{
      [&] { write_all(worker.out.get(), std::string(std::size_t{64} << 20U, 'x')); }};
  CHECK(hub.run_until([&] { return !hub.hub->tail(LocalRank{0}).empty(); }));
  hub.end();
  writer.join();  // its pipe is closed
  CHECK(hub.hub->tail(LocalRank{0}).size() >= 65'536);
  CHECK(hub.hub->tail(LocalRank{0}).size() < 80'000);
}

SCENARIO("a warning on stderr hid in the report what the worker said last on stdout",
         "[agent][output]") {
  Hub hub;
  hub.start({}, 1);
  auto worker = hub.open(0);
  write_all(worker.out.get(), "progress\n");
  hub.hub->drain(LocalRank{0});
  CHECK(hub.hub->tail(LocalRank{0}) == "progress\n");
  write_all(worker.err.get(), "\n");
  hub.hub->drain(LocalRank{0});
  CHECK(hub.hub->tail(LocalRank{0}) == "progress\n");
  write_all(worker.err.get(), "Traceback");
  hub.hub->drain(LocalRank{0});
  CHECK(hub.hub->tail(LocalRank{0}) == "progress\n\nTraceback");
  hub.hub->end_round();
  CHECK(hub.hub->tail(LocalRank{0}) == "progress\n\nTraceback");
  hub.hub->begin_round(Round{1}, hub.run_folder());
  CHECK(hub.hub->tail(LocalRank{0}).empty());
}

SCENARIO("rounds leave no descriptors behind", "[agent][output]") {
  Hub hub;
  hub.start(tee(hub), 3);
  const auto open_files = [] {
    return std::distance(fs::directory_iterator{"/proc/self/fd"}, fs::directory_iterator{});
  };
  std::ptrdiff_t before = 0;
  for (std::uint64_t round = 0; round < 30; ++round) {
    hub.hub->begin_round(Round{round}, hub.run_folder());
    for (std::uint32_t i = 0; i < 3; ++i) {
      auto worker = hub.open(i);
      write_all(worker.out.get(), "round\n");
    }
    hub.hub->end_round();
    hub.hub->finish(Millis{5000});
    if (round == 2) before = open_files();
  }
  CHECK(hub.run_until([&] { return open_files() == before; }));  // files are closed by their thread
  CHECK(content(fs::path{hub.run_folder()} / "attempt_29" / "2" / "stdout.log") == "round\n");
}

SCENARIO("two progress bars that begin with a carriage return", "[agent][output]") {
  Hub hub;
  hub.start({}, 2);
  auto first = hub.open(0);
  auto second = hub.open(1);
  std::string expected;
  for (int i = 0; i < 3; ++i) {
    for (auto* worker : {&first, &second}) {
      const std::string bar = "\r" + std::string(worker == &first ? "first " : "second ") +
                              std::to_string(i) + std::string(50, '#');
      write_all(worker->err.get(), bar);
      expected += bar;
      CHECK(hub.shows(hub.err, expected));
    }
  }
  THEN("no text of one stands behind the other's") {
    CHECK(hub.err.text().find("##s") == std::string::npos);
  }
}

SCENARIO("a program on a pseudo-terminal", "[agent][output]") {
  Hub hub;
  OutputPlan plan = tee(hub);
  plan.pty = true;
  hub.start(plan, 1, {.window = {120, 40}});
  auto worker = hub.open(0);
  THEN("it sees a terminal as wide as ours is behind the prefix") {
    CHECK(::isatty(worker.out.get()) == 1);
    CHECK(::isatty(worker.err.get()) == 0);
    winsize size{};
    REQUIRE(::ioctl(worker.out.get(), TIOCGWINSZ, &size) == 0);
    CHECK(size.ws_col == 120 - 11);
    CHECK(size.ws_row == 40);
  }
  THEN("the bytes arrive as they were written, nothing is echoed, and EIO is the end") {
    std::string bytes = "line\n\ttab\x04\x03\x1a\x7f\r\n";
    for (int i = 0; i < 256; ++i) bytes += static_cast<char>(i);
    for (int i = 0; i < 20'000; ++i) bytes += "step " + std::to_string(i) + "\n";
    std::thread writer{[&] {
      write_all(worker.out.get(), bytes);
      worker = {};
    }};
    CHECK(hub.run_until([&] { return hub.log(0, "stdout.log").size() >= bytes.size(); }));
    writer.join();
    hub.end();
    CHECK((hub.log(0, "stdout.log") == bytes));
    CHECK(hub.hub->losses().empty());
  }
  THEN("the last words of a worker are drained, whoever else holds the terminal") {
    std::string words(8'000, 'w');
    write_all(worker.out.get(), words);
    hub.hub->drain(LocalRank{0});
    CHECK((hub.hub->tail(LocalRank{0}) == words));
    hub.end();
    CHECK((hub.log(0, "stdout.log") == words));
  }
  THEN("it blocks while its output isn't taken, as with a pipe") {
    REQUIRE(::fcntl(worker.out.get(), F_SETFL, O_NONBLOCK) == 0);
    std::size_t taken = 0;
    for (ssize_t n = 0; (n = ::write(worker.out.get(), "0123456789\n", 11)) > 0;)
      taken += static_cast<std::size_t>(n);
    CHECK(taken < 100'000);
    CHECK(hub.run_until([&] { return hub.log(0, "stdout.log").size() == taken; }));
  }
}

SCENARIO("what a worker's environment says of its output", "[agent][output]") {
  const auto names = [](const std::vector<Variable>& variables) {
    std::string all;
    for (const auto& variable : variables) all += variable.name + "=" + variable.value + " ";
    return all;
  };
  Hub hub;
  OutputPlan plan;
  const ConsoleFacts terminal{.out_is_tty = true, .err_is_tty = true, .window = {100, 30}};
  WHEN("it is shown on a terminal") {
    hub.start(plan, 2, terminal);
    CHECK(names(hub.hub->environment(LocalRank{0}, Rank{0})) == "COLUMNS=100 LINES=30 ");
  }
  WHEN("it has the terminal itself") {
    hub.start(plan, 1, terminal);
    CHECK(hub.hub->environment(LocalRank{0}, Rank{0}).empty());
  }
  WHEN("it is shown behind a prefix") {
    plan.tee.all = kBoth;
    hub.start(plan, 2, terminal);
    CHECK(names(hub.hub->environment(LocalRank{1}, Rank{1})) == "COLUMNS=89 LINES=30 ");
  }
  WHEN("it goes through a pseudo-terminal to a terminal") {
    plan.pty = true;
    hub.start(plan, 2, terminal);
    CHECK(names(hub.hub->environment(LocalRank{0}, Rank{0})) ==
          "COLUMNS=100 LINES=30 PAGER=cat GIT_PAGER=cat ");
  }
  WHEN("it goes through one to a file") {
    plan.pty = true;
    hub.start(plan, 2);
    CHECK(names(hub.hub->environment(LocalRank{0}, Rank{0})) ==
          "NO_COLOR=1 PAGER=cat GIT_PAGER=cat ");
  }
  WHEN("there is no terminal at all") {
    hub.start(plan, 2);
    CHECK(hub.hub->environment(LocalRank{0}, Rank{0}).empty());
  }
}

SCENARIO("an idle hub sleeps", "[agent][output]") {
  Hub hub;
  hub.start({}, 2);
  auto worker = hub.open(0);
  write_all(worker.out.get(), "one line\n");
  CHECK(hub.shows(hub.out, "one line\n"));
  while (hub.io.run_one_for(Millis{200}) != 0) {
  }
  CHECK(hub.io.run_for(Millis{300}) == 0);
}
