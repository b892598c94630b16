#include "launcher/test_command.hpp"

#include <catch2/catch.hpp>

namespace acc::launcher {
namespace {

using Words = std::vector<std::string>;

TestCommand parse(const Words& words) { return parse_test_command(words); }

}  // namespace

TEST_CASE("acc-test's words go to whom they concern", "[launcher][acc-test]") {
  const auto command = parse({"--config_file", "cfg.yaml", "--num_processes=8", "--bandwidth", "-b",
                              "8", "--maxbytes=64M", "--json", "out.json"});
  CHECK(command.complaints.empty());
  CHECK(command.launch == Words{"--config_file", "cfg.yaml", "--num_processes=8"});
  CHECK(command.worker == Words{"-b", "8", "-e", "64M", "--bandwidth"});
  CHECK(command.json_file == "out.json");
  CHECK(command.bandwidth);
}

TEST_CASE("acc-test says what it can't use", "[launcher][acc-test]") {
  CHECK(parse({"train.py"}).complaints.at(0).what.find("'train.py'") == 0);
  CHECK(parse({"--num_processes=2", "train.py"}).complaints.size() == 1);
  CHECK(parse({"-b", "8"}).complaints.at(0).what.find("--bandwidth") != std::string::npos);
  CHECK(parse({"--json"}).complaints.at(0).what == "--json needs a value");
  CHECK(parse({"--bandwidth", "-e"}).complaints.at(0).what == "-e needs a value");
}

TEST_CASE("acc-test's help names every option that it reads", "[launcher][acc-test]") {
  const auto help = test_help();
  for (const std::string word : {"--bandwidth", "--json", "--local_only", "-b", "-e", "-f", "-n",
                                 "-w", "-o", "-d", "-r", "-c", "-a", "-T", "-R", "-u", "--only"}) {
    INFO(word);
    CHECK(help.find(word) != std::string::npos);
  }
}

}  // namespace acc::launcher
