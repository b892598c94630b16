#include "agent/fanout/trouble_text.hpp"

#include <catch2/catch.hpp>

#include <cerrno>
#include <csignal>

using namespace acc;
using namespace acc::agent;
using Catch::Contains;

namespace {

const TransportWords kSsh{true, "ssh", "1.0"};

std::string text_of(int code, std::string said, const TransportWords& words = kSsh) {
  return describe({HostTrouble::What::exited, Exited{code}, 0, std::move(said)}, "b", words);
}

}  // namespace

TEST_CASE("what ssh says comes with what to do", "[agent][fanout]") {
  CHECK_THAT(text_of(255, "ssh: Could not resolve hostname b: Name or service not known\r\n"),
             Contains("check its spelling"));
  CHECK_THAT(text_of(255, "ssh: connect to host b port 22: Connection refused\n"),
             Contains("no ssh server listens there"));
  CHECK_THAT(text_of(255, "root@b: Permission denied (publickey,password).\n"),
             Contains("ssh-copy-id b"));
  CHECK_THAT(text_of(255, "Host key verification failed.\n"), Contains("`ssh b`"));
  CHECK_THAT(text_of(255, "something else\n"), Contains("something else: try `ssh b true`"));
  CHECK_THAT(text_of(255, ""), Contains("without a word"));
}

TEST_CASE("a host with HOST in its name was put into itself until the memory was used up",
          "[agent][fanout]") {
  const auto text = [](const std::string& host) {
    return describe({HostTrouble::What::exited, Exited{255}, 0, "Permission denied (publickey).\n"},
                    host, kSsh);
  };
  CHECK_THAT(text("GPUHOST01"), Contains("ssh-copy-id GPUHOST01, or ssh-add"));
  CHECK_THAT(text("root@HOST1"), Contains("ssh-copy-id root@HOST1, or ssh-add"));
}

TEST_CASE("a host without acc-launch isn't confused with one without the script",
          "[agent][fanout]") {
  CHECK_THAT(text_of(127, "sh: 1: exec: acc-launch: not found\n"),
             Contains("there is no acc-launch") && Contains("--remote_launch PATH"));
  CHECK_THAT(text_of(127, "Welcome\nacc-launch: cannot start 'x.py': No such file or directory\n"),
             Contains("cannot start 'x.py'") && Contains("files aren't copied"));
  CHECK_THAT(text_of(2, "acc-launch: unrecognized arguments: --life_line=0\n"),
             Contains("another version"));
  CHECK_THAT(text_of(2,
                     "acc-launch: note: a\nacc-launch: one\nacc-launch: two\n"
                     "acc-launch: try --help\n"),
             Catch::Equals("one; two"));
}

TEST_CASE("another program's words are shown as they are", "[agent][fanout]") {
  const TransportWords docker{false, "docker", "1.0"};
  CHECK(text_of(1, "Error: No such container: b\n", docker) ==
        "docker exited with code 1 before acc-launch answered (Error: No such container: b)");
  CHECK_THAT(describe({HostTrouble::What::not_started, {}, ENOENT, {}}, "b", docker),
             Contains("'docker' could not be started here: No such file"));
}

TEST_CASE("hosts with the same trouble stand together", "[agent][fanout]") {
  auto state = fan_out_over(12, {});
  std::vector<std::string> names;
  for (int i = 0; i < 12; ++i) names.push_back("n" + std::to_string(i));
  for (std::size_t i = 1; i < 12; ++i)
    state.hosts[i].trouble = {HostTrouble::What::exited, Exited{127}, 0, ""};
  state.hosts[3].trouble = {HostTrouble::What::other_version, {}, 0, "0.9"};
  const auto text = describe_troubles(state, names, kSsh);
  CHECK_THAT(text, Catch::StartsWith("11 of 12 hosts can't take part, so nothing was started:\n"));
  CHECK_THAT(text, Contains("\n  n1, n2, n4, n5, n6, n7, n8, n9 and 2 more: there is no"));
  state.hosts[3].trouble = {HostTrouble::What::same_daemon, {}, 0, {}, 1};
  CHECK_THAT(describe_troubles(state, names, kSsh), Contains("\n  n3: is n1, under another name"));
  CHECK_THAT(text, Contains("\n  n3: its acc-launch is version 0.9, this one is 1.0"));
}

TEST_CASE("the line of a host that was given up stood once more, in brackets, in the next one",
          "[agent][fanout]") {
  const TransportWords daemons{false, "acc-ctl", "1.0", true};
  const std::string rest =
      "; its part of the job may go on: 'acc-ctl --node b ps' shows it, 'acc-ctl stop ID' ends it";
  CHECK(describe_lost({1, Exited{69}, "x\nacc-launch: b: no answer for 1 min, so its part …\n"},
                      "b", daemons) == "what b does is not known any longer" + rest);
  CHECK(describe_lost({1, Signaled{SIGKILL, false}, "x\n"}, "b", daemons) ==
        "what b does is not known any longer: acc-ctl killed by SIGKILL (9) (x)" + rest);
}

TEST_CASE("output that isn't here is told with the host that has it", "[agent][fanout]") {
  CHECK(describe_loss({9, 120, "stdout", "No space left on device"}, "b") ==
        "warning: 9 lines of stdout were lost on b (No space left on device)");
  CHECK(describe_loss({0, 0, "output", "it is there: acc-ctl --node b logs x"}, "b") ==
        "warning: output of b may be missing here from its last line on; it is there: acc-ctl "
        "--node b logs x");
}

TEST_CASE("a part that is out of reach may go on, as its nodes may reach each other",
          "[agent][fanout]") {
  FanOutHost left;
  left.silence = HostSilence{};
  left.job = "hosts-x.1-ab";
  CHECK(describe_left({1}, left, "b", {false, "acc-ctl", "1.0", true}) ==
        "b is unreachable; its part may go on: 'acc-ctl --node b stop hosts-x.1-ab', on any node "
        "that reaches it, ends it");
  left.job.clear();
  CHECK_THAT(describe_left({1}, left, "b", {false, "acc-ctl", "1.0", true}),
             Contains("'acc-ctl --node b ps'"));
  CHECK_THAT(describe_left({1}, left, "b", kSsh), Contains("acc-launch there notices"));
}

TEST_CASE("workers that had ended with success were said to be killed", "[agent][fanout]") {
  FanOutHost left;
  left.silence = HostSilence{};
  left.job = "hosts-x.1-ab";
  const std::string over =
      "b is unreachable, and the job has ended: its part has, too, or ends by itself";
  CHECK(describe_left({1, true}, left, "b", {false, "acc-ctl", "1.0", true}) ==
        over + "; 'acc-ctl --node b ps', on any node that reaches it, shows it");
  CHECK(describe_left({1, true}, left, "b", kSsh) == over);
}

TEST_CASE("a lost connection is told with its host", "[agent][fanout]") {
  CHECK(describe_lost({1, Signaled{SIGKILL, false}, "x\nclient_loop: Broken pipe\n"}, "b", kSsh) ==
        "the connection to b was lost: ssh killed by SIGKILL (9) (client_loop: Broken pipe); "
        "acc-launch there stops its workers once it notices that");
  CHECK_THAT(describe_lost({1, Exited{70}, ""}, "b", kSsh), Contains("acc-launch on b ended"));
}
