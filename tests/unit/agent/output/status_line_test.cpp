#include "tests/unit/agent/output/support.hpp"

#include <poll.h>
#include <unistd.h>

#include <algorithm>

using namespace acc;
using namespace acc::agent;
using namespace acc::agent::testing;

namespace {

const std::string kErase = "\r\033[K";

struct StatusTerminal : Bench {
  Console console;
  void start(std::uint32_t workers, Choice capture = Choice::yes) {
    OutputPlan plan;
    plan.capture = capture;
    ConsoleFacts facts;
    facts.out_is_tty = facts.err_is_tty = facts.same_target = true;
    Bench::start(plan, workers, facts, {.out = console.fd(), .err = console.fd()});
  }
  bool shows(const std::string& text) {
    return run_until([&] { return console.text() == text; });
  }
};

}  // namespace

SCENARIO("a status line stays below the workers' lines", "[agent][output]") {
  StatusTerminal terminal;
  terminal.start(2);
  auto worker = terminal.open(0);
  auto& hub = *terminal.hub;
  CHECK(hub.can_show_status());
  hub.set_status("waiting 1 s");
  CHECK(terminal.shows("waiting 1 s"));
  hub.set_status("waiting 1 s");  // nothing new
  hub.set_status("waiting 2 s");
  std::string expected = "waiting 1 s" + kErase + "waiting 2 s";
  CHECK(terminal.shows(expected));
  write_all(worker.out.get(), "hello\n");
  expected += kErase + "hello\nwaiting 2 s";
  CHECK(terminal.shows(expected));
  hub.say("acc-launch: a message");
  expected += kErase + "acc-launch: a message\nwaiting 2 s";
  CHECK(terminal.shows(expected));
  hub.set_status("");
  expected += kErase;
  CHECK(terminal.shows(expected));
  hub.finish(Millis{10'000});
  CHECK(terminal.console.text() == expected);
}

SCENARIO("a status line isn't drawn into a worker's unfinished line", "[agent][output]") {
  StatusTerminal terminal;
  terminal.start(2);
  auto worker = terminal.open(0);
  auto& hub = *terminal.hub;
  write_all(worker.out.get(), "50 %\r");
  CHECK(terminal.shows("50 %\r"));
  hub.set_status("status");
  write_all(worker.out.get(), "done\n");
  CHECK(terminal.shows("50 %\rdone\nstatus"));
}

SCENARIO("a status line stayed where the terminal had not taken all when it ended",
         "[agent][output]") {
  StatusTerminal terminal;
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const UniqueFd read_end{ends[0]};
  const UniqueFd write_end{ends[1]};
  ConsoleFacts facts;
  facts.out_is_tty = facts.err_is_tty = facts.same_target = true;
  OutputPlan plan;
  plan.capture = Choice::yes;
  static_cast<Bench&>(terminal).start(plan, 2, facts,
                                      {.out = write_end.get(), .err = write_end.get()});
  auto& hub = *terminal.hub;
  const std::string message(256UL * 1024, 'm');  // more than the pipe takes
  hub.say(message);
  hub.set_status("waiting");
  hub.say("behind it");
  hub.set_status("");
  std::string got;
  char buffer[65536];
  while (!got.ends_with("behind it\n" + kErase) && !got.ends_with("behind it\nwaiting" + kErase)) {
    pollfd ready{read_end.get(), POLLIN, 0};
    const int n = ::poll(&ready, 1, 10'000);
    INFO(got.substr(got.size() - std::min<std::size_t>(got.size(), 100)));
    REQUIRE(n == 1);
    got.append(buffer, static_cast<std::size_t>(::read(read_end.get(), buffer, sizeof buffer)));
  }
  hub.finish(Millis{10'000});
}

SCENARIO("what isn't a terminal, or only half of one, has no status line", "[agent][output]") {
  boost::asio::io_context io;
  const auto shows = [&](const ConsoleFacts& facts) {
    return OutputHub{io, {}, 1, facts}.can_show_status();
  };
  ConsoleFacts facts;
  CHECK(!shows(facts));
  facts.out_is_tty = true;
  CHECK(!shows(facts));
  facts.err_is_tty = true;  // two terminals
  CHECK(!shows(facts));
  facts.same_target = true;
  CHECK(shows(facts));
  facts = {};
  facts.err_is_tty = true;  // acc-launch … > out.log
  CHECK(shows(facts));
}
