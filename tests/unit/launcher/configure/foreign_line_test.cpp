#include "launcher/configure/foreign_line.hpp"

#include "common/text.hpp"
#include "launcher/configure/config_map.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <string>

using namespace acc::configure;

namespace {

/// A machine with these files, and with hostname and bash on PATH.
LineContext a_machine(std::uint32_t gpus = 0) {
  LineContext context;
  context.gpus = gpus;
  context.cores = 6;
  context.read_file = [](const std::string& path) -> acc::Result<std::string> {
    if (path == "hosts4") return "n1 slots=8\nn2 slots=8\nn3 slots=8\nn4 slots=8\n";
    if (path == "plain") return "n1\nn2\n";
    if (path == "/opt/conda/bin/torchrun") return "#!/opt/conda/bin/python3.11 -E\nimport sys\n";
    return acc::Error{acc::Errc::not_found, "there is no file '" + path + "' here"};
  };
  context.is_program = [](const std::string& name) {
    return name == "hostname" || name == "bash" || name == "./here";
  };
  return context;
}

ForeignLine read(const std::string& line, std::uint32_t gpus = 0, const Map& base = {}) {
  auto context = a_machine(gpus);
  context.base = base;
  if (!base.empty()) context.base_path = "f.yaml";
  return read_foreign_line(acc::split(line, ' '), context).value();
}

/// What is said of a line that is refused; empty: it is taken.
std::string refusal(const std::string& line) {
  const auto done = read_foreign_line(acc::split(line, ' '), a_machine());
  return done ? std::string{} : done.error().what;
}

/// The command that is printed, without its beginning.
std::string start(const std::string& words) {
  const auto line = read(words);
  auto all = line.variables;
  all.insert(all.end(), line.flags.begin(), line.flags.end());
  all.insert(all.end(), line.command.begin(), line.command.end());
  return acc::join(all, " ");
}

std::string at(const ForeignLine& line, std::string_view key) {
  const auto* value = value_of(line.map, key);
  return value == nullptr ? "(none)" : python_text(*value);
}

bool has_note(const ForeignLine& line, std::string_view words) {
  return std::ranges::any_of(
      line.notes, [&](const std::string& note) { return note.find(words) != std::string::npos; });
}

}  // namespace

TEST_CASE("torchrun counts per machine, the file over all", "[configure][foreign]") {
  const auto line = read(
      "torchrun --nnodes 2 --nproc-per-node=4 --node_rank 1 --rdzv-backend c10d --rdzv-endpoint "
      "n0:29400 --max-restarts 3 train.py --lr 1");
  CHECK(at(line, "num_processes") == "8");
  CHECK(at(line, "num_machines") == "2");
  CHECK(at(line, "machine_rank") == "1");
  CHECK(at(line, "main_process_ip") == "n0");
  CHECK(at(line, "main_process_port") == "29400");
  CHECK(at(line, "max_restarts") == "3");
  CHECK(at(line, "distributed_type") == "MULTI_GPU");
  CHECK(line.command == std::vector<std::string>{"train.py", "--lr", "1"});
  CHECK(has_note(line, "max_restarts"));
}

TEST_CASE("a range of machines stays torchrun's words", "[configure][foreign]") {
  const auto line = read(
      "python3 -m torch.distributed.run --nnodes 1:4 --nproc_per_node gpu --rdzv_backend c10d "
      "--rdzv_endpoint n0:29400 t.py");
  CHECK(at(line, "nnodes") == "1:4");
  CHECK(at(line, "nproc_per_node") == "gpu");
  CHECK(at(line, "num_processes") == "(none)");
  CHECK(at(line, "num_machines") == "(none)");
}

TEST_CASE("the file of a torchrun line gave workers 15 s to save where the line gives 30",
          "[configure][foreign]") {
  CHECK(at(read("torchrun --nproc_per_node 2 t.py"), "grace") == "30");
  CHECK(at(read("acc-launch --nproc_per_node 2 t.py"), "grace") == "30");
  CHECK(at(read("torchrun --nproc_per_node 2 --grace 7 t.py"), "grace") == "7");
  CHECK(at(read("TORCH_ELASTIC_SHUTDOWN_TIMEOUT=90 torchrun --nproc_per_node 2 t.py"), "grace") ==
        "90");
  // With torchrun's words in the file acc-launch knows, and accelerate had 15 s.
  CHECK(at(read("torchrun --nproc_per_node gpu t.py"), "grace") == "(none)");
  CHECK(at(read("accelerate launch --num_processes 2 t.py"), "grace") == "(none)");
}

TEST_CASE("the file of a torchrun line trained in fp32 where the caller's environment says bf16",
          "[configure][foreign]") {
  const std::string caller =
      "ACCELERATE_MIXED_PRECISION=bf16 ACCELERATE_DYNAMO_BACKEND=INDUCTOR "
      "ACCELERATE_DYNAMO_USE_DYNAMIC=1 ";
  const auto line = read(caller + "torchrun --nproc_per_node 2 t.py");
  CHECK(at(line, "mixed_precision") == "bf16");
  const auto* section = value_of(line.map, "dynamo_config");
  REQUIRE(section != nullptr);
  CHECK(python_text(*section) == "{'dynamo_backend': 'INDUCTOR', 'dynamo_use_dynamic': True}");
  CHECK(has_note(line, "mixed_precision to the environment: bf16 by ACCELERATE_MIXED_PRECISION"));
  CHECK(at(read(caller + "torchrun --nproc_per_node 2 --mixed_precision fp16 t.py"),
           "mixed_precision") == "fp16");
  // accelerate overrides what the caller exports.
  CHECK(at(read(caller + "accelerate launch --num_processes 2 t.py"), "mixed_precision") == "no");
  const auto wrong = read("ACCELERATE_MIXED_PRECISION=bf17 torchrun --nproc_per_node 2 t.py");
  CHECK(at(wrong, "mixed_precision") == "no");
  CHECK(has_note(wrong, "left out: ACCELERATE_MIXED_PRECISION: 'bf17' is not one of no, fp16"));
  const auto fp8 = read(
      "ACCELERATE_MIXED_PRECISION=fp8 ACCELERATE_FP8_BACKEND=TE torchrun --nproc_per_node 2 t.py");
  CHECK(python_text(*value_of(fp8.map, "fp8_config")) == "{'fp8_backend': 'TE'}");
}

TEST_CASE("the file of torchrun --nproc_per_node cpu told workers ACCELERATE_USE_CPU=True",
          "[configure][foreign]") {
  const auto line = read("torchrun --nproc_per_node cpu t.py");
  CHECK(at(line, "distributed_type") == "MULTI_CPU");
  CHECK(at(line, "use_cpu") == "(none)");
  CHECK(at(line, "mixed_precision") == "(none)");
  CHECK(at(read("torchrun --nproc_per_node cpu --cpu t.py"), "use_cpu") == "True");
}

TEST_CASE("the file of a torchrun line took the rendezvous for the port of the workers' store",
          "[configure][foreign]") {
  const auto alone =
      read("torchrun --nproc_per_node 2 --rdzv_backend c10d --rdzv_endpoint localhost:29400 t.py");
  CHECK(at(alone, "rdzv_endpoint") == "localhost:29400");
  CHECK(at(alone, "main_process_port") == "(none)");
  const auto both = read(
      "torchrun --nnodes 2 --nproc_per_node 2 --rdzv_backend c10d --rdzv_endpoint n0:29400 "
      "--master_port 29555 t.py");
  CHECK(at(both, "rdzv_endpoint") == "n0:29400");
  CHECK(at(both, "main_process_port") == "29555");
}

TEST_CASE("an IPv6 address as --rdzv_endpoint was taken apart into an address and a port",
          "[configure][foreign]") {
  const std::string words = "torchrun --nnodes 2 --nproc_per_node 2 --rdzv_backend c10d ";
  for (const std::string endpoint : {"2001:db8::5", "[2001:db8::5]:29400", "node1"}) {
    const auto line = read(words + "--rdzv_endpoint " + endpoint + " t.py");
    CHECK(at(line, "rdzv_endpoint") == endpoint);
    CHECK(at(line, "main_process_ip") == "(none)");
  }
  CHECK(at(read(words + "--rdzv_endpoint n0:29400 t.py"), "main_process_ip") == "n0");
}

TEST_CASE("convert turned a parallelism_config on that the line leaves off",
          "[configure][foreign]") {
  const Map base{{"distributed_type", Value{"FSDP"}},
                 {"num_processes", Value{std::int64_t{2}}},
                 {"fsdp_config", Value{Map{{"fsdp_version", Value{std::int64_t{2}}}}}},
                 {"parallelism_config", Value{Map{{"parallelism_config_tp_size", Value{"2"}}}}}};
  const auto section = [&](const std::string& flags, const Map& file) {
    return at(read("accelerate launch --config_file f.yaml " + flags + "t.py", 0, file),
              "parallelism_config");
  };
  CHECK(section("", base) == "{'parallelism_config_tp_size': '2'}");
  CHECK(section("--use_fsdp ", base) == "(none)");
  CHECK(section("--multi_gpu ", base) == "(none)");
  CHECK(section("--use_fsdp --use_parallelism_config ", base) ==
        "{'parallelism_config_tp_size': '2'}");
  const auto line =
      read("accelerate launch --num_processes 2 --use_fsdp --parallelism_config_tp_size 2 t.py");
  CHECK(at(line, "parallelism_config") == "(none)");
  CHECK(has_note(line, "left out: parallelism_config"));
}

TEST_CASE("PET_NPROC_PER_NODE was forgotten when a torchrun line was converted",
          "[configure][foreign]") {
  CHECK(at(read("PET_NPROC_PER_NODE=3 torchrun --standalone t.py"), "num_processes") == "3");
  CHECK(at(read("PET_NPROC_PER_NODE=3 torchrun --nproc_per_node 2 t.py"), "num_processes") == "2");
}

TEST_CASE("accelerate launch: a flag beats the file that the line names", "[configure][foreign]") {
  const Map base{{"distributed_type", Value{"FSDP"}}, {"num_processes", Value{std::int64_t{2}}}};
  const auto line = read("accelerate launch --config_file f.yaml --num_processes 4 t.py", 0, base);
  CHECK(at(line, "num_processes") == "4");
  CHECK(at(line, "distributed_type") == "FSDP");
  const auto file = [](const std::string& words) {
    return config_file_in(acc::split(words, ' '), "default.yaml");
  };
  CHECK(file("accelerate launch --config_file f.yaml t.py") == "f.yaml");
  CHECK(file("accelerate launch --num_processes 2 t.py") == "default.yaml");
  CHECK(file("accelerate launch --cpu t.py").empty());
  CHECK(file("torchrun t.py").empty());
  CHECK(at(read("accelerate launch t.py", 8), "num_processes") == "8");
  CHECK(at(read("accelerate launch --cpu --num_processes 4 t.py"), "distributed_type") ==
        "MULTI_CPU");
}

TEST_CASE("acc-config convert aborted at a flag whose section in the line's file is empty",
          "[configure][foreign]") {
  const Map base{{"distributed_type", Value{"MULTI_GPU"}},
                 {"num_processes", Value{std::int64_t{2}}},
                 {"fp8_config", Value{}}};
  const auto line = read("accelerate launch --config_file f.yaml --fp8_margin 2 t.py", 0, base);
  CHECK(at(line, "fp8_config") == "{'fp8_margin': 2}");
}

TEST_CASE("accelerate launch without a count is converted with every flag for the type",
          "[configure][foreign]") {
  constexpr std::pair<const char*, const char*> kTypes[] = {
      {"--multi_gpu", "MULTI_GPU"},
      {"--use_fsdp", "FSDP"},
      {"--use_deepspeed --zero_stage 2", "DEEPSPEED"},
      {"--use_megatron_lm", "MEGATRON_LM"}};
  for (const auto& [flags, type] : kTypes) {
    const auto words = "accelerate launch " + std::string{flags} + " t.py";
    for (const std::uint32_t gpus : {0U, 1U, 8U}) {
      const auto line = read(words, gpus);
      CHECK(at(line, "distributed_type") == type);
      CHECK(at(line, "num_processes") == std::to_string(std::max(gpus, 1U)));
      CHECK(has_note(line, "leaves num_processes to the launcher"));
    }
    const auto chosen = read("accelerate launch " + std::string{flags} + " --gpu_ids 0,1 t.py", 8);
    CHECK(at(chosen, "num_processes") == "2");
    CHECK(has_note(chosen, "2 by --gpu_ids"));
  }
  const auto cpu = read("accelerate launch --cpu t.py", 8);
  CHECK(at(cpu, "distributed_type") == "NO");
  CHECK(at(cpu, "num_processes") == "1");
  CHECK(at(read("accelerate launch --gpu_ids 0,1 t.py"), "distributed_type") == "MULTI_GPU");
  CHECK(at(read("accelerate launch --gpu_ids all --multi_gpu t.py", 8), "num_processes") == "8");
}

TEST_CASE("a file of type NO needs no count beside a flag for another type",
          "[configure][foreign]") {
  const Map base{{"distributed_type", Value{"NO"}}};
  const auto line = read("accelerate launch --config_file f.yaml --multi_gpu t.py", 8, base);
  CHECK(at(line, "distributed_type") == "MULTI_GPU");
  CHECK(at(line, "num_processes") == "1");
}

TEST_CASE("what acc-launch starts by several counts and devices is converted, too",
          "[configure][foreign]") {
  const auto one = read("accelerate launch --multi_gpu --gpu_ids 0 t.py", 8);
  CHECK(at(one, "distributed_type") == "NO");
  CHECK(at(one, "nproc_per_node") == "1");
  CHECK(at(one, "num_processes") == "(none)");
  CHECK(at(read("accelerate launch --num_processes 4 --gpu_ids 0 t.py", 8), "nproc_per_node") ==
        "4");
  const Map base{{"distributed_type", Value{"MULTI_GPU"}},
                 {"nproc_per_node", Value{std::int64_t{2}}},
                 {"nnodes", Value{std::int64_t{1}}}};
  const auto flag = read("accelerate launch --config_file f.yaml --num_processes 3 t.py", 8, base);
  CHECK(at(flag, "num_processes") == "3");
  CHECK(at(flag, "nproc_per_node") == "(none)");
  const auto both = read("acc-launch --config_file f.yaml --nproc_per_node 4 t.py", 8, base);
  CHECK(at(both, "num_processes") == "4");
  const auto machines = read(
      "acc-launch --num_machines 2 --machine_rank 0 --main_process_ip a --main_process_port 1 "
      "--nproc_per_node 4 t.py");
  CHECK(at(machines, "num_processes") == "8");
  CHECK(at(machines, "num_machines") == "2");
  CHECK(at(read("acc-launch --nproc_per_node 1 t.py"), "nproc_per_node") == "1");
  // As num_processes it had one thread, as under torchrun it has all cores.
  CHECK(at(read("torchrun --nnodes 2 --nproc_per_node 1 --node_rank 0 --master_addr a "
                "--master_port 1 t.py"),
           "nproc_per_node") == "1");
  CHECK(at(read("torchrun --nnodes 2 --nproc_per_node 1 --node_rank 0 --master_addr a "
                "--master_port 1 t.py"),
           "nnodes") == "2");
  CHECK(at(read("acc-launch --num_processes 0 t.py", 8), "distributed_type") == "NO");
}

TEST_CASE("a flag without a counterpart is one line", "[configure][foreign]") {
  CHECK(has_note(read("accelerate launch --num_processes 2 --mpirun_ccl 3 t.py"),
                 "CCL_WORKER_COUNT"));
  const auto mpi =
      read("mpirun -np 4 --bind-to core --mca btl tcp -x A=1 --report-bindings ./a.out");
  for (const auto* flag : {"--bind-to core", "--mca btl tcp", "--report-bindings"})
    CHECK(has_note(mpi, flag));
  CHECK(mpi.command == std::vector<std::string>{"./a.out"});
  CHECK(at(mpi, "num_processes") == "4");
  const auto unknown = read("mpirun -np 4 --frobnicate 3 ./a.out");
  CHECK(has_note(unknown, "--frobnicate"));
  CHECK(has_note(unknown, "is '3' the program, or a value of --frobnicate?"));
}

TEST_CASE("a line with a flag that its launcher doesn't know was converted without it",
          "[configure][foreign]") {
  constexpr std::pair<const char*, const char*> kLines[] = {
      {"accelerate launch --fp16 train.py", "--fp16 (here --mixed_precision fp16)"},
      {"accelerate launch --num_proceses 2 train.py", "did you mean --num_processes?"},
      {"torchrun --nprocs_per_node 2 train.py", "did you mean --nproc_per_node?"},
      {"torchrun --nproc_per_node 2 --foo bar train.py", "unrecognized arguments: --foo"},
      {"deepspeed --num_gpu 2 train.py",
       "--num_gpu: deepspeed has no such flag (did you mean --num_gpus?)"},
      {"deepspeed --frobnicate train.py", "--frobnicate: deepspeed has no such flag"}};
  for (const auto& [line, words] : kLines) {
    CAPTURE(line, refusal(line));
    CHECK(refusal(line).find(words) != std::string::npos);
  }
  // Flags that another launcher has, and that need nothing here.
  CHECK(has_note(read("torchrun --use_env t.py"), "left out: unrecognized arguments: --use_env"));
  CHECK(has_note(read("deepspeed --ssh_port 22 t.py"), "--ssh_port 22"));
}

TEST_CASE("variables in front of a command line are kept", "[configure][foreign]") {
  for (const auto* words : {"OMP_NUM_THREADS=4 A=b=c torchrun --nproc_per_node 2 t.py",
                            "env OMP_NUM_THREADS=4 A=b=c mpirun -np 2 python t.py"}) {
    const auto line = read(words);
    CHECK(acc::join(line.variables, " ") == "OMP_NUM_THREADS=4 A=b=c");
    CHECK(at(line, "num_processes") == "2");
  }
  CHECK(read("torchrun t.py A=1").variables.empty());
}

TEST_CASE("hosts of mpirun stay flags", "[configure][foreign]") {
  CHECK(start("mpiexec -hosts a,b -ppn 8 python -u train.py x") ==
        "--hosts a,b --nproc_per_node=8 --ssh train.py x");
  CHECK(start("mpirun -H a:2,b:2 ./a") == "--hosts a:2,b:2 --ssh --no_python ./a");
  CHECK(start("mpirun --hostfile hosts4 ./a") == "--hostfile hosts4 --ssh --no_python ./a");
  CHECK(at(read("mpirun -H a,b ./a"), "num_processes") == "2");
}

TEST_CASE("mpirun -np uses as many hosts as it needs, not all", "[configure][foreign]") {
  const auto line = read("mpirun --hostfile hosts4 -np 16 -ppn 8 python train.py");
  CHECK(acc::join(line.flags, " ") == "--hosts n1:8,n2:8 --ssh");
  CHECK(at(line, "num_processes") == "16");
  CHECK(start("mpirun --hostfile hosts4 -np 12 python t.py") == "--hosts n1:8,n2:4 --ssh t.py");
  CHECK(start("mpirun --hostfile hosts4 -ppn 1 python t.py") ==
        "--hosts n1:1,n2:1,n3:1,n4:1 --ssh t.py");
  CHECK(start("mpirun -H u@a,[fd00::1],b -ppn 2 -np 4 python t.py") ==
        "--hosts u@a:2,[fd00::1]:2 --ssh t.py");
  CHECK(has_note(read("mpirun -H a,b -np 5 ./a"), "MPICH deals the workers out"));
  CHECK(has_note(read("mpirun --hostfile plain -np 2 ./a"), "MPICH deals the workers out"));
  CHECK(refusal("mpirun --hostfile hosts4 -np 40 ./a").find("room for 32") != std::string::npos);
  CHECK(refusal("mpirun --hostfile plain ./a").find("gives no slots") != std::string::npos);
  for (const auto* words : {"mpirun --hostfile none -np 2 ./a", "mpirun -H a --hostfile hosts4 ./a",
                            "mpirun -H a::b ./a"})
    CHECK_FALSE(refusal(words).empty());
}

TEST_CASE("mpirun --oversubscribe starts more workers than the hosts have slots",
          "[configure][foreign]") {
  const auto line = read("mpirun -np 8 -H a:2,b:2 --oversubscribe ./a.out");
  CHECK(acc::join(line.flags, " ") == "--hosts a:4,b:4 --ssh --no_python");
  CHECK(at(line, "num_processes") == "8");
  CHECK(start("mpirun -np 8 -H a:1,b:4 -oversubscribe ./a") ==
        "--hosts a:3,b:5 --ssh --no_python ./a");
  CHECK(start("mpirun -np 40 --hostfile hosts4 --map-by slot:OVERSUBSCRIBE ./a") ==
        "--hosts n1:10,n2:10,n3:10,n4:10 --ssh --no_python ./a");
  CHECK(start("mpirun -np 3 -H a:2,b:2 --oversubscribe ./a") ==
        "--hosts a:2,b:1 --ssh --no_python ./a");
  CHECK(refusal("mpirun -np 8 -H a:2,b:2 ./a").find("or --oversubscribe") != std::string::npos);
}

TEST_CASE("mpirun --map-by ppr:N:node counts workers on each host", "[configure][foreign]") {
  for (const auto* words : {"--map-by ppr:2:node", "-ppr 2:node", "--map-by PPR:2:NODE"}) {
    const auto line = read("mpirun -H a:8,b:8 " + std::string{words} + " ./a");
    CHECK(acc::join(line.flags, " ") == "--hosts a:2,b:2 --ssh --no_python");
    CHECK_FALSE(has_note(line, "left out"));
  }
  CHECK(has_note(read("mpirun -H a:8,b:8 --map-by ppr:2:node:PE=4 ./a"), "left out: --map-by"));
  CHECK(at(read("mpirun --map-by ppr:3:node ./a"), "num_processes") == "3");
  for (const auto* words : {"--map-by ppr:1:socket", "--map-by ppr:2", "-npersocket 1"})
    CHECK(refusal("mpirun -np 2 " + std::string{words} + " ./a").find("on each host: write") !=
          std::string::npos);
  CHECK(refusal("mpirun --map-by ppr:x:node ./a").find("is no count") != std::string::npos);
}

TEST_CASE("mpirun --map-by node deals workers out over the hosts", "[configure][foreign]") {
  for (const auto* words :
       {"--map-by node", "-map-by NODE", "--map-by=node", "-bynode", "--bynode"}) {
    const auto line = read("mpirun -np 2 -H a:8,b:8 " + std::string{words} + " ./a");
    INFO(words);
    CHECK(acc::join(line.flags, " ") == "--hosts a:1,b:1 --ssh --no_python");
    CHECK_FALSE(has_note(line, "left out"));
    CHECK_FALSE(has_note(line, "the order of ranks differs"));  // each host has one
  }
  const auto line = read("mpirun -np 9 -H a:8,b:1,c:8 --map-by node ./a");
  CHECK(acc::join(line.flags, " ") == "--hosts a:4,b:1,c:4 --ssh --no_python");
  CHECK(has_note(line, "the order of ranks differs"));
  CHECK(start("mpirun -np 6 --hostfile hosts4 --bynode ./a") ==
        "--hosts n1:2,n2:2,n3:1,n4:1 --ssh --no_python ./a");
  CHECK(start("mpirun -np 40 --hostfile hosts4 --map-by node:OVERSUBSCRIBE ./a") ==
        "--hosts n1:10,n2:10,n3:10,n4:10 --ssh --no_python ./a");
  CHECK(has_note(read("mpirun -np 2 -H a:8,b:8 --map-by node:PE=4 ./a"), "left out: --map-by"));
  CHECK(at(read("mpirun -np 3 --map-by node ./a"), "num_processes") == "3");
  CHECK(start("mpirun -np 2 -H a:8,b:8 --map-by slot ./a") == "--hosts a:2 --ssh --no_python ./a");
  CHECK(start("mpirun -np 2 -H a:8,b:8 --byslot ./a") == "--hosts a:2 --ssh --no_python ./a");
}

TEST_CASE("mpirun uses the hosts of every -H", "[configure][foreign]") {
  CHECK(start("mpirun -np 4 -H a:2 --host b:2 ./a") == "--hosts a:2,b:2 --ssh --no_python ./a");
  CHECK(refusal("mpirun -np 2 --hostfile hosts4 --hostfile plain ./a").find("given twice") !=
        std::string::npos);
}

TEST_CASE("mpiexec -ppn without hosts starts all workers here", "[configure][foreign]") {
  const auto line = read("mpiexec -n 4 -ppn 2 ./a.out");
  CHECK(at(line, "num_processes") == "4");
  CHECK(line.flags == std::vector<std::string>{"--no_python"});
  CHECK(has_note(line, "the line names no host: all start here"));
}

TEST_CASE("what mpirun looks up on PATH is started, not given to Python", "[configure][foreign]") {
  CHECK(start("mpirun -np 2 hostname") == "--no_python hostname");
  CHECK(start("mpirun -np 2 bash -c x") == "--no_python bash -c x");
  CHECK(start("mpirun -np 2 ./train.py") == "--no_python ./train.py");
  CHECK(start("mpirun -np 2 here") == "--no_python ./here");
  CHECK(start("mpirun -np 2 nowhere") == "--no_python nowhere");
}

TEST_CASE("options of the interpreter keep it as mpirun's program", "[configure][foreign]") {
  for (const auto* words :
       {"python -c print(1)", "/usr/bin/python3 -O exe.py", "python3 -W error exe.py",
        "python -X dev exe.py", "python -u -O exe.py", "python -um pkg", "python", "python -u"})
    CHECK(start("mpirun -np 2 " + std::string{words}) == "--no_python " + std::string{words});
  const auto module = read("mpirun -np 2 python -u -m pkg.train x");
  CHECK(acc::join(module.command, " ") == "pkg.train x");
  CHECK(at(module, "module") == "True");
  CHECK(start("mpirun -np 2 python-config x") == "--no_python python-config x");
  CHECK(start("torchrun --no-python python t.py") == "python t.py");
}

TEST_CASE("tags of mpirun's lines were forgotten without a word", "[configure][foreign]") {
  for (const auto* flag : {"--tag-output", "-tag-output", "-l", "-prepend-rank"}) {
    const auto line = read(std::string{"mpirun -np 2 "} + flag + " ./here");
    CHECK(at(line, "tee") == "3");
    CHECK(has_note(line, std::string{flag} + ": tee: 3"));
  }
  CHECK(at(read("mpirun -np 2 ./here"), "tee") == "(none)");
}

TEST_CASE("accelerate launch --cpu: its one process has one thread, not all cores",
          "[configure][foreign]") {
  CHECK(start("accelerate launch --cpu t.py") == "--num_cpu_threads_per_process 1 t.py");
  CHECK(start("accelerate launch --cpu --num_processes 1 t.py") == "t.py");
  CHECK(start("accelerate launch --cpu --num_cpu_threads_per_process 4 t.py") == "t.py");
  CHECK(start("OMP_NUM_THREADS=3 accelerate launch --cpu t.py") == "OMP_NUM_THREADS=3 t.py");
  // By the devices it is N processes, of which one is started, with its share of the six cores.
  CHECK(read("accelerate launch --cpu t.py", 2).flags ==
        std::vector<std::string>{"--num_cpu_threads_per_process", "3"});
  CHECK(read("accelerate launch --cpu t.py", 1).flags.empty());
}

TEST_CASE("words of the shell in quotes became arguments of the script without a word",
          "[launcher][configure]") {
  const auto note = "'2>&1' and what follows are arguments of the script here";
  CHECK(has_note(read("torchrun --nproc_per_node 2 t.py --lr 1 2>&1 | tee log"), note));
  CHECK_FALSE(has_note(read("torchrun t.py --needs >=2.0"), "the shell's own words"));
  CHECK(has_note(read("torchrun --nproc_per_node 2 t.py && ls"), "'&&' and what follows"));
  CHECK(has_note(read("torchrun --nproc_per_node 2 t.py >log"), "'>log' and what follows"));
  CHECK_FALSE(
      has_note(read("torchrun --nproc_per_node 2 t.py --when a>b x|y -> 12"), "what follows"));
}

TEST_CASE("a line with nohup or uv run in front of the launcher was no known line",
          "[launcher][configure]") {
  const auto is_told = [](const std::string& wrapper, const std::string& line) {
    CHECK_THAT(refusal(wrapper + " " + line),
               Catch::Contains("'" + wrapper + "': leave it out here"));
  };
  is_told("nohup", "torchrun --nproc_per_node 2 t.py");
  is_told("uv run", "accelerate launch t.py");
  is_told("conda run -n env", "python -m torch.distributed.run t.py");
  is_told("timeout 3h", "mpirun -np 2 a.out");
  is_told("docker run --gpus all image:1", "torchrun --nproc_per_node 2 t.py");
  is_told("nsys profile -o out", "torchrun --nproc_per_node 2 t.py");
  is_told("xvfb-run -a", "torchrun --nproc_per_node 2 t.py");
  is_told("env -u X", "torchrun --nproc_per_node 2 t.py");
  CHECK_THAT(refusal("bash -lc cd x && torchrun --nproc_per_node 2 t.py"),
             Catch::Contains("bash starts the line that is meant: give that alone"));
  CHECK_THAT(refusal("nohup python train.py"), Catch::Contains("expected a command line of"));
}

TEST_CASE("options of the launcher's interpreter made the line an unknown one",
          "[configure][foreign]") {
  for (const auto* options : {"-W ignore -X dev -m ", "-Wignore -Xdev -m ", "-uBW ignore -m ",
                              "--check-hash-based-pycs never -Om "}) {
    const auto line =
        read(std::string{"python "} + options + "torch.distributed.run --nproc_per_node 2 t.py");
    CHECK(at(line, "num_processes") == "2");
    CHECK(line.command == std::vector<std::string>{"t.py"});
    CHECK(has_note(line, "left out: -"));
  }
  CHECK(has_note(read("python -W ignore -m accelerate.commands.launch t.py"),
                 "left out: -W ignore: for the Python of the launcher; workers don't get it"));
  for (const auto* other : {"python -c 1 -m torch.distributed.run t.py",
                            "python -W -m torch.distributed.run t.py", "python -W ignore -m"})
    CHECK_THAT(refusal(other), Catch::Contains("expected a command line of"));
}

TEST_CASE("an interpreter that the line names runs the script", "[configure][foreign]") {
  CHECK(start("/usr/bin/python3 -m torch.distributed.run t.py") ==
        "PYTHON_EXEC=/usr/bin/python3 t.py");
  CHECK(start("mpirun -np 2 /opt/conda/bin/python x.py") ==
        "PYTHON_EXEC=/opt/conda/bin/python x.py");
  CHECK(start("mpirun -np 2 python3.11 x.py") == "PYTHON_EXEC=python3.11 x.py");
  CHECK(start("/opt/conda/bin/torchrun t.py") == "PYTHON_EXEC=/opt/conda/bin/python3.11 t.py");
  CHECK(start("mpirun -H a,b -np 2 /opt/bin/python x.py") ==
        "--hosts a,b --ssh --env PYTHON_EXEC=/opt/bin/python x.py");
  CHECK(has_note(read("/elsewhere/torchrun t.py"), "which Python '/elsewhere/torchrun'"));
  for (const auto* words : {"torchrun t.py", "python3 -m torch.distributed.run t.py",
                            "mpirun -np 2 python t.py", "/usr/bin/mpirun -np 2 python t.py"})
    CHECK(start(words) == "t.py");
  CHECK(start("/opt/conda/bin/torchrun --no-python ./a") == "./a");
}

TEST_CASE("variables of mpirun reach the workers, on hosts, too", "[configure][foreign]") {
  CHECK(start("mpirun -H n1,n2 -x LD_LIBRARY_PATH -x HF_HOME=/d -np 2 ./a") ==
        "--hosts n1,n2 --ssh --env LD_LIBRARY_PATH --env HF_HOME=/d --no_python ./a");
  CHECK(start("mpiexec -hosts n1,n2 -genvlist X,Y -genv A 1 -env B=2 ./a") ==
        "--hosts n1,n2 --ssh --env X --env Y --env A=1 --env B=2 --no_python ./a");
  CHECK(start("Z=1 mpirun -x PATH -x HF_HOME=/d -genv A 1 -genvlist X -np 2 ./a") ==
        "Z=1 HF_HOME=/d A=1 --no_python ./a");
  CHECK(has_note(read("mpiexec -hosts n1,n2 -genvall ./a"), "left out: -genvall"));
  CHECK_FALSE(refusal("mpirun -x HF_* -np 2 ./a").empty());
}

TEST_CASE("several programs in one line of mpirun are refused", "[configure][foreign]") {
  for (const auto* words :
       {"mpirun -np 2 ./a : -np 1 ./b", "mpirun --app file", "mpiexec -configfile file"})
    CHECK(refusal(words).find("several programs") != std::string::npos);
}

TEST_CASE("one worker of mpirun has a rank", "[configure][foreign]") {
  CHECK(at(read("mpirun -np 1 ./train.py"), "nproc_per_node") == "1");
  CHECK(at(read("mpirun -np 1 ./train.py", 8), "num_processes") == "1");
  const auto line = read("mpirun ./train.py");
  CHECK(at(line, "num_processes") == "6");
  CHECK(has_note(line, "leaves the number of workers to mpirun: 6"));
  CHECK(at(read("acc-launch --cpu --nproc_per_node 1 t.py"), "nproc_per_node") == "1");
}

TEST_CASE("impossible counts are refused with what was wrong", "[configure][foreign]") {
  for (const auto* words : {"mpirun -np x ./a", "mpirun -np ./a", "mpirun -np 0 ./a",
                            "mpirun -ppn x -H a ./a", "deepspeed --num_gpus x t.py"})
    CHECK(refusal(words).find("is no count: write a number from 1") != std::string::npos);
  CHECK(refusal("mpirun -np") == "-np: its value is missing");
  CHECK(refusal("torchrun --nproc_per_node two t.py").find("'two' is not a number of workers") !=
        std::string::npos);
  CHECK(refusal("torchrun --nnodes x t.py").find("'x' is not a number of machines") !=
        std::string::npos);
  CHECK(refusal("accelerate launch --num_processes x t.py").find("'x' is not a whole number") !=
        std::string::npos);
  CHECK(refusal("deepspeed --num_gpus 2 --master_port x t.py").find("'x' is not a whole number") !=
        std::string::npos);
  CHECK(refusal("mpirun -np 2 --stdin 5 ./a").find("local rank 5") != std::string::npos);
  CHECK(refusal("accelerate launch --tpu t.py").find("TPUs are not supported") !=
        std::string::npos);
}

TEST_CASE("counts of acc-launch --hosts stay counts of each host", "[configure][foreign]") {
  const auto line = read("acc-launch --hosts a,b --nproc_per_node 4 --env X=1 --env Y --ssh t.py");
  CHECK(at(line, "num_processes") == "(none)");
  for (const auto* words : {"--nproc_per_node 4", "--env X=1 --env Y", "--hosts a,b", "--ssh"})
    CHECK(acc::join(line.flags, " ").find(words) != std::string::npos);
  CHECK(start("acc-launch --hosts a,b t.py") == "--hosts a,b --nproc_per_node 1 t.py");
  CHECK(start("acc-launch --hosts a:2,b t.py") == "--hosts a:2,b t.py");
  CHECK(start("acc-launch --hostfile hosts4 t.py") == "--hostfile hosts4 t.py");
  CHECK_FALSE(refusal("acc-launch --hostfile none t.py").empty());
}

TEST_CASE("a script that would get --local_rank is told to read LOCAL_RANK",
          "[configure][foreign]") {
  CHECK(has_note(read("python -m torch.distributed.launch t.py"), "--local_rank=N"));
  CHECK_FALSE(
      has_note(read("python -m torch.distributed.launch --use_env t.py"), "--local_rank=N"));
  CHECK(has_note(read("deepspeed --num_gpus 2 t.py"), "--local_rank=N"));
  CHECK_FALSE(has_note(read("deepspeed --num_gpus 2 --no_local_rank t.py"), "--local_rank=N"));
}

TEST_CASE("deepspeed's flags are keys of its section", "[configure][foreign]") {
  const auto line = read(
      "deepspeed --num_nodes 2 --num_gpus 8 --hostfile hosts4 --launcher SLURM --master_port 1 "
      "t.py --deepspeed_config ds.json");
  CHECK(at(line, "num_processes") == "16");
  CHECK(at(line, "num_machines") == "2");
  CHECK(at(line, "deepspeed_config") ==
        "{'deepspeed_multinode_launcher': 'slurm', 'deepspeed_hostfile': 'hosts4', "
        "'deepspeed_inclusion_filter': 'n1:0,1,2,3,4,5,6,7@n2:0,1,2,3,4,5,6,7', "
        "'deepspeed_config_file': 'ds.json'}");
  CHECK(acc::join(line.command, " ") == "t.py --deepspeed_config ds.json");
  const auto all = read("deepspeed --hostfile hosts4 t.py");
  CHECK(at(all, "num_processes") == "32");
  CHECK(at(all, "deepspeed_config") == "{'deepspeed_hostfile': 'hosts4'}");
}

TEST_CASE(
    "each worker of a converted line with DeepSpeed's own file raised, as Accelerate refuses it "
    "beside mixed_precision",
    "[configure][foreign]") {
  const auto line = read("deepspeed --num_gpus 2 t.py --deepspeed_config ds.json");
  CHECK(at(line, "deepspeed_config") == "{'deepspeed_config_file': 'ds.json'}");
  CHECK(at(line, "mixed_precision") == "(none)");
  const std::string flags =
      "--mixed_precision bf16 --gradient_clipping 1.0 --zero3_init_flag true t.py";
  const auto given =
      read("accelerate launch --num_processes 2 --use_deepspeed --deepspeed_config_file ds.json " +
           flags);
  CHECK(at(given, "mixed_precision") == "(none)");
  CHECK(at(given, "deepspeed_config") ==
        "{'deepspeed_config_file': 'ds.json', 'zero3_init_flag': 'true'}");
  CHECK(acc::join(given.flags, " ") == "--mixed_precision bf16 --gradient_clipping 1.0");
  CHECK(has_note(given, "--gradient_clipping stays a flag"));
  const Map base{{"distributed_type", Value{"DEEPSPEED"}},
                 {"num_processes", Value{std::int64_t{2}}},
                 {"deepspeed_config", Value{Map{{"deepspeed_config_file", Value{"ds.json"}}}}}};
  const auto in_base = read("accelerate launch --config_file f.yaml --zero_stage 2 t.py", 0, base);
  CHECK(acc::join(in_base.flags, " ") == "--zero_stage 2");
  CHECK(at(in_base, "mixed_precision") == "(none)");
  const auto exported = read(
      "ACCELERATE_MIXED_PRECISION=bf16 torchrun --nproc_per_node 2 --use_deepspeed "
      "--deepspeed_config_file ds.json t.py");
  CHECK(at(exported, "mixed_precision") == "(none)");
  CHECK(acc::join(exported.flags, " ") == "--mixed_precision bf16");
}

TEST_CASE(
    "each worker of a converted DeepSpeed line raised where its script has a DeepSpeed config, as "
    "the file had a precision that the line doesn't give",
    "[configure][foreign]") {
  for (const auto* words :
       {"deepspeed --num_gpus 2 t.py", "accelerate launch --use_deepspeed t.py"})
    CHECK(at(read(words), "mixed_precision") == "(none)");
  const auto given = read("accelerate launch --use_deepspeed --mixed_precision bf16 t.py");
  CHECK(at(given, "mixed_precision") == "bf16");
  CHECK(at(read("accelerate launch --multi_gpu t.py", 2), "mixed_precision") == "no");
}

TEST_CASE("the devices that deepspeed --include names are counted", "[configure][foreign]") {
  const auto line = read("deepspeed --include localhost:0,1 train.py");
  CHECK(at(line, "num_processes") == "2");
  CHECK(at(line, "gpu_ids") == "0,1");
  CHECK_FALSE(has_note(line, "by the devices of this machine"));
  CHECK(at(read("deepspeed --exclude localhost:0 t.py", 4), "gpu_ids") == "1,2,3");
  CHECK(at(read("deepspeed --hostfile hosts4 -i n1:3 t.py"), "gpu_ids") == "3");
  CHECK(at(read("deepspeed --hostfile hosts4 -i n1@n2:0,3 t.py"), "num_processes") == "10");
  CHECK(at(read("deepspeed --hostfile hosts4 -e n1@n2:0 t.py"), "num_processes") == "23");
  CHECK(has_note(read("deepspeed --include localhost t.py"), "by the devices of this machine"));
  for (const auto* words :
       {"deepspeed --include n9:0 t.py", "deepspeed --include localhost:x t.py",
        "deepspeed --include localhost:0 --num_gpus 1 t.py", "deepspeed --hostfile none t.py",
        "deepspeed --exclude localhost:0 t.py", "deepspeed --num_nodes 2 t.py",
        "deepspeed --hostfile plain t.py", "deepspeed --hostfile hosts4 -e n1@n2@n3@n4 t.py"})
    CHECK_FALSE(refusal(words).empty());
}

TEST_CASE("CUDA_VISIBLE_DEVICES in front of a line bounds the devices here",
          "[configure][foreign]") {
  for (const auto* words : {"accelerate launch t.py", "accelerate launch --multi_gpu t.py",
                            "deepspeed t.py", "deepspeed --num_gpus -1 t.py"}) {
    const auto count = [&](const std::string& value) {
      return at(read("CUDA_VISIBLE_DEVICES=" + value + " " + words, 8), "num_processes");
    };
    CHECK(count("0,1") == "2");
    CHECK(count("3") == "1");
    CHECK(count("0,1,9") == "2");
    CHECK(count("") == "1");
  }
  const auto included = read("CUDA_VISIBLE_DEVICES=2,3 deepspeed --include localhost t.py", 8);
  CHECK(at(included, "num_processes") == "8");
  CHECK(included.variables.empty());
  CHECK(has_note(included, "which deepspeed ignores"));
  CHECK(at(read("CUDA_VISIBLE_DEVICES= mpirun -np 2 ./a", 8), "distributed_type") == "MULTI_CPU");
}

TEST_CASE("a variable that the shell did not expand is refused with what to do",
          "[configure][foreign]") {
  for (const auto* words :
       {"torchrun --nproc_per_node=$GPUS t.py", "torchrun --nnodes 2 --node_rank=$RANK t.py",
        "torchrun --rdzv_endpoint=$H:$P t.py", "torchrun --master_addr ${MASTER_ADDR} t.py",
        "torchrun --rdzv_id=job_$JOB_ID t.py", "mpirun -np $N ./a", "mpirun -H $HOSTS ./a",
        "deepspeed --num_gpus=$N t.py", "accelerate launch --num_processes $N t.py"}) {
    const auto said = refusal(words);
    CHECK(said.find("holds a variable that the shell didn't expand") != std::string::npos);
    CHECK(said.find('\n') == std::string::npos);
  }
  const std::vector<std::string> file{"accelerate", "launch", "--config_file", "$FILE", "t.py"};
  CHECK(config_file_in(file, "").empty());
  CHECK_FALSE(refusal("accelerate launch --config_file $FILE t.py").empty());
  CHECK(start("torchrun --nproc_per_node 2 t.py $HOME --x=$Y") == "t.py $HOME --x=$Y");
  CHECK(start("mpirun -np 2 ./a -n $N") == "--no_python ./a -n $N");
  CHECK(start("torchrun --rdzv_id cost-5$ t.py") == "t.py");
}

TEST_CASE("deepspeed takes -1 as its default", "[configure][foreign]") {
  const auto line = read("deepspeed --num_nodes -1 --num_gpus -1 --node_rank=-1 t.py", 4);
  CHECK(at(line, "num_processes") == "4");
  CHECK(at(line, "machine_rank") == "(none)");
}

TEST_CASE("words that no launcher begins are refused", "[configure][foreign]") {
  for (const auto* words : {"", "srun -n 2 x", "python train.py", "python -m", "A=1", "accelerate"})
    CHECK_FALSE(refusal(words).empty());
  CHECK(refusal("srun -n 2 x").find("docs/from-slurm.md") != std::string::npos);
}
