#include "launcher/cli.hpp"

#include "launcher/key_table.hpp"

#include <catch2/catch.hpp>

using namespace acc;
using namespace acc::launcher;
using namespace acc::launcher::literals;
using Words = std::vector<std::string>;

namespace {

std::string complaint(const Words& words) {
  const auto line = parse_command_line(words);
  return line.complaints.empty() ? "" : line.complaints.front().what;
}

std::string value(const Words& words, Key key) {
  const auto line = parse_command_line(words);
  const auto* given = line.given(key);
  return given == nullptr ? "(not given)" : python_text(given->value);
}

}  // namespace

TEST_CASE("an option and its value are two words, or one with =", "[launcher][cli]") {
  CHECK(value({"--num_processes", "2", "s.py"}, "num_processes"_key) == "2");
  CHECK(value({"--num_processes=2", "s.py"}, "num_processes"_key) == "2");
  CHECK(value({"--main_process_ip=", "s.py"}, "main_process_ip"_key).empty());
}

TEST_CASE("underscores may all be hyphens, but not some of them", "[launcher][cli]") {
  CHECK(value({"--num-cpu-threads-per-process=3", "s.py"}, "num_cpu_threads_per_process"_key) ==
        "3");
  CHECK(complaint({"--num_cpu-threads_per_process=3", "s.py"}).find("unrecognized arguments") == 0);
}

TEST_CASE("an option is not abbreviated", "[launcher][cli]") {
  const auto said = complaint({"--num_proc", "2", "s.py"});
  CHECK(said.find("--num_proc") != std::string::npos);
  CHECK(complaint({"--num_procesess=2", "s.py"}).find("did you mean --num_processes?") !=
        std::string::npos);
}

TEST_CASE("the last of several wins", "[launcher][cli]") {
  CHECK(value({"--num_processes=2", "--num-processes", "5", "s.py"}, "num_processes"_key) == "5");
}

TEST_CASE("everything after the script belongs to the script", "[launcher][cli]") {
  const auto line = parse_command_line(Words{"s.py", "--num_processes", "5", "--cpu", "-m"});
  CHECK(line.script == "s.py");
  CHECK(line.script_args == Words{"--num_processes", "5", "--cpu", "-m"});
  CHECK(line.options.empty());
}

TEST_CASE("the first -- is dropped right before or right after the script", "[launcher][cli]") {
  CHECK(parse_command_line(Words{"s.py", "--", "x"}).script_args == Words{"x"});
  CHECK(parse_command_line(Words{"s.py", "--", "--", "x"}).script_args == Words{"--", "x"});
  CHECK(parse_command_line(Words{"--", "s.py", "--", "x"}).script_args == Words{"--", "x"});
  CHECK(parse_command_line(Words{"s.py", "a", "--", "x"}).script_args == Words{"a", "--", "x"});
  CHECK(parse_command_line(Words{"--", "--cpu", "x"}).script == "--cpu");
}

TEST_CASE("a switch takes no value", "[launcher][cli]") {
  CHECK(complaint({"--multi_gpu=true", "s.py"}).find("ignored explicit argument 'true'") !=
        std::string::npos);
  const auto line = parse_command_line(Words{"--same_network", "false", "s.py"});
  CHECK(line.script == "false");
  CHECK(line.script_args == Words{"s.py"});
}

TEST_CASE("a value that looks like an option is none", "[launcher][cli]") {
  CHECK(complaint({"--main_process_ip", "--cpu", "s.py"}).find("expected one argument") !=
        std::string::npos);
  CHECK(complaint({"--num_processes"}).find("expected one argument") != std::string::npos);
  CHECK(complaint({"--num_processes", "--", "s.py"}).find("expected one argument") !=
        std::string::npos);
  CHECK(value({"--num_processes", "-3", "s.py"}, "num_processes"_key) == "-3");
  CHECK(value({"--main_process_ip", "-a b", "s.py"}, "main_process_ip"_key) == "-a b");
}

TEST_CASE("short options may carry their value or stand together", "[launcher][cli]") {
  CHECK(value({"-t", "3", "s.py"}, "tee"_key) == "3");
  CHECK(value({"-t3", "s.py"}, "tee"_key) == "3");
  CHECK(value({"-r=1", "s.py"}, "redirects"_key) == "1");
  CHECK(value({"-qm", "pkg.mod"}, "module"_key) == "True");
  CHECK(value({"-qm", "pkg.mod"}, "quiet"_key) == "True");
}

TEST_CASE("values of the wrong kind are named", "[launcher][cli]") {
  CHECK(complaint({"--num_processes", "two", "s.py"}).find("'two' is not a whole number") !=
        std::string::npos);
  CHECK(complaint({"--mixed_precision", "fp64", "s.py"})
            .find("'fp64' is not one of no, fp16, bf16, fp8") != std::string::npos);
  CHECK(complaint({"--fp8_override_linear_precision=true,no", "s.py"})
            .find("three of true or false") != std::string::npos);
}

TEST_CASE("all complaints come at once", "[launcher][cli]") {
  CHECK(parse_command_line(Words{"--num_processes=x", "--mixed_precision=y", "--wat", "s.py"})
            .complaints.size() == 3);
}

TEST_CASE("torchrun's spellings are the same settings", "[launcher][cli]") {
  CHECK(value({"--node-rank=1", "s.py"}, "machine_rank"_key) == "1");
  CHECK(value({"--master_addr", "a", "s.py"}, "main_process_ip"_key) == "a");
  CHECK(value({"--master-port=1", "s.py"}, "main_process_port"_key) == "1");
  CHECK(value({"--shutdown-timeout=5", "s.py"}, "grace"_key) == "5");
}

TEST_CASE("--help takes the next word as its topic", "[launcher][cli]") {
  CHECK(parse_command_line(Words{"--help", "fsdp"}).help_topic == "fsdp");
  CHECK(parse_command_line(Words{"-h"}).help_topic == "");
  CHECK(parse_command_line(Words{"--help", "max_restarts"}).help_topic == "max_restarts");
  CHECK(!parse_command_line(Words{"s.py", "--help"}).help_topic);
}
