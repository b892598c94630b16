#include "launcher/host_list.hpp"

#include "launcher/shell_words.hpp"

#include <catch2/catch.hpp>

using namespace acc;
using namespace acc::launcher;
using Words = std::vector<std::string>;

namespace {

/// "a b:8", or the first complaint.
std::string shown(const HostList& list) {
  if (!list.complaints.empty()) return "! " + list.complaints.front().what;
  std::string text;
  for (const auto& host : list.hosts) {
    text += (text.empty() ? "" : " ") + host.login;
    if (host.slots) text += ":" + std::to_string(*host.slots);
  }
  return text;
}

std::string in_file(std::string_view text) { return shown(parse_hostfile(text, "h")); }

}  // namespace

TEST_CASE("the flag for hosts takes names, ranges, slots, users and addresses", "[launcher][hosts]") {
  CHECK(shown(parse_hosts("a,b:8,c[1-4]")) == "a b:8 c1 c2 c3 c4");
  CHECK(shown(parse_hosts("d[01-03,20]:2, e")) == "d01:2 d02:2 d03:2 d20:2 e");
  CHECK(shown(parse_hosts("user@c[1-2]:4,10.0.0.1:2")) == "user@c1:4 user@c2:4 10.0.0.1:2");
  CHECK(shown(parse_hosts("[fd00::1]:4,root@[fd00::2]")) == "fd00::1:4 root@fd00::2");
  const auto list = parse_hosts("root@[fd00::2]:3");
  CHECK(list.hosts.at(0).address == "fd00::2");
  CHECK(list.hosts.at(0).slots == 3U);
  CHECK(parse_hosts("me@b").hosts.at(0).address == "b");
}

TEST_CASE("a host that is named again gets its slots added up", "[launcher][hosts]") {
  CHECK(shown(parse_hosts("a,b,a,a")) == "a:3 b");
  CHECK(shown(parse_hosts("a:2,b:1,a:3")) == "a:5 b:1");
  CHECK(in_file("n1\nn1\nn2\nn2\n") == "n1:2 n2:2");  // $PBS_NODEFILE
  CHECK(in_file("n1 slots=2\nn2\nn1\n") ==
        "! h:3: 'n1': this host stands in h:1 with slots, and here without");
}

TEST_CASE("host files of other launchers are read", "[launcher][hosts]") {
  CHECK(in_file("# Open MPI\nn1 slots=4 max_slots=8\n\n  n2\tslots=2 # two\r\nn3 max-slots=3\n") ==
        "n1:4 n2:2 n3:3");
  CHECK(in_file("n1:4\nn2:2\n") == "n1:4 n2:2");                                    // MPICH
  CHECK(in_file("worker-1 slots=8\nworker-2 slots=8") == "worker-1:8 worker-2:8");  // DeepSpeed
  CHECK(in_file("n1\nn2\nn3\n") == "n1 n2 n3");  // scontrol show hostnames
  CHECK(in_file("gpu[1-3] slots=8\n") == "gpu1:8 gpu2:8 gpu3:8");
  CHECK(in_file("root@[fd00::1] slots=2\n") == "root@fd00::1:2");
}

TEST_CASE("all that is wrong in a host file is told with its line", "[launcher][hosts]") {
  const auto list = parse_hostfile(
      "n1 slots=x\nn2 gpus=4\nok\n-oProxyCommand=x\nn3:0\nn4:2 slots=3\nn5 slots=4 max_slots=2\n"
      "fd00::1\na b\n\x01\n",
      "f");
  std::vector<std::string> begins;
  for (const auto& complaint : list.complaints)
    begins.push_back(complaint.what.substr(0, complaint.what.find(": ")));
  CHECK(begins == Words{"f:1", "f:2", "f:4", "f:5", "f:6", "f:7", "f:8", "f:9", "f:10"});
  CHECK(in_file("") == "! h: '': there is no host in it");
  CHECK(in_file("# only this\n\n") == "! h: '': there is no host in it");
}

TEST_CASE("a host with a port and slots was told to put its IPv6 address into brackets",
          "[launcher][hosts]") {
  const auto why = [](std::string_view text) { return parse_hosts(text).complaints.at(0).what; };
  CHECK_THAT(why("a:29701:1"), Catch::Matchers::Contains("a port is named nowhere here: node1:8"));
  CHECK_THAT(why("fd00::1"), Catch::Matchers::Contains("stands in brackets: [fd00::1]"));
  CHECK_THAT(why("1:2:3:4:5:6:7:8"), Catch::Matchers::Contains("stands in brackets"));
}

TEST_CASE("what is no host is refused", "[launcher][hosts]") {
  for (const std::string_view text : {"",
                                      ",",
                                      "a,,b",
                                      "a:",
                                      "a:0",
                                      "a:-1",
                                      "a:1:2",
                                      "a:999999999",
                                      "@a",
                                      "a@",
                                      "-x@a",
                                      "a b",
                                      "[",
                                      "[fd00::1",
                                      "[]",
                                      "[fd00::1]x",
                                      "[fd00::1]:",
                                      "fd00::1",
                                      "a[1-",
                                      "a;reboot",
                                      "$(x)",
                                      "-oProxyCommand=x",
                                      "[1-99999999]",
                                      "a[1-60000],b[1-60000]",
                                      "a'b",
                                      "a[9-1]"}) {
    INFO(text);
    CHECK(!parse_hosts(text).complaints.empty());
  }
}

TEST_CASE("hosts of the flag follow those of the file", "[launcher][hosts]") {
  CHECK(shown(merge_hosts(parse_hostfile("a\nb slots=2\n", "h"), parse_hosts("c,b:1"))) ==
        "a b:3 c");
}

TEST_CASE("words are split and quoted as a shell does it", "[launcher][hosts]") {
  CHECK(split_shell_words("docker exec -i {host} sh -c {command}").value() ==
        Words{"docker", "exec", "-i", "{host}", "sh", "-c", "{command}"});
  CHECK(split_shell_words(R"( a 'b c' "d \"e" f\ g '' "\x")").value() ==
        Words{"a", "b c", "d \"e", "f g", "", "\\x"});
  CHECK(split_shell_words("").value().empty());
  for (const auto* text : {"'a", "\"a", "a\\"}) CHECK(!split_shell_words(text).has_value());
  for (const std::string word : {"plain", "", "it's", "a b", "$HOME", "\\", "\"", "a\nb", "*", "!"})
    CHECK(split_shell_words(quote_for_shell(word)).value() == Words{word});
  CHECK(quote_for_paste("a b") == "'a b'");
  CHECK(quote_for_paste("it's\n1\x01\\") == R"($'it\'s\n1\001\\')");
}
