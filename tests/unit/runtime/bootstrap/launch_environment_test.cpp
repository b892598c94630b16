#include "runtime/bootstrap/launch_environment.hpp"

#include "runtime/bootstrap/tcp_store.hpp"

#include <catch2/catch.hpp>

#include <map>
#include <string>

using namespace acc::runtime;
using namespace std::chrono_literals;

namespace {

using Variables = std::map<std::string, std::string>;

Lookup lookup_in(Variables variables) {
  return [variables = std::move(variables)](std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(std::string{name});
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

LaunchEnvironment read(Variables variables) {
  return read_launch_environment(lookup_in(std::move(variables)));
}

std::string complaint(Variables variables) {
  try {
    (void)read(std::move(variables));
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::invalid_argument);
    return error.what();
  }
  return "no complaint";
}

GroupOptions complete(Variables variables, GroupOptions options = {}) {
  return with_environment(std::move(options), lookup_in(std::move(variables)));
}

}  // namespace

TEST_CASE("without a launcher a process is alone", "[bootstrap]") {
  const auto alone = read({});
  CHECK(alone.rank == 0);
  CHECK(alone.size == 1);
  CHECK(alone.launcher.empty());
  CHECK(read({{"WORLD_SIZE", "1"}}).size == 1);
  CHECK(read({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}}).launcher.empty());
}

TEST_CASE("the daemon's socket, exported for acc-ctl, was taken for the worker's", "[bootstrap]") {
  const auto socket = [](const char* value) {
    return read({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"ACC_AGENT_SOCKET", value}}).agent_socket;
  };
  CHECK(socket("/run/acc/agent.sock").empty());
  CHECK(socket("@acc-launch/worker/1").starts_with('@'));
}

TEST_CASE("each launcher's variables are understood", "[bootstrap]") {
  struct Row {
    std::string launcher;
    Variables variables;
    int rank, size, local_rank, local_size;  // -1: not said
  };
  const std::vector<Row> rows{
      {"RANK and WORLD_SIZE", {{"RANK", "1"}, {"WORLD_SIZE", "4"}}, 1, 4, -1, -1},
      {"acc-launch",
       {{"RANK", "5"},
        {"WORLD_SIZE", "8"},
        {"LOCAL_RANK", "1"},
        {"LOCAL_WORLD_SIZE", "4"},
        {"ACC_JOB_ID", "j7"},
        {"ACC_ROUND", "3"},
        {"TORCHELASTIC_RUN_ID", "none"}},
       5,
       8,
       1,
       4},
      {"torchrun",
       {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}, {"TORCHELASTIC_RUN_ID", "x"}},
       0,
       2,
       0,
       -1},
      {"Open MPI",
       {{"OMPI_COMM_WORLD_RANK", "2"},
        {"OMPI_COMM_WORLD_SIZE", "3"},
        {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
        {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"},
        {"PMIX_NAMESPACE", "n1"}},
       2,
       3,
       2,
       3},
      {"MPICH",
       {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}},
       1,
       2,
       1,
       2},
      {"Slurm",
       {{"SLURM_PROCID", "3"},
        {"SLURM_NTASKS", "4"},
        {"SLURM_STEP_ID", "0"},
        {"SLURM_LOCALID", "1"},
        {"SLURM_NNODES", "2"}},
       3,
       4,
       1,
       -1},
      {"Slurm",
       {{"SLURM_PROCID", "1"},
        {"SLURM_NTASKS", "16"},
        {"SLURM_STEP_NUM_TASKS", "2"},
        {"SLURM_STEP_NUM_NODES", "1"},
        {"SLURM_JOB_ID", "9"}},
       1,
       2,
       -1,
       2},
  };
  for (const auto& row : rows) {
    CAPTURE(row.launcher, row.variables);
    const auto found = read(row.variables);
    CHECK(found.launcher == row.launcher);
    CHECK(found.rank == row.rank);
    CHECK(found.size == row.size);
    CHECK(found.local_rank.value_or(-1) == row.local_rank);
    CHECK(found.local_size.value_or(-1) == row.local_size);
  }
}

TEST_CASE(
    "a program that a Slurm batch script started without srun waited 300 s for its other tasks",
    "[bootstrap]") {
  const Variables script{{"SLURM_JOB_ID", "9"},
                         {"SLURM_PROCID", "0"},
                         {"SLURM_NTASKS", "4"},
                         {"SLURM_NNODES", "2"},
                         {"SLURM_LOCALID", "0"}};
  const auto with = [&](const Variables& more) {
    auto all = more;
    all.insert(script.begin(), script.end());
    return read(all);
  };
  // As some versions number a batch script, the shell of salloc and other steps of their own.
  for (const Variables& special :
       {Variables{}, Variables{{"SLURM_STEP_ID", "4294967291"}},
        Variables{{"SLURM_STEP_ID", "4294967290"}, {"SLURM_STEP_NUM_TASKS", "1"}},
        Variables{{"SLURM_STEP_ID", "batch"}}}) {
    const auto found = with(special);
    CAPTURE(special);
    CHECK(found.size == 1);
    CHECK(found.launcher.empty());
    CHECK(found.note.find("Slurm job 9 has 4 tasks, and this process was started without srun") ==
          0);
  }
  CHECK(read({{"SLURM_JOB_ID", "9"}, {"SLURM_NTASKS", "4"}}).note.size() > 0);  // salloc
  const auto silent = [&](const Variables& more, int size) {
    const auto found = with(more);
    CAPTURE(more);
    CHECK(found.size == size);
    CHECK(found.note.empty());
  };
  silent({{"SLURM_STEP_ID", "0"}}, 4);
  silent({{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}}, 1);
  silent({{"RANK", "0"}, {"WORLD_SIZE", "1"}}, 1);
  silent({{"RANK", "0"}, {"WORLD_SIZE", "2"}}, 2);
  silent({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "3"}}, 3);
  silent({{"SLURM_NTASKS", "1"}}, 1);
  CHECK(read({}).note.empty());
}

TEST_CASE("a Slurm task in a cleaned environment, as of a container, was silently a group of one",
          "[bootstrap]") {
  // docker -e, apptainer --cleanenv --env: neither a step's id nor its number of tasks.
  const auto task = [](const std::string& rank, bool job) {
    Variables all{{"SLURM_PROCID", rank}, {"SLURM_NTASKS", "4"}, {"SLURM_LOCALID", "1"}};
    if (job) all["SLURM_JOB_ID"] = "9";
    return all;
  };
  for (const bool job : {false, true}) {
    const auto found = read(task("3", job));  // a batch script would have 0
    CHECK(found.launcher == "Slurm");
    CHECK(found.rank == 3);
    CHECK(found.size == 4);
    CHECK_THROWS_WITH(place_of(found), Catch::Contains("set MASTER_ADDR"));
  }
  CHECK(complaint({{"SLURM_PROCID", "3"}}).find("SLURM_PROCID=3 is set, but SLURM_NTASKS isn't") ==
        0);
  const auto note = read(task("0", false)).note;
  CHECK(note.find("this Slurm job has 4 tasks, and this process was started without srun") == 0);
  CHECK(note.find("SLURM_STEP_ID") != note.npos);
  CHECK(read(task("0", true)).note.find("SLURM_STEP_ID") != note.npos);
  CHECK(read({{"SLURM_NTASKS", "4"}}).note.empty());  // an option for sbatch, in a login shell
}

TEST_CASE("the innermost launcher is believed", "[bootstrap]") {
  // sbatch sets SLURM_*, torchrun within it RANK; acc-launch under mpirun numbers its own workers
  const auto in_slurm = read({{"SLURM_PROCID", "0"},
                              {"SLURM_NTASKS", "4"},
                              {"RANK", "1"},
                              {"WORLD_SIZE", "2"},
                              {"TORCHELASTIC_RUN_ID", "7"}});
  CHECK(in_slurm.rank == 1);
  CHECK(in_slurm.size == 2);
  const auto in_mpirun = read({{"OMPI_COMM_WORLD_RANK", "0"},
                               {"OMPI_COMM_WORLD_SIZE", "2"},
                               {"RANK", "3"},
                               {"WORLD_SIZE", "8"},
                               {"ACC_JOB_ID", "j"}});
  CHECK(in_mpirun.rank == 3);
}

TEST_CASE("half a contract and contradictions name variables and values", "[bootstrap]") {
  CHECK(complaint({{"RANK", "1"}}) ==
        "RANK=1 is set, but WORLD_SIZE isn't: a launcher sets both, a process alone needs neither");
  CHECK(complaint({{"WORLD_SIZE", "4"}}).find("WORLD_SIZE=4 is set, but RANK isn't") == 0);
  CHECK(complaint({{"RANK", "4"}, {"WORLD_SIZE", "4"}}) ==
        "RANK=4 with WORLD_SIZE=4: ranks go from 0 to 3");
  CHECK(complaint({{"RANK", "one"}, {"WORLD_SIZE", "4"}}) == "RANK=one isn't a number from 0 on");
  CHECK(complaint({{"RANK", "0"}, {"WORLD_SIZE", "0"}}) == "WORLD_SIZE=0 isn't a number from 1 on");
  CHECK(complaint(
            {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "2"}, {"LOCAL_WORLD_SIZE", "2"}}) ==
        "LOCAL_RANK=2 with LOCAL_WORLD_SIZE=2: local ranks go from 0 to 1");
  CHECK(complaint({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_WORLD_SIZE", "3"}})
            .find("LOCAL_WORLD_SIZE=3 with WORLD_SIZE=2") == 0);
  CHECK(complaint({{"RANK", "1"},
                   {"WORLD_SIZE", "2"},
                   {"OMPI_COMM_WORLD_RANK", "0"},
                   {"OMPI_COMM_WORLD_SIZE", "2"}})
            .find("RANK=1 contradicts OMPI_COMM_WORLD_RANK=0") == 0);
  CHECK(complaint({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "70000"}}) ==
        "MASTER_PORT=70000 isn't a port");
}

TEST_CASE("where the ranks meet", "[bootstrap]") {
  SECTION("the master's port, and no other one") {
    const auto place = place_of(
        read({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "h"}, {"MASTER_PORT", "1234"}}));
    CHECK(place.host == "h");
    CHECK(place.ports == std::vector<std::uint16_t>{1234});
  }
  SECTION("torch's port where the launcher named an address only") {
    const auto place = place_of(read({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "h"}}));
    CHECK(place.ports == std::vector<std::uint16_t>{29500});
  }
  SECTION("an IPv6 address, also in brackets") {
    for (const char* address : {"fd77::1", "[fd77::1]"}) {
      const auto place =
          place_of(read({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", address}}));
      CHECK(place.host == "fd77::1");
      CHECK(describe(place) == "[fd77::1]:29500");
    }
  }
  SECTION("a local mpirun needs no address") {
    const auto place = place_of(read({{"OMPI_COMM_WORLD_RANK", "1"},
                                      {"OMPI_COMM_WORLD_SIZE", "2"},
                                      {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                      {"OMPI_MCA_ess_base_jobid", "77"}}));
    CHECK(place.host.empty());
    CHECK(place.name.find("/Open MPI/77") != std::string::npos);
  }
  SECTION("Slurm's first node is rank 0's, and steps on one node meet apart") {
    const auto step = [](const std::string& number) {
      return place_of(read({{"SLURM_PROCID", "1"},
                            {"SLURM_NTASKS", "4"},
                            {"SLURM_NNODES", "2"},
                            {"SLURM_JOB_ID", "5"},
                            {"SLURM_STEP_ID", number},
                            {"SLURM_STEP_NODELIST", "rack[07-09,11]"}}));
    };
    CHECK(step("2").host == "rack07");
    CHECK(step("2").ports.size() == 8);
    CHECK(step("2").ports == step("2").ports);
    CHECK(step("2").ports != step("3").ports);
    CHECK(step("2").job != step("3").job);
  }
  SECTION("no address is known") {
    REQUIRE_THROWS_WITH(place_of(read({{"RANK", "1"}, {"WORLD_SIZE", "2"}})),
                        Catch::Contains("rank 1 of 2") && Catch::Contains("set MASTER_ADDR"));
  }
}

TEST_CASE("torchrun's jobs on one host meet apart, whatever their ports", "[bootstrap]") {
  const auto place = [](const std::string& port, const std::string& nodes,
                        const std::string& restart = "0") {
    return place_of(read({{"RANK", "1"},
                          {"WORLD_SIZE", nodes == "1" ? "2" : "4"},
                          {"LOCAL_WORLD_SIZE", "2"},
                          {"GROUP_WORLD_SIZE", nodes},
                          {"MASTER_ADDR", "127.0.0.1"},
                          {"MASTER_PORT", port},
                          {"TORCHELASTIC_RUN_ID", "none"},
                          {"TORCHELASTIC_RESTART_COUNT", restart},
                          {"TORCHELASTIC_USE_AGENT_STORE", "True"}}));
  };
  SECTION("one node: an abstract name, and no port that another job could want") {
    CHECK(place("29500", "1").host.empty());
    CHECK(place("29500", "1").name != place("29501", "1").name);
    CHECK(place("29500", "1").name != place("29500", "1", "1").name);  // the attempt before
  }
  SECTION("several nodes: ports of the job's own, as torch's store has the one that is named") {
    const auto one = place("29500", "2"), neighbour = place("29501", "2");
    CHECK(one.host == "127.0.0.1");
    CHECK(one.job != neighbour.job);
    CHECK(one.ports != neighbour.ports);
    for (const auto port : one.ports) CHECK((port >= 20'000 && port < 29'000));
  }
}

TEST_CASE("long names of jobs stay apart where abstract names are cut", "[bootstrap]") {
  const auto name_of = [](const std::string& run) {
    return place_of(read({{"RANK", "0"},
                          {"WORLD_SIZE", "2"},
                          {"GROUP_WORLD_SIZE", "1"},
                          {"MASTER_ADDR", "127.0.0.1"},
                          {"TORCHELASTIC_RUN_ID", run}}))
        .name;
  };
  const std::string long_run(200, 'x');
  CHECK(name_of(long_run + "1") != name_of(long_run + "2"));
  CHECK(name_of(long_run + "1").size() <= 107);
}

TEST_CASE("a world size that can't be meant is refused at once", "[bootstrap]") {
  CHECK(complaint({{"RANK", "0"}, {"WORLD_SIZE", "1000000000"}}) ==
        "WORLD_SIZE=1000000000: a job has at most 1048576 ranks");
}

TEST_CASE("the launcher's --cpu and --debug reach the groups", "[bootstrap]") {
  CHECK(complete({{"ACCELERATE_USE_CPU", "True"}}).backend == BackendKind::cpu);
  CHECK(complete({{"ACCELERATE_USE_CPU", "False"}}).backend == BackendKind::automatic);
  CHECK(complete({{"ACCELERATE_USE_CPU", "1"}, {"ACC_BACKEND", "nccl"}}).backend ==
        BackendKind::nccl);
  CHECK(complete({{"ACCELERATE_DEBUG_MODE", "true"}}).check == true);
  CHECK_FALSE(complete({{"ACCELERATE_DEBUG_MODE", "0"}}).check);
  CHECK(complete({{"ACCELERATE_DEBUG_MODE", "1"}, {"ACC_CHECK", "0"}}).check == false);
  GroupOptions own;
  own.backend = BackendKind::nccl;
  CHECK(complete({{"ACCELERATE_USE_CPU", "True"}}, own).backend == BackendKind::nccl);
  CHECK_THROWS_WITH(complete({{"ACCELERATE_USE_CPU", "maybe"}}),
                    "ACCELERATE_USE_CPU=maybe isn't 0 or 1");
}

TEST_CASE("options: the program's word, then the environment's, then the default", "[bootstrap]") {
  CHECK(complete({}).init_timeout == 300s);
  CHECK_FALSE(complete({}).timeout);
  CHECK_FALSE(complete({}).check);
  const auto set = complete({{"ACC_INIT_TIMEOUT", "250ms"},
                             {"ACC_COLLECTIVE_TIMEOUT", "7"},
                             {"ACC_CHECK", "0"},
                             {"ACC_BACKEND", "cpu"}});
  CHECK(set.init_timeout == 250ms);
  CHECK(set.timeout == 7s);
  CHECK(set.check == false);
  CHECK(set.backend == BackendKind::cpu);
  GroupOptions own;
  own.init_timeout = 1s;
  own.check = true;
  own.backend = BackendKind::nccl;
  const auto kept =
      complete({{"ACC_INIT_TIMEOUT", "9"}, {"ACC_CHECK", "0"}, {"ACC_BACKEND", "cpu"}}, own);
  CHECK(kept.init_timeout == 1s);
  CHECK(kept.check == true);
  CHECK(kept.backend == BackendKind::nccl);
  CHECK_THROWS_WITH(complete({{"ACC_CHECK", "maybe"}}), "ACC_CHECK=maybe isn't 0 or 1");
  CHECK_THROWS_WITH(complete({{"ACC_BACKEND", "gloo"}}),
                    "ACC_BACKEND=gloo isn't cpu, nccl or automatic");
  CHECK_THROWS_WITH(complete({{"ACC_INIT_TIMEOUT", "-3"}}),
                    Catch::StartsWith("ACC_INIT_TIMEOUT=-3"));
}
