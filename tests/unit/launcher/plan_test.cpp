#include "launcher/plan.hpp"

#include "tests/unit/launcher/trial.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <csignal>

using namespace acc;
using namespace acc::launcher;
using Words = std::vector<std::string>;

TEST_CASE("N processes asked for are N workers, also on the CPU", "[launcher][plan]") {
  Trial c{{"--cpu", "--num_processes=3", "s.py"}};
  const auto plan = c.planned().plan;
  CHECK(plan.kind == agent::JobKind::elastic);
  CHECK(plan.local_world_size == 3);
  CHECK(plan.env.at("ACCELERATE_USE_CPU") == "True");
  CHECK(plan.env.count("MASTER_PORT") == 0);
}

TEST_CASE("a number that was only guessed starts one process on the CPU", "[launcher][plan]") {
  Trial c{{"--cpu", "s.py"}};
  c.facts.devices = 2;
  CHECK(c.planned().plan.kind == agent::JobKind::process);
}

TEST_CASE("distributed_type NO stays one process", "[launcher][plan]") {
  Trial c{{"--num_processes=2", "s.py"}, "distributed_type: 'NO'\n"};
  const auto plan = c.planned().plan;
  CHECK(plan.kind == agent::JobKind::process);
  CHECK(plan.env.at("MASTER_PORT") == "29500");
}

TEST_CASE("commands follow the original", "[launcher][plan]") {
  Trial single{{"--num_processes=1", "-m", "pkg.mod", "x"}};
  CHECK(single.planned().plan.command == Words{"/usr/bin/python3", "-m", "pkg.mod", "x"});
  Trial several{{"--num_processes=2", "s.py", ""}};
  CHECK(several.planned().plan.command == Words{"/usr/bin/python3", "-u", "s.py", ""});
  Trial direct{{"--num_processes=2", "--no_python", "prog", "x"}};
  CHECK(direct.planned().plan.command == Words{"prog", "x"});
  Trial both{{"--num_processes=1", "-m", "--no_python", "x"}};
  CHECK(both.complaints().find("--module and --no_python") != std::string::npos);
}

TEST_CASE("how the file's program starts counts for no other program of the command line",
          "[launcher][plan]") {
  const std::string two = "distributed_type: MULTI_CPU\nuse_cpu: true\nnum_processes: 2\n";
  Trial direct{{"--no_python", "prog"}, two + "module: true\n"};
  CHECK(direct.planned().plan.command == Words{"prog"});
  Trial module{{"-m", "pkg.mod"}, two + "no_python: true\n"};
  CHECK(module.planned().plan.command == Words{"/usr/bin/python3", "-u", "-m", "pkg.mod"});
  Trial both{{"s.py"}, two + "module: true\nno_python: true\n"};
  CHECK(both.complaints().find("--module and --no_python") != std::string::npos);
}

TEST_CASE("a program runs by itself", "[launcher][plan]") {
  Trial c{{"--num_processes=2", "prog", "x"}};
  c.script = ScriptKind::executable;
  CHECK(c.planned().plan.command == Words{"./prog", "x"});
}

TEST_CASE("a program that is linked with MPICH is wired up, one with Open MPI is warned about",
          "[launcher][plan]") {
  const auto planned = [](std::vector<std::string> flags, MpiLibrary linked) {
    flags.insert(flags.end(), {"--num_processes=2", "./a.out"});
    Trial c{std::move(flags)};
    c.script = ScriptKind::executable;
    c.mpi = linked;
    return c.planned().plan;
  };
  CHECK(planned({}, MpiLibrary::mpich).pmi);
  CHECK_FALSE(planned({"--mpi=none"}, MpiLibrary::mpich).pmi);
  CHECK_FALSE(planned({}, MpiLibrary::none).pmi);
  CHECK(planned({"--mpi=pmi"}, MpiLibrary::none).pmi);
  const auto open = planned({}, MpiLibrary::open_mpi);
  CHECK_FALSE(open.pmi);
  REQUIRE(open.warnings.size() == 1);
  CHECK(open.warnings.front().find("is linked with Open MPI") != std::string::npos);
  CHECK(planned({"--mpi=none"}, MpiLibrary::open_mpi).warnings.empty());
}

TEST_CASE("an uneven count gives the first machines one more", "[launcher][plan]") {
  const auto share = [](const std::string& rank) {
    Trial c{{"--multi_gpu", "--num_processes=5", "--num_machines=2", "--machine_rank=" + rank,
             "--main_process_ip=h", "--main_process_port=1", "s.py"}};
    const auto plan = c.planned().plan;
    return std::pair{plan.local_world_size, plan.first_rank.value()};
  };
  CHECK(share("0") == std::pair{3U, 0U});
  CHECK(share("1") == std::pair{2U, 3U});
}

TEST_CASE("several machines without what they need are refused, all at once", "[launcher][plan]") {
  Trial c{{"--multi_gpu", "--num_processes=2", "--num_machines=3", "s.py"}};
  const auto text = c.complaints();
  CHECK(text.find("--machine_rank") != std::string::npos);
  CHECK(text.find("main process IP") != std::string::npos);
  CHECK(text.find("at least one for each machine") != std::string::npos);
  Trial cpu{{"--cpu", "--num_processes=2", "--num_machines=2", "--machine_rank=0", "s.py"}};
  CHECK(cpu.complaints().find("main process port") != std::string::npos);
}

TEST_CASE("machines on the CPU were asked for the main process IP beside --rdzv_endpoint",
          "[launcher][plan]") {
  const auto complaints = [](const std::string& backend, const std::string& endpoint) {
    return Trial{{"--num_machines=2", "--machine_rank=0", "--num_processes=4",
                  "--rdzv_backend=" + backend, "--rdzv_endpoint=" + endpoint, "s.py"}}
        .complaints();
  };
  CHECK(complaints("c10d", "10.0.0.1:29400").empty());
  CHECK(complaints("tcp", "10.0.0.1").empty());
  CHECK(complaints("static", "10.0.0.1:29400").empty());
  CHECK(complaints("etcd", "10.0.0.1:2379").empty());
  CHECK(complaints("c10d", "").find("main process IP") != std::string::npos);
}

TEST_CASE("a port that the user names is used in every round", "[launcher][plan]") {
  Trial named{{"--num_processes=2", "--main_process_port=29600", "s.py"}};
  CHECK(named.planned().plan.master.port_is_given);
  Trial not_named{{"--num_processes=2", "s.py"}};
  CHECK(!not_named.planned().plan.master.port_is_given);
  CHECK(not_named.planned().plan.master.port == 29500);
  Trial any{{"--num_processes=2", "--main_process_port=0", "s.py"}};
  CHECK(!any.planned().plan.master.port_is_given);
  CHECK(any.planned().plan.master.port != 0);
}

TEST_CASE("a worker that is alone on its machine has all cores, as under torchrun", "[launcher][plan]") {
  const auto threads = [](std::vector<std::string> words, Environment caller = {}) {
    words.emplace_back("s.py");
    Trial trial{words, "", std::move(caller)};
    const auto env = trial.planned().plan.env;
    const auto found = env.find("OMP_NUM_THREADS");
    return found == env.end() ? std::string{"unset"} : found->second;
  };
  CHECK(threads({"--nproc-per-node=1"}) == "unset");
  CHECK(threads({"--standalone"}) == "unset");
  CHECK(threads({"--nproc-per-node=2"}) == "1");
  CHECK(threads({"--nproc-per-node=1", "--num_cpu_threads_per_process=3"}) == "3");
  CHECK(threads({"--num_processes=1"}) == "1");  // Accelerate's
  CHECK(threads({"--nproc-per-node=1", "--cpu"}) != "unset");  // the cores, as is told
  const Environment task{{"SLURM_JOB_ID", "1"},         {"SLURM_STEP_ID", "0"},
                         {"SLURM_PROCID", "0"},         {"SLURM_LOCALID", "0"},
                         {"SLURM_NODEID", "0"},         {"SLURM_NTASKS", "2"},
                         {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_STEP_NUM_NODES", "1"},
                         {"SLURM_NNODES", "1"},         {"SLURM_STEP_TASKS_PER_NODE", "2"}};
  CHECK(threads({}, task) == "1");
}

TEST_CASE("a job of one process had not the name of --rdzv_id", "[launcher][plan]") {
  Trial one{{"--cpu", "--num_processes=1", "--rdzv_id=nightly", "s.py"}};
  CHECK(one.planned().plan.cluster.job == "nightly");
  Trial nameless{{"--cpu", "--num_processes=1", "s.py"}};
  CHECK(nameless.planned().plan.cluster.job == "none");
}

TEST_CASE("a job lost the name of --rdzv_id where its port was taken", "[launcher][plan]") {
  Trial named{{"--num_processes=2", "--rdzv_id=nightly", "s.py"}};
  named.facts.taken = {29500};
  CHECK(named.planned().plan.cluster.standalone);
  CHECK(named.planned().plan.cluster.job == "nightly");
  Trial nameless{{"--num_processes=2", "s.py"}};
  nameless.facts.taken = {29500};
  CHECK(nameless.planned().plan.cluster.job.size() == 36);  // a random UUID
  Trial alone{{"--standalone", "--nproc-per-node=2", "--rdzv_id=nightly", "s.py"}};
  CHECK(alone.planned().plan.cluster.job.size() == 36);  // torchrun's
}

TEST_CASE("a taken port becomes a free one on one machine, and an error on several",
          "[launcher][plan]") {
  Trial one{{"--num_processes=2", "s.py"}};
  one.facts.taken = {29500};
  const auto plan = one.planned().plan;
  CHECK(plan.cluster.standalone);
  CHECK(plan.master.port != 29500);
  CHECK(plan.warnings.front().find("29500 is already in use") != std::string::npos);
  Trial two{{"--multi_gpu", "--num_processes=2", "--num_machines=2", "--machine_rank=0",
             "--main_process_ip=h", "s.py"}};
  two.facts.taken = {29500};
  CHECK(two.complaints().find("in use") != std::string::npos);
  two.words[3] = "--machine_rank=1";
  CHECK(two.complaints().empty());
}

TEST_CASE("who gave an endpoint with port 0 was warned of port 29500", "[launcher][plan]") {
  Trial c{{"--nnodes=1", "--nproc_per_node=2", "--rdzv_backend=c10d", "--rdzv_endpoint=localhost:0",
           "s.py"}};
  c.facts.taken = {29500};
  const auto plan = c.planned().plan;
  CHECK(plan.warnings.empty());
  CHECK(plan.master.port != 29500);
}

TEST_CASE("our own flags reach the plan", "[launcher][plan]") {
  Trial c{{"--num_processes=2", "--grace=5", "--preempt_signals=TERM,USR1", "--restart_delay=0",
           "--no_restart_codes=2,64-78", "--log_rotate_size=1M", "--capture=no", "--color=never",
           "--stdin=1", "--report=r.json", "--max_no_progress=3", "--restart_refill=1h", "-r", "1",
           "--local_ranks_filter=0", "--progress_file=saved", "s.py"}};
  const auto plan = c.planned().plan;
  CHECK(plan.stop.grace == Millis{5000});
  CHECK(plan.stop.preempt_signals == std::vector<int>{SIGTERM, SIGUSR1});
  CHECK(plan.restart.delay_base == Millis{0});
  CHECK(plan.restart.never_retry.size() == 2);
  CHECK(plan.restart.max_no_progress == 3);
  CHECK(plan.restart.has_progress_file);
  CHECK(plan.progress_file == "saved");
  CHECK(plan.restart.refill_after == Millis{3'600'000});
  CHECK(plan.output.rotate_bytes == 1U << 20U);
  CHECK(plan.output.capture == agent::Choice::no);
  CHECK(plan.output.color == agent::Choice::no);
  CHECK(plan.output.redirects.all == agent::Streams::out);
  CHECK(plan.output.console == std::vector<LocalRank>{LocalRank{0}});
  CHECK(plan.stdin_rank == LocalRank{1});
  CHECK(plan.report_file == "r.json");
}

TEST_CASE("metrics at any free port of all addresses were refused", "[launcher][plan]") {
  const auto metrics = [](const std::string& where) {
    return Trial{{"--num_processes=2", "--metrics=" + where, "s.py"}}.planned().plan.metrics;
  };
  CHECK(metrics("0")->port == 0);
  CHECK(metrics("0.0.0.0:0")->host == "0.0.0.0");
  CHECK(metrics("[::]:0")->host == "::");
  CHECK(metrics("[::]:9400")->port == 9400);
}

TEST_CASE("the prefix of lines comes from torchrun's variable", "[launcher][plan]") {
  Trial c{
      {"--num_processes=2", "s.py"}, "", {{"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "<${rank}>"}}};
  CHECK(c.planned().plan.output.prefix == "<${rank}>");
}

TEST_CASE("a torchrun line has ranks even for one worker, and -u", "[launcher][plan]") {
  Trial c{{"--nproc-per-node=1", "s.py"}};
  const auto plan = c.planned().plan;
  CHECK(plan.kind == agent::JobKind::elastic);
  CHECK(plan.command[1] == "-u");
  Trial alone{{"--standalone", "--nproc-per-node=2", "s.py"}};
  CHECK(alone.planned().plan.cluster.standalone);
  CHECK(alone.planned().plan.warnings.empty());
  Trial meeting{
      {"--nnodes=2", "--node-rank=1", "--nproc-per-node=2", "--rdzv-endpoint=host:1234", "s.py"}};
  CHECK(nlohmann::json::parse(meeting.printed())["launch"]["rdzv_endpoint"] == "host:1234");
  CHECK(meeting.planned().plan.master.addr == "host");
  CHECK(meeting.planned().plan.first_rank == Rank{2});
}

TEST_CASE("what this version can't run is planned, but not started", "[launcher][plan]") {
  const auto refusal = [](Words words) {
    Trial c{std::move(words)};
    c.facts.taken = {29500};  // by a job that was started before: this one stands alone, too
    auto merged = c.merged();
    const auto planned = make_plan(
        merged.spec, c.facts,
        {c.environment, "/job", "python3", ScriptKind::python, MpiLibrary::none, "mpirun"});
    std::string text;
    for (const auto& complaint : check_runnable(merged.spec, planned.plan)) text += complaint.what;
    return text;
  };
  CHECK(refusal({"--num_processes=2", "s.py"}).empty());
  CHECK(refusal({"--num_processes=2", "--rdzv_backend=pigeon", "s.py"})
            .find("no rendezvous backend 'pigeon'") != std::string::npos);
  CHECK(refusal({"--standalone", "--nproc_per_node=2", "--rdzv_backend=pigeon", "s.py"}).empty());
  CHECK(refusal({"--multi_gpu", "s.py"}).find("no worker to start") != std::string::npos);
}

TEST_CASE("local ranks that this machine doesn't have are named", "[launcher][plan]") {
  Trial many{{"--num_processes=2", "--tee=1:3,5:3", "--redirects=2:1", "--local_ranks_filter=0,7",
              "--stdin=2", "s.py"}};
  const auto text = many.complaints();
  CHECK(text.find("--tee: '1:3,5:3' names local rank 5, but this machine has local ranks 0..1") !=
        std::string::npos);
  CHECK(text.find("--redirects: '2:1' names local rank 2") != std::string::npos);
  CHECK(text.find("--local_ranks_filter: '0,7' names local rank 7") != std::string::npos);
  CHECK(text.find("--stdin: '2' names local rank 2") != std::string::npos);
  Trial one{{"--cpu", "--num_processes=1", "--tee=1:3", "s.py"}};
  CHECK(one.complaints().find("only local rank 0") != std::string::npos);
  Trial fine{{"--num_processes=2", "--tee=1:3", "--local_ranks_filter=1", "--stdin=1", "s.py"}};
  CHECK(fine.complaints().empty());
}

TEST_CASE("values out of range are found in a job that can't be planned", "[launcher][plan]") {
  Trial c{{"--num_processes=two", "--main_process_port=70000", "--tee=9", "s.py"},
          "distributed_type: MULTI_GPU\nmax_restarts: -1\n"};
  std::string text;
  for (const auto& complaint : check_values(c.merged().spec, {})) text += complaint.what + "\n";
  CHECK(text.find("cfg.yaml:2: max_restarts: -1 is out of range") != std::string::npos);
  CHECK(text.find("--tee: '9' names no streams") != std::string::npos);
  CHECK(text.find("--main_process_port: 70000 is not a port") != std::string::npos);
}

TEST_CASE("TPUs and plug-ins are refused", "[launcher][plan]") {
  Trial tpu{{"--tpu", "--num_processes=8", "s.py"}};
  CHECK(tpu.complaints().find("TPU") != std::string::npos);
  Trial plugin{{"--nproc-per-node=1", "--logs-specs=x", "s.py"}};
  CHECK(plugin.complaints().find("plug-in") != std::string::npos);
}

TEST_CASE(
    "a flag that no machine could have was refused with the code for a machine that hasn't it",
    "[launcher][plan]") {
  const auto is_of_words = [](Trial trial) {
    const auto complaints = trial.planned().complaints;
    return !complaints.empty() && std::ranges::none_of(complaints, [](const Error& one) {
      return one.code == Errc::unavailable;
    });
  };
  CHECK(is_of_words(Trial{{"--nproc-per-node=1", "--virtual-local-rank", "s.py"}}));
  CHECK(is_of_words(Trial{{"--nproc-per-node=1", "--logs-specs=x", "s.py"}}));
  CHECK(is_of_words(Trial{{"--tpu", "--num_processes=8", "s.py"}}));
  CHECK(is_of_words(Trial{{"s.py"}, "distributed_type: TPU\n"}));
}

TEST_CASE("the plan prints as JSON, whatever bytes the arguments hold", "[launcher][plan]") {
  Trial c{{"--num_processes=2", "s.py", "\xff\xfe"}};
  const auto json = nlohmann::json::parse(c.printed());
  CHECK(json["kind"] == "elastic");
  CHECK(json["launch"]["rdzv_conf"]["rank"] == 0);
  CHECK(json["launch"]["log_dir"].is_null());
  CHECK(json["restart"]["max_restarts"] == 0);
}

TEST_CASE("env holds only what changes", "[launcher][plan]") {
  Trial c{{"--num_processes=1", "s.py"}, "", {{"ACCELERATE_MIXED_PRECISION", "no"}}};
  CHECK(c.planned().plan.env.count("ACCELERATE_MIXED_PRECISION") == 0);
}

TEST_CASE("numbers beyond reason are refused, not wrapped around", "[launcher][plan]") {
  Trial many{{"--num_processes=99999999999", "s.py"}};
  CHECK(many.complaints().find("more than a million") != std::string::npos);
  Trial port{{"--num_processes=2", "--main_process_port=70000", "s.py"}};
  CHECK(port.complaints().find("not a port") != std::string::npos);
  Trial negative{{"--num_processes=2", "--max_restarts=-1", "s.py"}};
  CHECK(negative.complaints().find("--max_restarts: -1") != std::string::npos);
}

TEST_CASE("the deepspeed program finds machine 0 by itself, from its host file",
          "[launcher][plan]") {
  Trial c{{"s.py"},
          "distributed_type: DEEPSPEED\nnum_processes: 16\nnum_machines: 2\ndeepspeed_config:\n  "
          "deepspeed_hostfile: hosts\n"};
  c.facts.deepspeed_version = "0.15.0";
  const auto planned = c.planned();
  CHECK(planned.complaints.empty());
  CHECK(planned.plan.kind == agent::JobKind::deepspeed);
  CHECK(planned.plan.command == Words{"deepspeed", "--hostfile", "hosts", "--no_local_rank",
                                      "--launcher", "pdsh", "--num_gpus", "8", "--master_port",
                                      "29500", "s.py"});
}
