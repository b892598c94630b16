#include "launcher/cli.hpp"

#include "launcher/key_table.hpp"
#include "launcher/launcher.hpp"

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

TEST_CASE("a shortened flag, as --num_procs, is answered with the whole one",
          "[launcher][cli]") {
  const auto said = [](const std::string& flag) { return complaint({flag, "2", "s.py"}); };
  CHECK(said("--num_procs") == "unrecognized arguments: --num_procs (did you mean --num_processes?)");
  CHECK(said("-num_processes").find("(did you mean --num_processes?)") != std::string::npos);
  CHECK(said("--num-procs") == "unrecognized arguments: --num-procs (did you mean --num_processes?)");
  CHECK(complaint({"--main_proc_ip=h", "s.py"}).find("did you mean --main_process_ip?") !=
        std::string::npos);
  CHECK(said("--grad_accum_steps").find("did you mean --gradient_accumulation_steps?") !=
        std::string::npos);
  CHECK(said("--mac_num").find("did you mean") == std::string::npos);  // parts in another order
  // its value isn't taken for the script
  CHECK(parse_command_line(Words{"--num_procs", "2", "s.py"}).script == "s.py");
}

TEST_CASE("torchrun's own flags may be abbreviated as for torchrun", "[launcher][cli]") {
  CHECK(value({"--nproc_per", "2", "s.py"}, "nproc_per_node"_key) == "2");
  CHECK(value({"--nproc-per-no=2", "s.py"}, "nproc_per_node"_key) == "2");
  CHECK(value({"--master_a=h", "s.py"}, "main_process_ip"_key) == "h");
  CHECK(complaint({"--max_rest=3", "s.py"}) ==
        "unrecognized arguments: --max_rest=3 (did you mean --max_restarts?)");
  CHECK(complaint({"--rdzv", "s.py"}).find("(it could be --rdzv_backend, --rdzv_conf, ") !=
        std::string::npos);
  CHECK(complaint({"--nproc_per"}).find("--nproc_per: expected one argument") != std::string::npos);
}

TEST_CASE("the flag --local_rank 0, as scripts got it, hid the output of all other ranks",
          "[launcher][cli]") {
  for (const auto* flag : {"--local_rank", "--local-rank"}) {
    CHECK(complaint({flag, "0", "s.py"}).find("each worker finds its own in LOCAL_RANK") !=
          std::string::npos);
    CHECK(complaint({flag + std::string{"=0"}, "s.py"}).find("in LOCAL_RANK") != std::string::npos);
  }
  CHECK(value({"--local_ranks", "0", "s.py"}, "local_ranks_filter"_key) == "0");
  CHECK(complaint({"--signal=USR1@60", "s.py"}).find("srun's") != std::string::npos);
}

TEST_CASE("habits from other launchers are answered with the word to use here", "[launcher][cli]") {
  CHECK(complaint({"--use_env", "s.py"}).find("LOCAL_RANK is always in the environment") !=
        std::string::npos);
  CHECK(complaint({"--use-cpu", "s.py"}).find("the flag is --cpu") != std::string::npos);
  CHECK(complaint({"--fp16", "s.py"}).find("--mixed_precision fp16") != std::string::npos);
  CHECK(complaint({"--num_gpus=4", "s.py"}).find("--num_processes N") != std::string::npos);
  CHECK(complaint({"-v", "s.py"}).find("--version") != std::string::npos);
  CHECK(complaint({"--mpirun_ccl", "1", "s.py"}).find("CCL_WORKER_COUNT=N") != std::string::npos);
}

TEST_CASE("mpirun's flags are answered with the flag to use here", "[launcher][cli]") {
  const auto hint = [](const std::string& flag) { return complaint({flag, "4", "./a.out"}); };
  for (const auto* flag : {"-np", "-n"})
    CHECK(hint(flag) == std::string{"unrecognized arguments: "} + flag +
                            " (mpirun's flag; here --num_processes N)");
  for (const auto* flag : {"-machinefile", "-hostfile", "-f"})
    CHECK(hint(flag).find("here --hostfile FILE, through acc-agent") != std::string::npos);
  for (const auto* flag : {"-hosts", "-H", "--host"})
    CHECK(hint(flag).find("here --hosts a:8,b:8, through acc-agent") != std::string::npos);
  CHECK(hint("--timestamp-output").find("--tee 3") != std::string::npos);
  CHECK(hint("--bind-to").find("--numa_binding") != std::string::npos);
  CHECK(hint("-x").find("workers inherit all variables") != std::string::npos);
  CHECK(hint("-N").find("--nproc_per_node N") != std::string::npos);
  CHECK(hint("-mca").find("OMPI_MCA_") != std::string::npos);
}

TEST_CASE("a letter of ours with its value is no flag of mpirun", "[launcher][cli]") {
  CHECK(value({"-t3", "s.py"}, "tee"_key) == value({"--tee=3", "s.py"}, "tee"_key));
  CHECK(complaint({"-t", "3", "s.py"}).empty());
}

TEST_CASE("a short unknown flag isn't taken for another one", "[launcher][cli]") {
  CHECK(complaint({"--np", "4", "s.py"}).find("--cpu") == std::string::npos);
  CHECK(complaint({"--tea=3", "s.py"}).find("did you mean --tee?") != std::string::npos);
}

TEST_CASE("an unknown flag with a value hides nothing that stands behind it", "[launcher][cli]") {
  const auto near = parse_command_line(
      Words{"--num_proces", "2", "--config_file", "c.yaml", "--tee_", "s.py", "--cpu"});
  CHECK(near.complaints.size() == 2);
  CHECK(near.given("config_file"_key) != nullptr);
  CHECK(near.rejected == std::vector<Key>{"num_processes"_key, "tee"_key});
  const auto strange =
      parse_command_line(Words{"--zzz", "2", "--num_processes", "two", "s.py", "--cpu"});
  CHECK(strange.complaints.size() == 2);
  CHECK(strange.given("cpu"_key) == nullptr);
}

TEST_CASE("what may be the script's own flag isn't judged", "[launcher][cli]") {
  for (const auto* script : {"train.py", "./train"}) {
    const auto line = parse_command_line(Words{"--zzz", script, "--num_processes", "two"});
    CHECK(line.complaints.size() == 1);
    CHECK(!line.script_is_certain);
  }
}

TEST_CASE("an address loses its brackets, and holds no port", "[launcher][cli]") {
  CHECK(value({"--main_process_ip=[::1]", "s.py"}, "main_process_ip"_key) == "::1");
  CHECK(value({"--master_addr=fd00::2", "s.py"}, "main_process_ip"_key) == "fd00::2");
  CHECK(value({"--local_addr=[fe80::1%eth0]", "s.py"}, "local_addr"_key) == "fe80::1%eth0");
  for (const auto* with_port : {"[::1]:29600", "10.0.0.1:29600", "node1:29600"})
    CHECK(complaint({std::string{"--main_process_ip="} + with_port, "s.py"})
              .find("holds a port: write the address alone") != std::string::npos);
  for (const auto* wrong : {"[node1]", "tcp://node1", "node1,node2", "[::1"})
    CHECK(complaint({std::string{"--main_process_ip="} + wrong, "s.py"}).find("is no address") !=
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
  CHECK(value({"--role", "-a b", "s.py"}, "role"_key) == "-a b");
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
  CHECK(parse_command_line(Words{"--num_processes=x", "--mixed_precision=y", "--zzz", "s.py"})
            .complaints.size() == 3);
}

TEST_CASE("torchrun's spellings are the same settings", "[launcher][cli]") {
  CHECK(value({"--node-rank=1", "s.py"}, "machine_rank"_key) == "1");
  CHECK(value({"--master_addr", "a", "s.py"}, "main_process_ip"_key) == "a");
  CHECK(value({"--master-port=1", "s.py"}, "main_process_port"_key) == "1");
  CHECK(value({"--shutdown-timeout=5", "s.py"}, "grace"_key) == "5");
}

TEST_CASE("the flag --help takes the next word as its topic", "[launcher][cli]") {
  CHECK(parse_command_line(Words{"--help", "fsdp"}).help_topic == "fsdp");
  CHECK(parse_command_line(Words{"-h"}).help_topic == "");
  CHECK(parse_command_line(Words{"--help", "max_restarts"}).help_topic == "max_restarts");
  CHECK(!parse_command_line(Words{"s.py", "--help"}).help_topic);
  CHECK(parse_command_line(Words{"-h", "s.py"}).help_topic == "");
  const auto mode = parse_command_line(Words{"-h", "--multi_gpu"});
  CHECK(mode.help_topic == "");
  CHECK(mode.given("multi_gpu"_key) != nullptr);
}

TEST_CASE("a line that begins with --print_plan starts nothing, whatever follows",
          "[launcher][cli]") {
  const auto prints = [](std::vector<const char*> words) {
    words.insert(words.begin(), "acc-launch");
    return only_prints_plan(static_cast<int>(words.size()), words.data());
  };
  CHECK(prints({"--print_plan", "train.py"}));
  CHECK(prints({"--secret_fd=5", "--print_plan", "--num_processes", "2", "train.py"}));
  CHECK(!prints({"train.py", "--print_plan"}));
  CHECK(!prints({"--num_processes", "2", "--print_plan"}));
  CHECK(!prints({"--print_plan=yes"}));
  CHECK(!prints({"--secret_fd", "--print_plan"}));
  CHECK(!prints({"--secret_fd=5"}));
  CHECK(!prints({}));
}
