#include "launcher/check/command.hpp"

#include <catch2/catch.hpp>

namespace acc::check {
namespace {

using Words = std::vector<std::string>;

Command parse(const Words& words) { return parse_command(words); }

}  // namespace

TEST_CASE("acc-test's words go to whom they concern", "[check]") {
  const auto command = parse({"--config_file", "cfg.yaml", "--num_processes=8", "--bandwidth", "-b",
                              "8", "--maxbytes=64M", "--json", "out.json"});
  CHECK(command.complaints.empty());
  CHECK(command.launch == Words{"--config_file", "cfg.yaml", "--num_processes=8"});
  CHECK(command.worker == Words{"-b", "8", "-e", "64M", "--bandwidth"});
  CHECK(command.json_file == "out.json");
  CHECK(command.bandwidth);
}

TEST_CASE("acc-test says what it can't use", "[check]") {
  CHECK(parse({"train.py"}).complaints.at(0).what.find("'train.py'") == 0);
  CHECK(parse({"--num_processes=2", "train.py"}).complaints.size() == 1);
  CHECK(parse({"-b", "8"}).complaints.at(0).what.find("--bandwidth") != std::string::npos);
  CHECK(parse({"--json"}).complaints.at(0).what == "--json needs a value");
  CHECK(parse({"--bandwidth", "-e"}).complaints.at(0).what == "-e needs a value");
  CHECK(parse({"--cpu", "train.py"}).complaints.at(0).what.find("'train.py'") == 0);
  CHECK(parse({"--num_processes", "x"}).complaints.size() == 1);
}

TEST_CASE("a mistyped option of acc-test is told with the one that was meant", "[check]") {
  const auto said = [](const Words& words) { return parse(words).complaints.at(0).what; };
  CHECK(said({"--bandwith"}) == "unrecognized arguments: --bandwith (did you mean --bandwidth?)");
  CHECK(said({"--num_proceses=2"}).find("did you mean --num_processes?") != std::string::npos);
  CHECK(parse({"--bandwith", "3"}).complaints.size() == 1);  // 3 is no script
}

TEST_CASE("what people type for nccl-tests by habit is taken or refused by name", "[check]") {
  const auto command = parse({"-b", "8", "-g", "1", "--bandwidth", "--nthreads=1", "-z", "0"});
  CHECK(command.complaints.empty());
  CHECK(command.launch.empty());
  CHECK(command.worker == Words{"-b", "8", "--bandwidth"});
  CHECK(parse({"--bandwidth", "-g", "8"}).complaints.at(0).what ==
        "-g 8: every rank has one device: give --num_processes");
  CHECK(parse({"-t", "3"}).launch == Words{"-t", "3"});  // --tee, without --bandwidth
}

TEST_CASE("the checks heed -T, too", "[check]") {
  const auto command = parse({"-T", "5"});
  CHECK(command.complaints.empty());
  CHECK(command.worker == Words{"-T", "5"});
}

TEST_CASE("acc-test's words on several machines", "[check]") {
  const auto command = parse({"--hosts", "a,b:8", "--network", "-T", "2"});
  CHECK(command.complaints.empty());
  CHECK(command.on_hosts);
  CHECK(command.network);
  CHECK(command.launch == Words{"--hosts", "a,b:8"});
  CHECK(command.worker == Words{"-T", "2", "--network"});
  CHECK_FALSE(parse({"--num_processes=2"}).on_hosts);
  CHECK(parse({"--hostfile", "hosts"}).on_hosts);
  const auto said = [](const Words& words) { return parse(words).complaints.at(0).what; };
  CHECK(said({"--network", "--bandwidth"}).find("give one") != std::string::npos);
  CHECK(said({"--hosts", "a", "--local_only"}).starts_with("--local_only looks at this machine"));
  CHECK(said({"--hosts", "a,b", "--detach"}).starts_with("--detach: acc-test waits"));
  CHECK(said({"--netwrk"}).find("did you mean --network?") != std::string::npos);
}

TEST_CASE("acc-test's help names every option that it reads", "[check]") {
  const auto help = help_text();
  for (const std::string word :
       {"--bandwidth", "--network", "--json", "--local_only", "-b", "-e", "-f", "-n", "-w", "-o",
        "-d", "-r", "-c", "-a", "-T", "-R", "-u", "--only"}) {
    INFO(word);
    CHECK(help.find(word) != std::string::npos);
  }
}

}  // namespace acc::check
