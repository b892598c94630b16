#include "agent/fanout/orders.hpp"

#include <catch2/catch.hpp>

#include <csignal>

using namespace acc;
using namespace acc::agent;

namespace {

LaunchOrder there_and_back(const LaunchOrder& order) {
  auto line = encode(order);
  REQUIRE(line.back() == '\n');
  line.pop_back();
  CHECK(line.find('\n') == std::string::npos);
  return decode_order(line).value();
}

}  // namespace

TEST_CASE("orders come back as they were, whatever bytes they hold", "[agent][fanout]") {
  const std::string bytes = "a b%25\n\r\t\x1e=\x7f\xc3\xa4'\"";
  CHECK(std::get<SetFolder>(there_and_back(SetFolder{"/x" + bytes})).path == "/x" + bytes);
  const auto variable = std::get<SetVariable>(there_and_back(SetVariable{"NAME", bytes}));
  CHECK(variable.name == "NAME");
  CHECK(variable.value == bytes);
  CHECK(std::get<SetVariable>(there_and_back(SetVariable{"EMPTY", ""})).value.empty());
  CHECK(std::get<Prepare>(there_and_back(Prepare{"token"})).token == "token");
  CHECK(std::holds_alternative<Go>(there_and_back(Go{})));
  CHECK(std::holds_alternative<AskContact>(there_and_back(AskContact{})));
  CHECK(std::holds_alternative<WaitLonger>(there_and_back(WaitLonger{})));
  for (const int signo : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2})
    CHECK(std::get<PassSignal>(there_and_back(PassSignal{signo})).signo == signo);
}

TEST_CASE("the mark of lost output comes back whatever its words hold", "[agent][fanout]") {
  const std::string where = "log files in /a b\t%\n";
  auto line = encode(OutputLost{9, UINT64_MAX, where, ""}, "t");
  line.pop_back();
  CHECK(line.find('\n') == std::string::npos);
  const auto mark = decode_mark(line, "t");
  REQUIRE(mark);
  const auto lost = std::get<OutputLost>(*mark);
  CHECK(lost.lines == 9);
  CHECK(lost.bytes == UINT64_MAX);
  CHECK(lost.where == where);
  CHECK(lost.why.empty());
  for (const std::string rest : {"losses", "losses 1", "losses 1\t2\tx", "losses x\t2\ta\tb",
                                 "losses 1\t2\ta\tb\tc", "losses 1\t2\t%0\tb"})
    CHECK(!decode_mark(kMarkBegin + std::string{"acc-node t "} + rest, "t"));
}

TEST_CASE("a line that is no order is refused", "[agent][fanout]") {
  for (const std::string_view line : {"",
                                      "go now",
                                      "ask now",
                                      "Go",
                                      "signal",
                                      "signal KILL",
                                      "signal 9",
                                      "env",
                                      "env =x",
                                      "env NAME",
                                      "env NAME=%",
                                      "env NAME=%0",
                                      "env NAME=%zz",
                                      "env A%3dB=1",
                                      "env NAME=%00",
                                      "folder",
                                      "folder ",
                                      "prepare",
                                      "prepare ",
                                      "secret x",
                                      "signal INT "}) {
    INFO(line);
    CHECK(!decode_order(line).has_value());
  }
}

TEST_CASE("only a line with the job's token is a mark", "[agent][fanout]") {
  const auto line = [](const LaunchMark& mark, std::string_view token) {
    auto text = encode(mark, token);
    text.pop_back();
    return text;
  };
  CHECK(std::get<Prepared>(*decode_mark(line(Prepared{"1.2"}, "t0k"), "t0k")).version == "1.2");
  CHECK(std::get<Prepared>(*decode_mark(line(Prepared{"1.2"}, "t0k"), "t0k")).daemon.empty());
  const auto prepared = std::get<Prepared>(*decode_mark(line(Prepared{"1.2", "d"}, "t0k"), "t0k"));
  CHECK(prepared.version + prepared.daemon == "1.2d");
  CHECK(std::get<JobEnded>(*decode_mark(line(JobEnded{255}, "t0k"), "t0k")).exit_code == 255);
  CHECK(std::get<JobStarted>(*decode_mark(line(JobStarted{"x.0-a"}, "t0k"), "t0k")).id == "x.0-a");
  const HostEvent event{R"({"event": "failure", "cause": "100 % \n"})"};
  CHECK(std::get<HostEvent>(*decode_mark(line(event, "t0k"), "t0k")).line == event.line);
  const ContactLost lost{Millis{15'000}, Millis{60'000}};
  CHECK(std::get<ContactLost>(*decode_mark(line(lost, "t0k"), "t0k")).silent == lost.silent);
  CHECK(std::get<ContactLost>(*decode_mark(line(lost, "t0k"), "t0k")).limit == lost.limit);
  CHECK(std::holds_alternative<ContactBack>(*decode_mark(line(ContactBack{}, "t0k"), "t0k")));
  CHECK(begins_mark(line(event, "t0k"), "t0k"));
  CHECK(!begins_mark(line(event, "t0k"), "t0"));
  CHECK(!begins_mark(line(event, ""), ""));
  CHECK(!decode_mark(line(JobEnded{0}, "t0k"), "other"));
  CHECK(!decode_mark(line(JobEnded{0}, ""), ""));
  for (const std::string_view text : {"", "\x1e",
                                      "\x1e"
                                      "acc-node t0k",
                                      "\x1e"
                                      "acc-node t0k ended",
                                      "\x1e"
                                      "acc-node t0k ended x",
                                      "\x1e"
                                      "acc-node t0k lost 15000",
                                      "\x1e"
                                      "acc-node t0k lost 15000/x",
                                      "\x1e"
                                      "acc-node t0k ended 256",
                                      "\x1e"
                                      "acc-node t0k ended -1",
                                      "acc-node t0k ended 0",
                                      "\x1e"
                                      "acc-node t0k prepared ",
                                      "\x1e"
                                      "acc-node t0k began 0"})
    CHECK(!decode_mark(text, "t0k"));
}
