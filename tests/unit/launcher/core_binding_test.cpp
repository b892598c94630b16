#include "launcher/core_binding.hpp"

#include "tests/unit/launcher/trial.hpp"

#include <catch2/catch.hpp>

#include <unistd.h>

#include <filesystem>
#include <fstream>

using namespace acc;
using namespace acc::launcher;
using Catch::Contains;
namespace fs = std::filesystem;

namespace {

using Cores = std::vector<std::vector<std::uint32_t>>;

/// /sys of a machine with 2 sockets of 2 NUMA nodes each, 2 cores of 2 hardware threads a node
/// (numbered n and n + 8), a last-level cache each core, and 4 GPUs on nodes 3, 2, 1 and an unknown
/// one.
class FakeSys {
 public:
  FakeSys() {
    char name[] = "/tmp/acc-sys-XXXXXX";
    root_ = ::mkdtemp(name);
    put("devices/system/cpu/online", "0-15");
    for (int node = 0; node < 4; ++node) {
      const int first = node * 2;
      put("devices/system/node/node" + std::to_string(node) + "/cpulist",
          std::to_string(first) + "-" + std::to_string(first + 1) + "," +
              std::to_string(first + 8) + "-" + std::to_string(first + 9));
    }
    put("devices/system/node/possible", "0-3");
    for (int cpu = 0; cpu < 16; ++cpu) {
      const std::string folder = "devices/system/cpu/cpu" + std::to_string(cpu);
      const std::string siblings = std::to_string(cpu % 8) + "," + std::to_string(cpu % 8 + 8);
      put(folder + "/topology/physical_package_id", std::to_string(cpu % 8 / 4));
      put(folder + "/topology/thread_siblings_list", siblings);
      put(folder + "/cache/index0/level", "1");
      put(folder + "/cache/index0/shared_cpu_list", std::to_string(cpu));
      put(folder + "/cache/index3/level", "3");
      put(folder + "/cache/index3/shared_cpu_list", siblings);
    }
    const char* nodes[] = {"3", "2", "1", "-1"};
    for (int gpu = 0; gpu < 4; ++gpu)
      put("bus/pci/drivers/nvidia/0000:0" + std::to_string(gpu) + ":00.0/numa_node", nodes[gpu]);
    put("bus/pci/drivers/nvidia/new_id", "");
  }
  ~FakeSys() { fs::remove_all(root_); }
  FakeSys(const FakeSys&) = delete;
  FakeSys& operator=(const FakeSys&) = delete;

  [[nodiscard]] const std::string& root() const { return root_; }
  [[nodiscard]] CpuTopology topology() const { return read_topology(root_, {}); }

 private:
  void put(const std::string& path, const std::string& text) const {
    const fs::path file = fs::path{root_} / path;
    fs::create_directories(file.parent_path());
    std::ofstream{file} << text << '\n';
  }
  std::string root_;
};

}  // namespace

TEST_CASE("/sys is read", "[launcher]") {
  const FakeSys sys;
  const auto topology = sys.topology();
  REQUIRE(topology.cpus.size() == 16);
  const auto& last = topology.cpus.back();
  CHECK(last.number == 15);
  CHECK(last.node == 3);
  CHECK(last.package == 1);
  CHECK(last.core == 7);
  CHECK(last.cache == 7);
  REQUIRE(topology.gpu_nodes.size() == 4);
  CHECK(topology.gpu_nodes[0] == 3U);
  CHECK_FALSE(topology.gpu_nodes[3]);
  CHECK(read_topology(sys.root(), {1, 9, 99}).cpus.size() == 2);  // what we may use
  CHECK(read_topology("/nonexistent", {}).cpus.empty());
}

TEST_CASE("workers are bound to the NUMA node of their GPU", "[launcher]") {
  const FakeSys sys;
  const auto topology = sys.topology();
  CHECK(bind_workers(topology, Binding::node, 3, {}).cores ==
        Cores{{6, 7, 14, 15}, {4, 5, 12, 13}, {2, 3, 10, 11}});
  // CUDA_VISIBLE_DEVICES=2,0
  CHECK(bind_workers(topology, Binding::node, 2, {2, 0}).cores ==
        Cores{{2, 3, 10, 11}, {6, 7, 14, 15}});
  CHECK(bind_workers(topology, Binding::socket, 1, {}).cores ==
        Cores{{4, 5, 6, 7, 12, 13, 14, 15}});
  CHECK(bind_workers(topology, Binding::core_complex, 2, {0, 0}).cores == Cores{{6, 14}, {7, 15}});
  CHECK(bind_workers(topology, Binding::exclusive, 2, {0, 0}).cores == Cores{{6, 14}, {7, 15}});
}

TEST_CASE("workers without a GPU are dealt out to the nodes", "[launcher]") {
  const FakeSys sys;
  auto topology = sys.topology();
  topology.gpu_nodes.clear();
  CHECK(bind_workers(topology, Binding::node, 2, {}).cores == Cores{{0, 1, 8, 9}, {4, 5, 12, 13}});
  const auto each = bind_workers(topology, Binding::exclusive, 8, {}).cores;
  CHECK(each == Cores{{0, 8}, {1, 9}, {2, 10}, {3, 11}, {4, 12}, {5, 13}, {6, 14}, {7, 15}});
  CHECK(bind_workers(topology, Binding::core_complex, 16, {}).cores.size() == 16);
  const auto too_many = bind_workers(topology, Binding::exclusive, 12, {});
  CHECK(too_many.cores.empty());
  CHECK_THAT(too_many.problem, Contains("NUMA node 0 has 2 cores for 3 workers"));
}

TEST_CASE("lists of cores are read and written as the kernel does", "[launcher]") {
  CHECK(parse_cpu_list("0-2,8\n") == std::vector<std::uint32_t>{0, 1, 2, 8});
  CHECK(parse_cpu_list("x,3-1,7,99999999").size() == 1);
  CHECK(cpu_list_text({0, 1, 2, 8, 10, 11}) == "0-2,8,10-11");
  CHECK(cpu_list_text({}).empty());
}

SCENARIO("binding is asked for on the command line or in the file", "[launcher]") {
  const FakeSys sys;
  GIVEN("--numa_binding on a CPU machine") {
    Trial trial{{"--num_processes", "4", "--cpu", "--numa_binding", "exclusive", "x.py"}};
    trial.facts.cpu_topology = sys.topology();
    const auto planned = trial.planned();
    REQUIRE(planned.complaints.empty());
    CHECK(planned.plan.cores.size() == 4);
    CHECK(planned.plan.cores[1] == std::vector<std::uint32_t>{2, 3, 10, 11});  // its node's
  }
  GIVEN("enable_cpu_affinity in the file, and GPUs") {
    Trial trial{{"x.py"},
                "distributed_type: MULTI_GPU\nnum_processes: 2\ngpu_ids: 1,2\n"
                "enable_cpu_affinity: true\nmixed_precision: 'no'\n"};
    trial.facts.devices = 4;
    trial.facts.cpu_topology = sys.topology();
    const auto planned = trial.planned();
    REQUIRE(planned.complaints.empty());
    CHECK(planned.plan.cores == Cores{{4, 5, 12, 13}, {2, 3, 10, 11}});
    CHECK(planned.plan.env.at("ACCELERATE_CPU_AFFINITY") == "1");
  }
  GIVEN("a machine with one NUMA node") {
    Trial trial{{"--num_processes", "2", "--cpu", "--numa_binding", "node", "x.py"}};
    trial.facts.cpu_topology = read_topology(sys.root(), {0, 1, 8, 9});
    const auto planned = trial.planned();
    CHECK(planned.plan.cores.empty());
    REQUIRE_FALSE(planned.plan.warnings.empty());
    CHECK_THAT(planned.plan.warnings.back(), Contains("no worker is bound"));
  }
}
