#include "agent/output/journal_queue.hpp"
#include "tests/unit/agent/output/support.hpp"

#include <sys/socket.h>
#include <sys/un.h>

using namespace acc;
using namespace acc::agent;
using namespace acc::agent::testing;

namespace {

/// What journald does with its socket.
struct FakeJournal {
  Folder folder;
  std::string path = (folder.path / "socket").string();
  UniqueFd fd{::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  FakeJournal() {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    REQUIRE(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  }
  std::string receive() {
    std::string datagram(200'000, '\0');
    const ssize_t n = ::recv(fd.get(), datagram.data(), datagram.size(), 0);
    datagram.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
    return datagram;
  }
};

std::string message(std::string_view text) {
  std::string size(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) size[i] = static_cast<char>(text.size() >> (8 * i) & 0xff);
  return "MESSAGE\n" + size + std::string{text} + "\n";
}

}  // namespace

SCENARIO("systemd reads our output", "[agent][output]") {
  FakeJournal journal;
  Bench bench;
  Console console;
  bench.start({}, 2, {.same_target = true, .journal_out = true, .journal_err = true},
              {.out = console.fd(), .err = console.fd(), .journal_socket = journal.path});
  WHEN("a worker and we ourselves write") {
    auto worker = bench.open(1, 5);
    write_all(worker.out.get(), "hello\nbad \xff byte\n");
    write_all(worker.err.get(), "unfinished");
    worker = {};
    bench.hub->drain(LocalRank{1});
    bench.hub->end_round();
    bench.hub->say("block\nof two lines\n");
    bench.hub->finish(Millis{5000});
    THEN("each line is a record with its rank") {
      const std::string rank =
          "SYSLOG_IDENTIFIER=acc-launch\nACC_JOB_ID=job\nACC_ROUND=0\nACC_RANK=5\nACC_LOCAL_RANK="
          "1\n";
      CHECK(
          (journal.receive() == message("hello") + "PRIORITY=6\n" + rank + "ACC_STREAM=stdout\n"));
      CHECK((journal.receive() ==
             message("bad \xff byte") + "PRIORITY=6\n" + rank + "ACC_STREAM=stdout\n"));
      CHECK((journal.receive() ==
             message("unfinished") + "PRIORITY=5\n" + rank + "ACC_STREAM=stderr\n"));
      CHECK(
          (journal.receive() == message("block\nof two lines") +
                                    "PRIORITY=5\nSYSLOG_IDENTIFIER=acc-launch\nACC_JOB_ID=job\n"));
      CHECK(console.text().empty());
    }
  }
  WHEN("a line is longer than a datagram may be") {
    auto worker = bench.open(0);
    std::thread writer{[&] {
      write_all(worker.out.get(), std::string(150'000, 'x') + "\n");
      worker = {};
    }};
    std::string all;
    CHECK(bench.run_until([&] {
      const std::string record = journal.receive();
      all += record.substr(0, record.find("\nPRIORITY"));
      return std::count(all.begin(), all.end(), 'x') == 150'000;
    }));
    writer.join();
  }
}

TEST_CASE("the report of a unit that had ended was not among its lines", "[agent][output]") {
  FakeJournal journal;
  auto queue = JournalQueue::connect(journal.path, {}, [] {});
  REQUIRE(queue);
  append_record(queue->batch(), "job failed", journal_fields("job"));
  queue->commit(0, {}, {});
  queue->flush();
  std::atomic<bool> is_read = false;
  std::thread reader{[&] {  // journald, on a busy machine
    pollfd fd{journal.fd.get(), POLLIN, 0};
    ::poll(&fd, 1, 10'000);
    std::this_thread::sleep_for(std::chrono::milliseconds{100});
    is_read = true;
    CHECK_FALSE(journal.receive().empty());
  }};
  pollfd fd{journal.fd.get(), POLLIN, 0};
  REQUIRE(::poll(&fd, 1, 10'000) == 1);
  queue->stop(Millis{1000});
  CHECK(is_read);
  reader.join();
}

SCENARIO("only stderr leads to the journal: acc-launch > out.log in a unit", "[agent][output]") {
  FakeJournal journal;
  Bench bench;
  Console out;
  Console err;
  bench.start({}, 1, {.journal_err = true},
              {.out = out.fd(), .err = err.fd(), .journal_socket = journal.path});
  auto worker = bench.open(0);
  write_all(worker.out.get(), "a result\n");
  write_all(worker.err.get(), "a warning\n");
  worker = {};
  bench.hub->drain(LocalRank{0});
  bench.hub->end_round();
  bench.hub->say("ours");
  bench.hub->finish(Millis{5000});
  CHECK(bench.run_until([&] { return out.text() == "a result\n"; }));
  CHECK(err.text().empty());
  CHECK(journal.receive().starts_with(message("a warning") + "PRIORITY=5\n"));
  CHECK(journal.receive().starts_with(message("ours")));
  CHECK(journal.receive().empty());
}

SCENARIO("more lines than the journal's socket holds", "[agent][output]") {
  FakeJournal journal;
  Bench bench;
  Console console;
  bench.start({}, 1, {.same_target = true, .journal_out = true, .journal_err = true},
              {.out = console.fd(), .err = console.fd(), .journal_socket = journal.path});
  auto worker = bench.open(0);
  std::thread writer{[&] {
    for (int i = 0; i < 20'000; ++i) write_all(worker.out.get(), "line\n");
    worker = {};
  }};
  int received = 0;
  CHECK(bench.run_until([&] {
    while (!journal.receive().empty()) ++received;
    return received == 20'000;
  }));
  writer.join();
  CHECK(bench.hub->losses().empty());
}

SCENARIO("JOURNAL_STREAM is set but no journal listens", "[agent][output]") {
  Bench bench;
  Console console;
  bench.start({}, 1, {.same_target = true, .journal_out = true, .journal_err = true},
              {.out = console.fd(), .err = console.fd(), .journal_socket = "/nonexistent/socket"});
  auto worker = bench.open(0);
  write_all(worker.out.get(), "plain\n");
  CHECK(bench.run_until([&] { return console.text() == "plain\n"; }));
}
