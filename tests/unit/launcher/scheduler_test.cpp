#include "launcher/scheduler.hpp"

#include "tests/unit/launcher/trial.hpp"

#include <catch2/catch.hpp>

using namespace acc;
using namespace acc::launcher;
using Words = std::vector<std::string>;

namespace {

Environment with(Environment base, const Environment& more) {
  for (const auto& [name, value] : more) base[name] = value;
  return base;
}

/// `srun -N 2 --ntasks-per-node=1`, the second task.
const Environment kSlurm{{"SLURM_JOB_ID", "42"},
                         {"SLURM_STEP_ID", "0"},
                         {"SLURM_STEP_NUM_TASKS", "2"},
                         {"SLURM_STEP_NUM_NODES", "2"},
                         {"SLURM_PROCID", "1"},
                         {"SLURM_NODEID", "1"},
                         {"SLURM_LOCALID", "0"},
                         {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"},
                         {"SLURM_STEP_NODELIST", "gpu[08-09]"}};

/// As Open MPI 4.1.4 sets them: `mpirun -n 3` on two hosts, the second task on mpirun's.
const Environment kOpenMpi{{"OMPI_COMM_WORLD_SIZE", "3"},
                           {"OMPI_COMM_WORLD_RANK", "1"},
                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                           {"OMPI_MCA_ess_base_jobid", "1600782337"},
                           {"OMPI_MCA_orte_hnp_uri",
                            "1600782336.0;tcp://127.0.0.1,192.0.2.2:51751;tcp6://[fd00::2]:47373"},
                           {"OMPI_MCA_orte_local_daemon_uri",
                            "1600782336.0;tcp://127.0.0.1,192.0.2.2:51751;tcp6://[fd00::2]:47373"}};

std::optional<Placement> place(const Environment& environment, std::string_view host = "node1") {
  return find_placement(environment, host);
}

std::string notes_of(Trial& trial) {
  std::string text;
  for (const auto& note : trial.merged().spec.notes) text += note + "\n";
  return text;
}

}  // namespace

TEST_CASE("a Slurm step tells rank, size and where to meet", "[launcher][scheduler]") {
  const auto found = place(kSlurm);
  REQUIRE(found);
  CHECK(found->who == "Slurm step 42.0");
  CHECK(found->job == "slurm-42.0");
  CHECK(found->machines == 2);
  CHECK(found->rank == 1U);
  CHECK(found->host == "gpu08");
  CHECK(found->port == 20042);
  CHECK(!found->is_host);
  CHECK(found->tasks_here == 1);
  CHECK(place(with(kSlurm, {{"SLURM_PROCID", "0"}, {"SLURM_NODEID", "0"}}))->is_host);
}

TEST_CASE("two steps of a Slurm job meet at two ports", "[launcher][scheduler]") {
  const auto second = place(with(kSlurm, {{"SLURM_STEP_ID", "1"}}));
  CHECK(second->port != place(kSlurm)->port);
  CHECK(second->job == "slurm-42.1");
  const auto late = place(with(kSlurm, {{"SLURM_JOB_ID", "4000000000"}}));
  CHECK(late->port >= 20000);
  CHECK(late->port < 29400);
}

TEST_CASE("several Slurm tasks on one node meet on loopback", "[launcher][scheduler]") {
  const auto found = place(with(kSlurm, {{"SLURM_STEP_NUM_TASKS", "4"},
                                         {"SLURM_STEP_NUM_NODES", "1"},
                                         {"SLURM_STEP_TASKS_PER_NODE", "4"},
                                         {"SLURM_NODEID", "0"},
                                         {"SLURM_PROCID", "3"},
                                         {"SLURM_LOCALID", "3"}}));
  CHECK(found->host == "127.0.0.1");
  CHECK(found->machines == 4);
  CHECK(found->tasks_here == 4);
  CHECK(found->task_here == 3);
  CHECK(!found->own_gpus);
}

TEST_CASE("what is no step of several tasks is left alone", "[launcher][scheduler]") {
  const Environment batch_script{{"SLURM_JOB_ID", "42"}, {"SLURM_NTASKS", "8"},
                                 {"SLURM_NNODES", "2"},  {"SLURM_NODEID", "0"},
                                 {"SLURM_PROCID", "0"},  {"SLURM_JOB_NODELIST", "gpu[08-09]"},
                                 {"SLURM_LOCALID", "0"}};
  const std::pair<const char*, Environment> cases[] = {
      {"nothing", {}},
      {"a batch script", batch_script},
      {"one task", with(kSlurm, {{"SLURM_STEP_NUM_TASKS", "1"}})},
      {"an interactive step", with(kSlurm, {{"SLURM_STEP_ID", "4294967290"}})},
      {"not a number", with(kSlurm, {{"SLURM_PROCID", "one"}})},
      {"mpirun -n 1", with(kOpenMpi, {{"OMPI_COMM_WORLD_SIZE", "1"}})},
      {"what accelerate reads", {{"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}}},
      {"torch's own",
       {{"MASTER_ADDR", "h"}, {"MASTER_PORT", "1"}, {"RANK", "1"}, {"WORLD_SIZE", "2"}}},
      {"PET_NNODES of one", {{"PET_NNODES", "1"}, {"PET_NODE_RANK", "0"}}},
      {"a pod of another shape", {{"JOB_COMPLETION_INDEX", "1"}}},
      {"inside of a worker", with(kSlurm, {{"ACC_JOB_ID", "slurm-42.0"}})}};
  for (const auto& [name, environment] : cases) {
    INFO(name);
    CHECK(!place(environment));
  }
}

TEST_CASE("a batch script of two nodes trained on one of them without a word",
          "[launcher][scheduler]") {
  const Environment batch_script{{"SLURM_JOB_ID", "42"},
                                 {"SLURM_JOB_NUM_NODES", "2"},
                                 {"SLURM_NNODES", "2"},
                                 {"SLURM_PROCID", "0"},
                                 {"SLURM_NODEID", "0"}};
  const auto note = [](const Environment& environment, std::vector<std::string> flags = {},
                       const std::string& yaml = {}) {
    flags.emplace_back("s.py");
    Trial c{std::move(flags), yaml, environment};
    const auto notes = c.merged().spec.notes;
    return notes.empty() ? std::string{} : notes.back();
  };
  const std::string told =
      "Slurm job 42 has 2 nodes, and all workers start on this one: in front of acc-launch 'srun "
      "--ntasks-per-node=1' uses them all; --num_machines 1 is for one alone, without this note";
  CHECK(note(batch_script) == told);
  CHECK(note(batch_script, {"--nproc_per_node=2"}) == told);
  CHECK(note(batch_script, {}, "num_machines: 1\n") == told);  // accelerate config writes it always
  CHECK(note(with(batch_script, {{"SLURM_STEP_ID", "4294967290"}})) == told);  // interactive
  Environment older = batch_script;
  older.erase("SLURM_JOB_NUM_NODES");
  CHECK(note(older) == told);

  CHECK(note(with(batch_script, {{"SLURM_JOB_NUM_NODES", "1"}})).empty());
  CHECK(note(with(batch_script, {{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}})).empty());
  CHECK(note(with(batch_script, {{"ACC_JOB_ID", "outer"}})).empty());
  CHECK(note(batch_script, {"--num_machines=1"}).empty());
  CHECK(note(batch_script, {"--nnodes=1"}).empty());
  CHECK(note(batch_script, {"--standalone"}).empty());
  CHECK(note(batch_script, {"--hosts=a,b"}).empty());
  CHECK(note(batch_script, {}, "num_machines: 2\nmachine_rank: 0\n").empty());
}

TEST_CASE("mpirun's tasks meet on mpirun's host", "[launcher][scheduler]") {
  const auto second = place(kOpenMpi);
  REQUIRE(second);
  CHECK(second->job == "mpi-1600782337");
  CHECK(second->machines == 3);
  CHECK(second->rank == 1U);
  CHECK(second->host == "192.0.2.2");
  CHECK(second->tasks_here == 2);
  CHECK(!second->is_host);
  CHECK(place(with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_RANK", "0"}}))->is_host);
  const auto elsewhere =
      place(with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
                            {"OMPI_MCA_orte_local_daemon_uri", "1600782336.1;tcp://192.0.2.3:5"}}));
  CHECK(!elsewhere->is_host);
  CHECK(elsewhere->host == "192.0.2.2");
  CHECK(elsewhere->port == second->port);
}

TEST_CASE("mpirun on one host meets on loopback, without its own address",
          "[launcher][scheduler]") {
  const auto found = place({{"OMPI_COMM_WORLD_SIZE", "2"},
                            {"OMPI_COMM_WORLD_RANK", "0"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                            {"PMIX_NAMESPACE", "prterun-node1-77@1"}});
  REQUIRE(found);
  CHECK(found->host == "127.0.0.1");
  CHECK(found->is_host);
  CHECK(found->job == "mpi-prterun-node1-77-1");
}

TEST_CASE("mpirun inside of a Slurm job counts, not the step of its daemons",
          "[launcher][scheduler]") {
  CHECK(place(with(kSlurm, kOpenMpi))->job == "mpi-1600782337");
}

TEST_CASE("a PyTorchJob speaks torchrun's names", "[launcher][scheduler]") {
  Trial c{{"s.py"},
          "",
          {{"PET_NNODES", "2"},
           {"PET_NPROC_PER_NODE", "4"},
           {"PET_NODE_RANK", "1"},
           {"PET_MASTER_ADDR", "job-master-0"},
           {"PET_MASTER_PORT", "23456"},
           {"MASTER_ADDR", "ignored"},
           {"WORLD_SIZE", "2"}}};
  const auto plan = c.planned().plan;
  CHECK(c.complaints().empty());
  CHECK(plan.cluster.nodes_max == 2);
  CHECK(plan.cluster.backend == agent::Backend::fixed);
  CHECK(plan.cluster.wanted == NodeRank{1});
  CHECK(plan.cluster.control_host == "job-master-0");
  CHECK(plan.cluster.control_port == 23457);
  CHECK(plan.cluster.serve_seed == rendezvous::ServeSeed::never);
  CHECK(plan.local_world_size == 4);
  CHECK(plan.master.port == 23456);
}

TEST_CASE("an elastic PyTorchJob meets at its endpoint", "[launcher][scheduler]") {
  Trial c{{"s.py"},
          "",
          {{"PET_NNODES", "1:3"},
           {"PET_NPROC_PER_NODE", "2"},
           {"PET_RDZV_BACKEND", "c10d"},
           {"PET_RDZV_ENDPOINT", "job-worker-0:23456"},
           {"PET_MAX_RESTARTS", "7"}}};
  const auto plan = c.planned().plan;
  CHECK(c.complaints().empty());
  CHECK(plan.cluster.nodes_min == 1);
  CHECK(plan.cluster.nodes_max == 3);
  CHECK(plan.cluster.control_port == 23456);
  CHECK(plan.cluster.serve_seed == rendezvous::ServeSeed::may);
  CHECK(!plan.cluster.wanted);
  CHECK(plan.restart.max_restarts == 7);
}

TEST_CASE("a bad number in a PyTorchJob is named", "[launcher][scheduler]") {
  Trial c{{"s.py"}, "", {{"PET_NNODES", "2"}, {"PET_NODE_RANK", "one"}, {"PET_MASTER_ADDR", "h"}}};
  CHECK(c.complaints().find("environment variable PET_NODE_RANK: 'one' is not a whole number") !=
        std::string::npos);
}

TEST_CASE("a pod of an indexed job knows its rank, and the first pod's name",
          "[launcher][scheduler]") {
  Trial c{{"--nnodes=3", "--nproc-per-node=2", "s.py"}, "", {{"JOB_COMPLETION_INDEX", "2"}}};
  c.facts.full_name = "train-2.svc.default.svc.cluster.local";
  const auto plan = c.planned().plan;
  CHECK(c.complaints().empty());
  CHECK(plan.cluster.wanted == NodeRank{2});
  CHECK(plan.cluster.control_host == "train-0.svc.default.svc.cluster.local");
  CHECK(plan.cluster.control_port == 29400);
  CHECK(plan.cluster.serve_seed == rendezvous::ServeSeed::never);
  CHECK(plan.cluster.job == "k8s-train");
  c.facts.full_name = "train-2";  // no headless service
  CHECK(c.complaints().find("main process IP") != std::string::npos);
  c.words = {"--nproc-per-node=2", "s.py"};  // nobody said that the pods belong together
  CHECK(c.planned().plan.cluster.nodes_max == 1);
}

TEST_CASE("under srun the same command needs no address and no rank", "[launcher][scheduler]") {
  Trial c{{"s.py"}, "", kSlurm};
  c.facts.devices = 8;
  const auto plan = c.planned().plan;
  CHECK(c.complaints().empty());
  CHECK(plan.kind == agent::JobKind::elastic);
  CHECK(plan.local_world_size == 8);
  CHECK(plan.cluster.nodes_min == 2);
  CHECK(plan.cluster.nodes_max == 2);
  CHECK(plan.cluster.wanted == NodeRank{1});
  CHECK(plan.cluster.backend == agent::Backend::tcp);
  CHECK(plan.cluster.control_host == "gpu08");
  CHECK(plan.cluster.control_port == 20042);
  CHECK(plan.cluster.serve_seed == rendezvous::ServeSeed::never);
  CHECK(plan.cluster.job == "slurm-42.0");
  CHECK(notes_of(c).find("Slurm step 42.0: 2 tasks, this is number 1; the machines meet at "
                         "gpu08:20042") != std::string::npos);
}

TEST_CASE(
    "under srun the machine_rank of a config file that all machines share made each the first",
    "[launcher][scheduler]") {
  const std::string yaml =
      "distributed_type: MULTI_GPU\nnum_machines: 2\nnum_processes: 4\nmachine_rank: 0\n";
  const Words c10d{"--rdzv_backend=c10d", "--main_process_ip=gpu08", "s.py"};
  const auto wanted = [&](const Words& words) {
    Trial c{words, yaml, kSlurm};
    CHECK(c.complaints().empty());
    return c.planned().plan.cluster.wanted;
  };
  CHECK(wanted(c10d) == NodeRank{1});
  CHECK(wanted({"--machine_rank=0", c10d[0], c10d[1], c10d[2]}) == NodeRank{0});
  CHECK(wanted({"--main_process_ip=gpu08", "--rdzv_backend=static", "s.py"}) == NodeRank{0});
  Trial c{c10d, yaml, kSlurm};
  CHECK(c.planned().plan.cluster.serve_seed == rendezvous::ServeSeed::may);
}

TEST_CASE("under a scheduler a machine without GPUs has one worker", "[launcher][scheduler]") {
  Trial c{{"s.py"}, "", kSlurm};
  CHECK(c.planned().plan.local_world_size == 1);
  CHECK(c.planned().plan.kind == agent::JobKind::elastic);
  Trial counted{{"--num_processes=6", "s.py"}, "", kSlurm};
  CHECK(counted.planned().plan.local_world_size == 3);
  Trial torchrun{{"--nproc-per-node=5", "s.py"}, "", kSlurm};
  CHECK(torchrun.planned().plan.local_world_size == 5);
  CHECK(torchrun.planned().plan.cluster.nodes_max == 2);
}

TEST_CASE("under a scheduler --num_processes was refused for want of an address it had told",
          "[launcher][scheduler]") {
  const auto complaints = [](std::vector<std::string> words, const std::string& yaml,
                             const Environment& environment, std::uint32_t gpus) {
    words.emplace_back("s.py");
    Trial c{std::move(words), yaml, environment};
    c.facts.devices = gpus;
    return c.complaints();
  };
  for (const std::uint32_t gpus : {0U, 1U, 8U}) {
    INFO(gpus << " GPUs");
    CHECK(complaints({"--num_processes=8"}, "", kSlurm, gpus).empty());
    CHECK(complaints({"--num_processes=2"}, "", kSlurm, gpus).empty());
    CHECK(complaints({"--cpu", "--num_processes=4"}, "", kSlurm, gpus).empty());
    CHECK(complaints({}, "distributed_type: MULTI_CPU\nnum_processes: 4\n", kSlurm, gpus).empty());
    CHECK(complaints(
              {"--num_processes=4"}, "",
              {{"PET_NNODES", "2"}, {"PET_RDZV_BACKEND", "c10d"}, {"PET_RDZV_ENDPOINT", "h:29500"}},
              gpus)
              .empty());
    CHECK(complaints({"--num_processes=4"}, "",
                     {{"PET_NNODES", "2"}, {"PET_NODE_RANK", "1"}, {"PET_MASTER_ADDR", "h"}}, gpus)
              .empty());
  }
  Trial placed{{"--num_processes=8", "s.py"}, "", kSlurm};
  CHECK(placed.planned().plan.cluster.control_host == "gpu08");
  CHECK(placed.planned().plan.local_world_size == 4);
}

TEST_CASE("one process for all tasks of a scheduler is too few, not without an address",
          "[launcher][scheduler]") {
  Trial c{{"--num_processes=1", "s.py"}, "", kSlurm};
  CHECK(c.complaints() ==
        "1 process on 2 machines: --num_processes counts the whole job, so "
        "give at least one for each machine\n");
}

TEST_CASE("a file with distributed_type NO was refused under a scheduler for want of an address",
          "[launcher][scheduler]") {
  Trial c{{"s.py"}, "distributed_type: 'NO'\nnum_processes: 1\n", kSlurm};
  CHECK(c.complaints().empty());
  CHECK(c.planned().plan.kind == agent::JobKind::process);
  CHECK(notes_of(c).find("Slurm step 42.0 has 2 tasks, but cfg.yaml:1: distributed_type says NO: "
                         "each task is a job of its own") != std::string::npos);
}

TEST_CASE("a scheduler that tells no address is named where one is asked for",
          "[launcher][scheduler]") {
  Trial c{{"--num_processes=4", "s.py"}, "", {{"PET_NNODES", "2"}, {"PET_NODE_RANK", "1"}}};
  const auto text = c.complaints();
  CHECK(text.find("main process IP") != std::string::npos);
  CHECK(text.find("PET_NNODES") == std::string::npos);
  CHECK(text.find("doesn't tell one") != std::string::npos);
}

TEST_CASE("flags and file beat the scheduler", "[launcher][scheduler]") {
  Trial address{
      {"--main_process_ip=10.0.0.9", "--main_process_port=4000", "--nproc-per-node=1", "s.py"},
      "",
      kSlurm};
  const auto plan = address.planned().plan;
  CHECK(plan.cluster.backend == agent::Backend::fixed);
  CHECK(plan.cluster.control_host == "10.0.0.9");
  CHECK(plan.cluster.control_port == 4001);
  CHECK(plan.cluster.wanted == NodeRank{1});
  Trial rank{{"--machine_rank=0", "s.py"}, "", kSlurm};
  CHECK(rank.planned().plan.cluster.wanted == NodeRank{0});
  CHECK(notes_of(rank).find("--machine_rank says number 0, which counts") != std::string::npos);
  Trial id{{"--rdzv_id=mine", "s.py"}, "", kSlurm};
  CHECK(id.planned().plan.cluster.job == "mine");
  Trial backend{{"--rdzv_backend=static", "s.py"}, "", kSlurm};
  CHECK(backend.planned().plan.cluster.control_port == 20043);
  CHECK(backend.planned().plan.master.port == 20042);
  Trial spares{{"--nnodes=1:1", "s.py"}, "", kSlurm};
  CHECK(spares.planned().plan.cluster.nodes_max == 1);
}

TEST_CASE("a file that says one machine keeps a task for itself, and a note says so",
          "[launcher][scheduler]") {
  Trial c{{"s.py"}, "distributed_type: MULTI_GPU\nnum_machines: 1\nnum_processes: 2\n", kSlurm};
  c.facts.devices = 2;
  CHECK(!c.planned().plan.cluster.several());
  CHECK(notes_of(c).find("Slurm step 42.0 has 2 tasks, but cfg.yaml:2: num_machines says one "
                         "machine") != std::string::npos);
}

TEST_CASE("more tasks than machines are spares", "[launcher][scheduler]") {
  Trial c{{"--nnodes=1:2", "--nproc-per-node=1", "s.py"},
          "",
          with(kSlurm, {{"SLURM_STEP_NUM_TASKS", "3"}, {"SLURM_PROCID", "2"}})};
  CHECK(c.complaints().empty());
  CHECK(c.planned().plan.cluster.wanted == NodeRank{2});
  CHECK(c.planned().plan.cluster.nodes_max == 2);
}

TEST_CASE("acc-launch crashed where SLURM_LOCALID is beyond the devices of its host",
          "[launcher][scheduler]") {
  Trial c{{"s.py"},
          "",
          with(kSlurm, {{"SLURM_STEP_NUM_TASKS", "2"},
                        {"SLURM_STEP_NUM_NODES", "1"},
                        {"SLURM_STEP_TASKS_PER_NODE", "2"},
                        {"SLURM_NODEID", "0"},
                        {"SLURM_LOCALID", "4000000"},
                        {"CUDA_VISIBLE_DEVICES", "4,5"}})};
  c.facts.devices = 2;
  CHECK(c.complaints().find("this is task 4000000 of this host by its variables, which has 2 GPUs "
                            "and 2 tasks: name its GPU with --gpu_ids") != std::string::npos);
  c.words = {"--gpu_ids=1", "s.py"};
  CHECK(c.complaints().empty());
}

TEST_CASE("tasks that share a host share its GPUs, unless the scheduler has done so",
          "[launcher][scheduler]") {
  const auto shared = with(kSlurm, {{"SLURM_STEP_NUM_TASKS", "4"},
                                    {"SLURM_STEP_NUM_NODES", "1"},
                                    {"SLURM_STEP_TASKS_PER_NODE", "4"},
                                    {"SLURM_NODEID", "0"},
                                    {"SLURM_LOCALID", "2"}});
  Trial c{{"s.py"}, "", shared};
  c.facts.devices = 4;
  CHECK(c.planned().plan.local_world_size == 1);
  CHECK(c.planned().plan.env.at("CUDA_VISIBLE_DEVICES") == "2");
  c.environment["CUDA_VISIBLE_DEVICES"] = "4,5,6,7";
  CHECK(c.planned().plan.env.at("CUDA_VISIBLE_DEVICES") == "6");
  c.environment["SLURM_GPUS_PER_TASK"] = "2";
  c.environment["CUDA_VISIBLE_DEVICES"] = "0,1";
  c.facts.devices = 2;
  CHECK(c.planned().plan.local_world_size == 2);
  CHECK(c.planned().plan.env.count("CUDA_VISIBLE_DEVICES") == 0);
}
