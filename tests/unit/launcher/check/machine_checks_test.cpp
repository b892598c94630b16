#include "launcher/check/machine_checks.hpp"

#include <catch2/catch.hpp>

#include <algorithm>

namespace acc::check {
namespace {

MachineView good_machine() {
  MachineView m;
  m.host_name = "node1";
  m.host_addresses = {"10.0.0.1"};
  m.interpreter = "/usr/bin/python3";
  m.interpreter_runs = m.interpreter_has_torch = true;
  m.open_files = 1 << 20;
  m.shm_bytes = 8ULL << 30;
  m.memory_bytes = 64ULL << 30;
  m.cores = 16;
  m.cgroup_writable = true;
  m.gpus = 2;
  m.gpu_names = "NVIDIA H100";
  m.driver = "550.54.15";
  m.nccl = "2.28.9";
  return m;
}

agent::JobPlan plan_of(std::uint32_t workers) {
  agent::JobPlan plan;
  plan.local_world_size = workers;
  plan.world_size = WorldSize{workers};
  return plan;
}

Check find(const std::vector<Check>& checks, const std::string& name) {
  const auto found = std::ranges::find(checks, name, &Check::name);
  REQUIRE(found != checks.end());
  return *found;
}

}  // namespace

TEST_CASE("a machine that has everything passes every check", "[check]") {
  for (const auto& check : judge(good_machine(), plan_of(8))) {
    INFO(check.name << ": " << check.found);
    CHECK(check.verdict == Verdict::ok);
    CHECK(check.remedy.empty());
  }
}

TEST_CASE("more ranks than a group can have on a node are refused before they are started",
          "[check]") {
  CHECK(find(judge(good_machine(), plan_of(512)), "cores").verdict != Verdict::failed);
  const auto check = find(judge(good_machine(), plan_of(10'000)), "cores");
  CHECK(check.verdict == Verdict::failed);
  CHECK(check.remedy.find("up to 512 ranks on a node") != std::string::npos);
}

TEST_CASE("whatever isn't well comes with a remedy", "[check]") {
  auto m = good_machine();
  m.interpreter_runs = m.interpreter_has_torch = false;
  m.host_addresses = {"127.0.1.1"};
  m.why_no_master_port = "is already in use";
  m.open_files = 256;
  m.processes = 100;
  m.locked_bytes = 65536;
  m.shm_bytes = 64 << 20;
  m.memory_bytes = 512 << 20;
  m.has_pidfd = false;
  m.cpu_quota = 1.5;
  m.driver.clear();
  m.nccl.clear();
  m.cgroup_writable = false;
  auto plan = plan_of(8);
  plan.master.port_is_given = true;
  plan.cluster.nodes_max = 2;
  const auto checks = judge(m, plan);
  for (const auto& check : checks) {
    INFO(check.name << ": " << check.found);
    if (check.verdict == Verdict::warning || check.verdict == Verdict::failed)
      CHECK_FALSE(check.remedy.empty());
  }
  CHECK(find(checks, "host name").verdict == Verdict::warning);
  CHECK(find(checks, "port").verdict == Verdict::failed);
  CHECK(find(checks, "open files").verdict == Verdict::warning);
  CHECK(find(checks, "processes").verdict == Verdict::warning);
  CHECK(find(checks, "locked memory").verdict == Verdict::warning);
  CHECK(find(checks, "/dev/shm").found == "64 MiB");
  CHECK(find(checks, "kernel").verdict == Verdict::failed);
  CHECK(find(checks, "GPUs").verdict == Verdict::failed);
  CHECK(find(checks, "NCCL").verdict == Verdict::failed);
}

TEST_CASE("an open-files limit that may be raised names the command, else the place", "[check]") {
  auto m = good_machine();
  m.open_files = 256;
  CHECK(find(judge(m, plan_of(8)), "open files").remedy == "ulimit -n 1152");
  m.open_files_hard = 512;
  CHECK(find(judge(m, plan_of(8)), "open files").remedy.find("LimitNOFILE=") != std::string::npos);
}

TEST_CASE("a quota of the control group counts, not the machine's cores", "[check]") {
  auto m = good_machine();
  m.gpus = 0;
  m.cpu_quota = 1.5;
  const auto cores = find(judge(m, plan_of(4)), "cores");
  CHECK(cores.found == "1.5 for 4 workers (quota of the control group; the machine shows 16)");
  CHECK(cores.verdict == Verdict::note);
}

TEST_CASE("without a GPU nothing about GPUs is a failure", "[check]") {
  auto m = good_machine();
  m.gpus = 0;
  m.nccl.clear();
  m.nccl_error = "libnccl.so.2: cannot open shared object file";
  const auto checks = judge(m, plan_of(2));
  CHECK(find(checks, "GPUs").verdict == Verdict::note);
  CHECK(find(checks, "NCCL").verdict == Verdict::note);
}

TEST_CASE("a job on the CPU of a machine with GPUs needs neither NCCL nor a driver", "[check]") {
  auto m = good_machine();
  m.nccl.clear();
  m.nccl_error = "libnccl.so.2 was not found";
  m.driver.clear();
  m.job_is_on_cpu = true;
  const auto checks = judge(m, plan_of(2));
  CHECK(find(checks, "GPUs").verdict == Verdict::note);
  CHECK(find(checks, "NCCL").verdict == Verdict::note);
  CHECK(find(checks, "NCCL").found == "libnccl.so.2 was not found (not needed on the CPU)");
}

TEST_CASE("PyTorch without an NCCL that the runtime finds is a warning, unless NCCL was asked for",
          "[check]") {
  auto m = good_machine();
  m.nccl.clear();
  m.nccl_error = "libnccl.so.2 was not found";
  CHECK(find(judge(m, plan_of(2)), "NCCL").verdict == Verdict::warning);
  m.nccl_is_asked_for = true;
  CHECK(find(judge(m, plan_of(2)), "NCCL").verdict == Verdict::failed);
  m.nccl_is_asked_for = false;
  m.interpreter_has_torch = false;
  CHECK(find(judge(m, plan_of(2)), "NCCL").verdict == Verdict::failed);
}

TEST_CASE("a job is on the CPU by --cpu or ACC_BACKEND, as the runtime reads them", "[check]") {
  agent::JobPlan plain;
  CHECK_FALSE(is_on_cpu(plain, {}));
  CHECK_FALSE(is_on_cpu(plain, {{"ACC_BACKEND", "automatic"}}));
  CHECK(is_on_cpu(plain, {{"ACC_BACKEND", " CPU "}}));
  CHECK(is_on_cpu(plain, {{"ACCELERATE_USE_CPU", "True"}}));  // on the ranks of --hosts
  agent::JobPlan cpu;
  cpu.env["ACCELERATE_USE_CPU"] = "true";
  CHECK(is_on_cpu(cpu, {}));
  CHECK_FALSE(is_on_cpu(cpu, {{"ACC_BACKEND", "nccl"}}));
  agent::JobPlan gpu;
  gpu.env["ACCELERATE_USE_CPU"] = "false";
  CHECK_FALSE(is_on_cpu(gpu, {{"ACCELERATE_USE_CPU", "true"}}));
}

TEST_CASE("a taken port that nobody asked for is no failure: another is picked", "[check]") {
  auto m = good_machine();
  m.why_no_master_port = "is already in use";
  CHECK(find(judge(m, plan_of(2)), "port").verdict == Verdict::note);
}

TEST_CASE("a port that is taken where rank 0 does not run harms nobody", "[check]") {
  auto m = good_machine();
  m.why_no_master_port = "is already in use";
  auto plan = plan_of(2);
  plan.master.port_is_given = true;
  plan.first_rank = Rank{2};
  const auto check = find(judge(m, plan), "port");
  CHECK(check.verdict == Verdict::ok);
  CHECK(check.found == "29500 is needed by the machine of rank 0 only");
}

TEST_CASE("a check is a line, its remedy another", "[check]") {
  CHECK(to_text({"cores", Verdict::ok, "2 for 2 workers", ""}) ==
        "ok       cores          2 for 2 workers\n");
  CHECK(to_text({"port", Verdict::failed, "29500 is taken", "give another one"}) ==
        "failed   port           29500 is taken\n         -> give another one\n");
}

}  // namespace acc::check
