#include "launcher/configure/foreign_line.hpp"

#include "common/text.hpp"
#include "launcher/configure/config_map.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <string>

using namespace acc::configure;

namespace {

ForeignLine read(const std::string& line, std::uint32_t gpus = 0, const Map& base = {}) {
  return read_foreign_line(acc::split(line, ' '), base, gpus).value();
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
  const auto line = read("python3 -m torch.distributed.run --nnodes 1:4 --nproc_per_node gpu t.py");
  CHECK(at(line, "nnodes") == "1:4");
  CHECK(at(line, "nproc_per_node") == "gpu");
  CHECK(at(line, "num_processes") == "(none)");
  CHECK(at(line, "num_machines") == "(none)");
}

TEST_CASE("accelerate launch: a flag beats the file that the line names", "[configure][foreign]") {
  const Map base{{"distributed_type", Value{"FSDP"}}, {"num_processes", Value{std::int64_t{2}}}};
  const auto line = read("accelerate launch --config_file f.yaml --num_processes 4 t.py", 0, base);
  CHECK(at(line, "num_processes") == "4");
  CHECK(at(line, "distributed_type") == "FSDP");
  CHECK(config_file_in(acc::split("accelerate launch --config_file f.yaml t.py", ' ')) == "f.yaml");
  CHECK(at(read("accelerate launch t.py", 8), "num_processes") == "8");
  CHECK(at(read("accelerate launch --cpu --num_processes 4 t.py"), "distributed_type") ==
        "MULTI_CPU");
}

TEST_CASE("a flag without a counterpart is one line", "[configure][foreign]") {
  CHECK(has_note(read("accelerate launch --num_processes 2 --frobnicate t.py"), "--frobnicate"));
  const auto mpi =
      read("mpirun -np 4 --bind-to core --mca btl tcp -x A=1 --report-bindings ./a.out");
  for (const auto* flag : {"--bind-to core", "--mca btl tcp", "-x A=1", "--report-bindings"})
    CHECK(has_note(mpi, flag));
  CHECK(mpi.command == std::vector<std::string>{"./a.out"});
  CHECK(at(mpi, "num_processes") == "4");
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
  const auto line = read("mpiexec -hosts a,b -ppn 8 python -u train.py x");
  CHECK(acc::join(line.flags, " ") == "--hosts a,b --ssh --nproc_per_node=8");
  CHECK(acc::join(line.command, " ") == "train.py x");
  CHECK(at(line, "num_processes") == "(none)");
}

TEST_CASE("deepspeed's flags are keys of its section", "[configure][foreign]") {
  const auto line = read(
      "deepspeed --num_nodes 2 --num_gpus 8 --hostfile h --launcher SLURM --master_port 1 t.py "
      "--deepspeed_config ds.json");
  CHECK(at(line, "num_processes") == "16");
  CHECK(at(line, "deepspeed_config") ==
        "{'deepspeed_hostfile': 'h', 'deepspeed_multinode_launcher': 'slurm', "
        "'deepspeed_config_file': 'ds.json'}");
  CHECK(acc::join(line.command, " ") == "t.py --deepspeed_config ds.json");
}

TEST_CASE("words that no launcher begins are refused", "[configure][foreign]") {
  for (const auto* words : {"", "srun -n 2 x", "python train.py", "python -m", "A=1", "accelerate"})
    CHECK_FALSE(read_foreign_line(acc::split(words, ' '), {}, 0).has_value());
}
