#include "launcher/merge.hpp"

#include "launcher/key_table.hpp"
#include "launcher/user_messages.hpp"
#include "tests/unit/launcher/trial.hpp"

#include <catch2/catch.hpp>

using namespace acc;
using namespace acc::launcher;
using namespace acc::launcher::literals;

TEST_CASE("a flag beats the file, the file beats the default, and each value knows who set it",
          "[launcher][merge]") {
  Trial c{{"--main_process_port=1", "s.py"},
          "distributed_type: MULTI_GPU\nnum_processes: 4\nmain_process_port: 2\n"};
  const auto spec = c.merged().spec;
  CHECK(spec.text("main_process_port"_key) == "1");
  CHECK(spec["main_process_port"_key].origin == "--main_process_port");
  CHECK(spec.text("num_processes"_key) == "4");
  CHECK(spec["num_processes"_key].origin == "cfg.yaml:2");
  CHECK(spec["grace"_key].source == Source::by_default);
}

TEST_CASE("an option equal to its default still beats a section", "[launcher][merge]") {
  Trial c{{"--fsdp_sharding_strategy", "FULL_SHARD", "s.py"},
          "distributed_type: FSDP\nnum_processes: 2\nfsdp_config:\n  sharding_strategy: 1\n"};
  CHECK(c.merged().spec.text("fsdp_sharding_strategy"_key) == "FULL_SHARD");
}

TEST_CASE("without a file what is missing is guessed and told", "[launcher][merge]") {
  Trial c{{"s.py"}};
  c.facts.devices = 2;
  const auto spec = c.merged().spec;
  CHECK(spec.defaulted.size() == 4);
  CHECK(spec.multi_gpu_was_guessed);
  CHECK(spec["num_processes"_key].source == Source::guessed);
}

TEST_CASE("complaints of flags and file come together, each with its place", "[launcher][merge]") {
  Trial c{{"--num_processes=x", "s.py"},
          "distributed_type: MULTI_FPGA\nmax_restarts: many\nwat: 1\nmixed_precision: no\n"};
  const auto text = c.complaints();
  CHECK(text.find("'x' is not a whole number") != std::string::npos);
  CHECK(text.find("cfg.yaml:1: distributed_type 'MULTI_FPGA'") != std::string::npos);
  CHECK(text.find("cfg.yaml:2: max_restarts: 'many'") != std::string::npos);
  CHECK(text.find("cfg.yaml:3: unknown key 'wat'") != std::string::npos);
  CHECK(text.find("cfg.yaml:4: mixed_precision: unquoted no") != std::string::npos);
}

TEST_CASE("an unknown key, a bad choice, a bad number and a bad flag hide none of each other",
          "[launcher][merge]") {
  Trial c{{"--num_machine", "2", "--grace=fast", "s.py"},
          "distributed_type: MULTI_GPU\nnum_processes: two\nmixed_precision: fp64\nwat: 1\n"
          "dynamo_config:\n  backend: fast\ngpu_ids: '1'\nrdzv_conf: x\n"};
  const auto text = c.complaints();
  for (const auto* part :
       {"unrecognized arguments: --num_machine (did you mean --num_machines?)",
        "--grace: 'fast' is not a duration", "cfg.yaml:2: num_processes: 'two'",
        "cfg.yaml:3: mixed_precision: 'fp64' is not one of", "cfg.yaml:4: unknown key 'wat'",
        "cfg.yaml:6: dynamo_backend: 'fast' is not a dynamo backend",
        "cfg.yaml:8: rdzv_conf: entry 'x' is not KEY=VALUE"}) {
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
  }
  INFO(text);
  CHECK(text.find("gpu_ids") == std::string::npos);  // of one machine, which may be wrong
}

TEST_CASE("what follows from a value that was refused isn't guessed", "[launcher][merge]") {
  const auto count = [](std::vector<std::string> words, std::string yaml = {}) {
    Trial c{std::move(words), std::move(yaml)};
    const auto text = c.complaints();
    UNSCOPED_INFO(text);
    return std::ranges::count(text, '\n');
  };
  // The mode isn't known, and so neither is whether an address is needed.
  CHECK(count({"s.py"}, "distributed_type: MULTI_GPUS\nnum_machines: 2\n") == 1);
  CHECK(count({"s.py"}, "distributed_typ: MULTI_GPU\nnum_machines: 2\n") == 1);
  CHECK(count({"s.py"}, "distributed_type: MULTI_GPU\nnum_proceses: 4\n") == 1);
  CHECK(count({"--nnodes=two", "--nproc-per-node=2", "s.py"}) == 1);
  CHECK(count({"--nproc-per-node=many", "s.py"}, "distributed_type: MULTI_GPU\n") == 1);
  CHECK(count({"--nnodes=2", "--master_adr=h", "s.py"}) == 1);
  CHECK(count({"--nnodes=1:2", "--rdzv_backend", "--rdzv_endpoint=h:1", "s.py"}) == 1);
  CHECK(count({"--multi_gpu", "--num_processes=-3", "s.py"}) == 1);
}

TEST_CASE("a negative count is refused in every mode", "[launcher][merge]") {
  Trial flag{{"--num_processes", "-2", "s.py"}};
  CHECK(flag.complaints() == "--num_processes: -2 is no count: write a number from 1\n");
  Trial file{{"s.py"}, "distributed_type: 'NO'\nnum_machines: -1\n"};
  CHECK(file.complaints() == "cfg.yaml:2: num_machines: -1 is no count: write a number from 1\n");
  Trial none{{"--num_processes=0", "s.py"}};  // one plain process, as the original
  CHECK(none.complaints().empty());
}

TEST_CASE("the flag --standalone and several machines contradict each other", "[launcher][merge]") {
  Trial c{{"--standalone", "--nnodes=2", "--nproc-per-node=1", "s.py"}};
  CHECK(c.complaints() ==
        "--standalone is a job on this machine alone, but --nnodes says 2 machines: leave one of "
        "them out\n");
}

TEST_CASE("TPU is answered as XLA is", "[launcher][merge]") {
  Trial c{{"s.py"}, "distributed_type: TPU\nnum_processes: 8\n"};
  CHECK(c.complaints() ==
        "cfg.yaml:1: distributed_type 'TPU': TPUs are not supported: start TPU jobs with "
        "`accelerate launch`\n");
}

TEST_CASE("a key that was removed from Accelerate gets a note", "[launcher][merge]") {
  Trial c{{"s.py"}, "distributed_type: 'NO'\nipex_config:\n  ipex: true\n"};
  CHECK(c.complaints().empty());
  CHECK(c.merged().spec.notes.at(0).find("'ipex_config' has no effect: it was removed") !=
        std::string::npos);
}

TEST_CASE("an argument that YAML reads as nothing or as a mapping is no word",
          "[launcher][merge]") {
  Trial c{{}, "distributed_type: 'NO'\nscript: a.py\nscript_args:\n- null\n- --lr: 0.1\n- x\n"};
  const auto text = c.complaints();
  CHECK(text.find("cfg.yaml:4: script_args: null is no word") != std::string::npos);
  CHECK(text.find("cfg.yaml:5: script_args: a mapping is no word") != std::string::npos);
}

TEST_CASE("quotes are advised only where they help", "[launcher][merge]") {
  Trial c{{"s.py"}, "distributed_type: 'NO'\ntee: yes\nmain_process_ip: no\ngrace: off\n"};
  const auto text = c.complaints();
  CHECK(text.find("cfg.yaml:2: tee: 'yes' names no streams") != std::string::npos);
  CHECK(text.find("cfg.yaml:3: main_process_ip: unquoted no is a boolean in YAML, not ADDRESS: "
                  "write 'no' in quotes") != std::string::npos);
  CHECK(text.find("cfg.yaml:4: grace: 'off' is not a duration") != std::string::npos);
}

TEST_CASE("an address in a file loses its brackets", "[launcher][merge]") {
  for (const auto* address : {"'[::1]'", "[::1]", "::1"}) {
    Trial c{{"s.py"},
            std::string{"distributed_type: MULTI_GPU\nnum_processes: 2\nnum_machines: 2\n"
                        "main_process_port: 29600\nmain_process_ip: "} +
                address + "\n"};
    INFO(address);
    const auto planned = c.planned();
    CHECK(planned.complaints.empty());
    CHECK(c.printed().find(R"("rdzv_endpoint": "[::1]:29600")") != std::string::npos);
    CHECK(planned.plan.master.addr == "::1");
    CHECK(planned.plan.cluster.control_host == "::1");
  }
}

TEST_CASE("an unquoted NO is taken as NO only where num_processes is given", "[launcher][merge]") {
  Trial bare{{"s.py"}, "distributed_type: NO\nuse_cpu: true\n"};
  CHECK(bare.complaints().find("'NO' in quotes, or give --num_processes") != std::string::npos);
  Trial given{{"s.py"}, "distributed_type: NO\nnum_processes: 1\n"};
  CHECK(given.complaints().empty());
  CHECK(given.merged().spec.notes.size() == 1);
}

TEST_CASE("a number beside a file with distributed_type NO was dropped without a word",
          "[launcher][merge]") {
  const std::string no = "num_machines: 1\nnum_processes: 1\ndistributed_type: 'NO'\n";
  const auto notes = [](std::vector<std::string> words, const std::string& yaml,
                        const Environment& environment = {}) {
    words.emplace_back("s.py");
    return Trial{std::move(words), yaml, environment}.merged().spec.notes;
  };
  using Notes = std::vector<std::string>;
  CHECK(notes({"--num_processes=3"}, no) ==
        Notes{"--num_processes 3 has no effect: cfg.yaml:3 says distributed_type: NO, one process "
              "without RANK; add --multi_gpu, --cpu or --nproc_per_node N"});
  CHECK(notes({"--num-processes", "3", "--num_machines=2", "--config_file=cfg.yaml"}, no) ==
        Notes{"--num-processes 3 and --num_machines 2 have no effect: cfg.yaml:3 says "
              "distributed_type: NO, one process without RANK; add --multi_gpu or "
              "--nproc_per_node N"});
  CHECK(notes({"--num_processes=1"}, no).empty());
  CHECK(
      notes({}, "distributed_type: 'NO'\nnum_processes: 3\n") ==
      Notes{"cfg.yaml:2: num_processes 3 has no effect: cfg.yaml:1 says distributed_type: NO, one "
            "process without RANK; add --multi_gpu, --cpu or --nproc_per_node N"});
  CHECK(notes({"--num_processes=3"}, "distributed_type: MULTI_CPU\n").empty());
  CHECK(notes({"--num_processes=3"}, "").empty());
  for (const auto* flag : {"--multi_gpu", "--use_fsdp", "--nproc_per_node=3"})
    CHECK(notes({flag, "--num_machines=2"}, no).empty());
}

TEST_CASE("the flag --tpu on a machine with several GPUs was a job on the GPUs", "[launcher][merge]") {
  Trial c{{"--tpu", "s.py"}};
  c.facts.devices = 2;
  CHECK(c.complaints().find("TPUs are not supported") != std::string::npos);
}

TEST_CASE("no workers asked for silently became one plain process", "[launcher][merge]") {
  Trial flag{{"--cpu", "--num_processes=0", "s.py"}};
  Trial file{{"s.py"}, "distributed_type: 'NO'\nnum_processes: 0\n"};
  for (auto* c : {&flag, &file}) {
    CHECK(c->complaints().empty());
    const auto notes = c->merged().spec.notes;
    REQUIRE(notes.size() == 1);
    CHECK(notes[0].find("one plain process without RANK") != std::string::npos);
  }
  Trial guessed{{"--cpu", "s.py"}};
  CHECK(guessed.merged().spec.notes.empty());
}

TEST_CASE("no threads a worker were passed on to OpenMP without a word", "[launcher][merge]") {
  for (const auto* count : {"0", "-2"}) {
    Trial c{{"--cpu", "--num_processes=2", std::string{"--num_cpu_threads_per_process="} + count,
             "s.py"}};
    REQUIRE(c.merged().spec.notes.size() == 1);
    CHECK(c.merged().spec.notes[0].find(std::string{"--num_cpu_threads_per_process is "} + count) ==
          0);
  }
  Trial some{{"--cpu", "--num_processes=2", "--num_cpu_threads_per_process=4", "s.py"}};
  CHECK(some.merged().spec.notes.empty());
}

TEST_CASE("a mode flag switches off what the file says of the mode", "[launcher][merge]") {
  Trial c{{"--multi_gpu", "s.py"},
          "distributed_type: FSDP\nnum_processes: 2\nparallelism_config:\n  x: 1\n"};
  const auto spec = c.merged().spec;
  CHECK(!spec.flag("use_fsdp"_key));
  CHECK(!spec.flag("use_parallelism_config"_key));
}

TEST_CASE("bf16 was refused on GPUs that emulate it", "[launcher][merge]") {
  Trial option{{"--mixed_precision=bf16", "s.py"}, "distributed_type: 'NO'\n"};
  option.facts.devices = 2;
  option.facts.computes_bf16 = false;
  CHECK(option.complaints().empty());
  REQUIRE(option.merged().spec.notes.size() == 1);
  CHECK_THAT(option.merged().spec.notes[0], Catch::Contains("computes bf16 by emulation"));
  option.facts.computes_bf16 = true;
  CHECK(option.merged().spec.notes.empty());
  Trial file{{"s.py"}, "distributed_type: 'NO'\nmixed_precision: bf16\n"};
  file.facts.devices = 2;
  file.facts.computes_bf16 = false;
  CHECK(file.complaints().empty());
  CHECK(file.merged().spec.notes.empty());  // as the original, which looks at the flag alone
}

TEST_CASE("torchrun counts workers per machine", "[launcher][merge]") {
  Trial c{{"--nproc-per-node=2", "--nnodes=3", "s.py"}};
  const auto spec = c.merged().spec;
  CHECK(spec.text("num_processes"_key) == "6");
  CHECK(spec.text("num_machines"_key) == "3");
  CHECK(spec.defaulted.empty());
  Trial mixed{{"--nproc-per-node=2", "--num_processes=4", "s.py"}};
  CHECK(mixed.complaints().find("use one of the two ways") != std::string::npos);
  Trial gpu{{"--nproc-per-node=gpu", "s.py"}};
  CHECK(gpu.complaints().find("no GPU") != std::string::npos);
  Trial automatic{{"--nproc-per-node=auto", "s.py"}};
  CHECK(automatic.merged().spec.text("num_processes"_key) == "32");
}

TEST_CASE("the flag --num_processes did nothing beside the file's nproc_per_node",
          "[launcher][merge]") {
  const std::string file = "distributed_type: MULTI_CPU\nnproc_per_node: 3\nnnodes: 2\n";
  const auto counts = [&](std::vector<std::string> words) {
    words.emplace_back("s.py");
    Trial trial{words, file};
    const auto spec = trial.merged().spec;
    return spec.text("num_processes"_key) + " on " + spec.text("num_machines"_key);
  };
  CHECK(counts({}) == "6 on 2");
  CHECK(counts({"--num_processes=8"}) == "8 on 2");
  CHECK(counts({"--num_processes=2", "--num_machines=1"}) == "2 on 1");
  CHECK(counts({"--num_machines=4"}) == "12 on 4");
}

TEST_CASE("a torchrun line does not read the default config file", "[launcher][merge]") {
  const std::vector<std::string> torchrun{"--nproc-per-node=2", "s.py"};
  const std::vector<std::string> plain{"s.py"};
  CHECK(!wants_default_config(parse_command_line(torchrun)));
  CHECK(wants_default_config(parse_command_line(plain)));
}

TEST_CASE("a torchrun line without numbers is one worker with a rank, as there",
          "[launcher][merge]") {
  using Flags = std::vector<std::string>;
  const Flags line =
      GENERATE(Flags{"--standalone"}, Flags{"--stand", "--max_restarts=3"},
               Flags{"--rdzv_backend=c10d", "--rdzv_endpoint=localhost:0", "--rdzv_id=1"});
  auto words = line;
  words.emplace_back("s.py");
  CAPTURE(words);
  CHECK_FALSE(wants_default_config(parse_command_line(words)));
  Trial trial{words};
  const auto& spec = trial.merged().spec;
  CHECK(trial.complaints().empty());
  CHECK(spec.text("nproc_per_node"_key) == "1");
  CHECK(spec.integer("num_processes"_key) == 1);
  CHECK(spec.defaulted.empty());
}

TEST_CASE("what Accelerate's lines share with torchrun's says nothing of the number",
          "[launcher][merge]") {
  using Flags = std::vector<std::string>;
  const Flags line = GENERATE(
      Flags{"--max_restarts=3"}, Flags{"--tee=3"}, Flags{"--rdzv_backend=c10d"},
      Flags{"--machine_rank=0"}, Flags{"--rdzv_id=nightly"}, Flags{"--standalone", "--num_processes=4"},
      Flags{"--standalone", "--cpu"}, Flags{"--rdzv_endpoint=a:1", "--mixed_precision=bf16"},
      // Recommended to users of Accelerate's files, too, and ours.
      Flags{"--master_port=1"}, Flags{"--node_rank=0", "--master_addr=a"}, Flags{"--node_name=a"});
  auto words = line;
  words.emplace_back("s.py");
  CAPTURE(words);
  Trial trial{words};
  CHECK_FALSE(trial.merged().spec.is_given("nproc_per_node"_key));
}

TEST_CASE("a PyTorchJob's number is that of a torchrun line, too", "[launcher][merge]") {
  Trial trial{{"--standalone", "s.py"}, "", {{"PET_NPROC_PER_NODE", "4"}, {"PET_NNODES", "1"}}};
  CHECK(trial.merged().spec.integer("num_processes"_key) == 4);
}

TEST_CASE("a file can be a whole job", "[launcher][merge]") {
  Trial c{{},
          "distributed_type: MULTI_CPU\nnum_processes: 2\nscript: train.py\nscript_args: [--lr, "
          "3e-4, --flag, no]\nmax_restarts: 3\n"};
  const auto spec = c.merged().spec;
  CHECK(spec.script == "train.py");
  CHECK(spec.script_args == std::vector<std::string>{"--lr", "3e-4", "--flag", "no"});
  CHECK(spec.text("max_restarts"_key) == "3");
  Trial bad{{}, "distributed_type: 'NO'\nscript: a.py\nscript_args: --lr 1\n"};
  CHECK(bad.complaints().find("script_args: '--lr 1' is not a list of words") != std::string::npos);
}

TEST_CASE("arguments of a file's script were left out for another script without a word",
          "[launcher][merge]") {
  const std::string file = "distributed_type: MULTI_CPU\nnum_processes: 2\nscript: train.py\n";
  Trial trial{{"other.py", "--lr", "1"}, file + "script_args: [--lr, 2]\n"};
  const auto spec = trial.merged().spec;
  CHECK(spec.script_args == std::vector<std::string>{"--lr", "1"});
  REQUIRE(spec.notes.size() == 1);
  CHECK(spec.notes[0].starts_with("cfg.yaml:4: script_args has no effect"));
  CHECK(Trial{{"other.py"}, file + "script_args: []\n"}.merged().spec.notes.empty());
  CHECK(Trial{{"other.py"}, file}.merged().spec.notes.empty());
}

TEST_CASE("threads come from the caller, or from the cores on the CPU", "[launcher][merge]") {
  Trial cores{{"--cpu", "--num_processes=4", "s.py"}};
  CHECK(cores.merged().spec.text("num_cpu_threads_per_process"_key) == "4");
  Trial caller{{"--cpu", "--num_processes=4", "s.py"}, "", {{"OMP_NUM_THREADS", "3"}}};
  CHECK(caller.merged().spec.text("num_cpu_threads_per_process"_key) == "3");
  Trial broken{{"--num_processes=1", "s.py"}, "", {{"OMP_NUM_THREADS", "4x"}}};
  CHECK(broken.complaints().find("OMP_NUM_THREADS: '4x'") != std::string::npos);
}

TEST_CASE("a blank beside the number of workers is no matter, as in torchrun",
          "[launcher][merge]") {
  Trial trial{{"--nproc_per_node", "2 ", "s.py"}};
  CHECK(trial.complaints().empty());
  CHECK(trial.planned().plan.local_world_size == 2);
}

TEST_CASE("an empty OMP_NUM_THREADS, or one of nested levels, refused the job",
          "[launcher][merge]") {
  for (const char* threads : {"", " ", "4,2"})
    for (const char* count : {"--num_processes=2", "--nproc_per_node=2"}) {
      Trial trial{{count, "s.py"}, "", {{"OMP_NUM_THREADS", threads}}};
      CHECK(trial.complaints().empty());
      CHECK_FALSE(trial.planned().plan.env.contains("OMP_NUM_THREADS"));  // the caller's stays
    }
}

TEST_CASE("a torchrun line's workers had half of torchrun's time to save", "[launcher][merge]") {
  const auto grace = [](std::vector<std::string> words, Environment environment = {}) {
    return Trial{std::move(words), "", std::move(environment)}.planned().plan.stop.grace;
  };
  const Environment longer{{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "40"}};
  CHECK(grace({"--nproc_per_node=2", "s.py"}) == Millis{30'000});
  CHECK(grace({"--standalone", "s.py"}) == Millis{30'000});
  CHECK(grace({"--num_processes=2", "s.py"}) == Millis{15'000});
  CHECK(grace({"--nproc_per_node=2", "s.py"}, longer) == Millis{40'000});
  CHECK(grace({"--num_processes=2", "s.py"}, longer) == Millis{40'000});
  CHECK(grace({"--nproc_per_node=2", "--grace=5", "s.py"}, longer) == Millis{5'000});
  Trial bad{{"--nproc_per_node=2", "s.py"}, "", {{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "soon"}}};
  CHECK(bad.complaints().find("TORCH_ELASTIC_SHUTDOWN_TIMEOUT") != std::string::npos);
}

TEST_CASE("PET_ variables reach what has no option in the original", "[launcher][merge]") {
  Trial c{{"--multi_gpu", "--num_processes=2", "s.py"},
          "",
          {{"PET_RDZV_ID", "job7"}, {"PET_MAX_RESTARTS", "4"}}};
  const auto spec = c.merged().spec;
  CHECK(spec.text("rdzv_id"_key) == "job7");
  CHECK(spec.text("max_restarts"_key) == "0");
}

TEST_CASE("settings that the original's file ignores take effect", "[launcher][merge]") {
  Trial c{{"s.py"},
          "distributed_type: MULTI_GPU\nnum_processes: 2\nrdzv_backend: c10d\nenable_cpu_affinity: "
          "true\n"};
  const auto spec = c.merged().spec;
  CHECK(spec.text("rdzv_backend"_key) == "c10d");
  CHECK(spec.flag("enable_cpu_affinity"_key));
}

TEST_CASE("a typo in a section and a key given twice are noted, not refused", "[launcher][merge]") {
  Trial c{{"s.py"},
          "distributed_type: FSDP\nnum_processes: 2\nfsdp_config:\n  fsdp_versoin: 2\nfp8_config:\n"
          "  fp8_new: 1\ngrace: 5\ngrace: 6\n"};
  const auto merged = c.merged();
  CHECK(merged.complaints.empty());
  CHECK(merged.spec.notes ==
        std::vector<std::string>{
            "cfg.yaml:8: 'grace' stands in line 7 already: the last one counts",
            "cfg.yaml:4: fsdp_config: 'fsdp_versoin' is no known key and has no effect (did you "
            "mean fsdp_version?)"});
  CHECK(merged.spec.text("grace"_key) == "6");
}

TEST_CASE("a bad value is one complaint, not also a missing one", "[launcher][merge]") {
  Trial file{{"s.py"}, "distributed_type: MULTI_GPU\nnum_processes: 2.0\n"};
  CHECK(file.merged().complaints.size() == 1);
  Trial flag{{"--num_processes=two", "s.py"}, "distributed_type: MULTI_GPU\n"};
  CHECK(flag.merged().complaints.size() == 1);
}

TEST_CASE("an unquoted 1:3 is a number in YAML and told so", "[launcher][merge]") {
  Trial c{{"s.py"}, "distributed_type: 'NO'\ntee: 1:3\nnnodes: 1:2\n"};
  const auto text = c.complaints();
  CHECK(text.find("cfg.yaml:2: tee: '63' names no streams: quote it in YAML: '1:3'") !=
        std::string::npos);
  CHECK(text.find("cfg.yaml:3: nnodes: '62' names no machines: quote it in YAML: '1:2'") !=
        std::string::npos);
}

TEST_CASE("an unquoted rdzv_id: 12:30 became 750 without a word", "[launcher][merge]") {
  Trial c{{"s.py"}, "distributed_type: 'NO'\nrdzv_id: 12:30\nlog_dir: 1:30.5\n"};
  const auto text = c.complaints();
  CHECK(text.find("cfg.yaml:2: rdzv_id: '750' is what YAML reads there: quote it in YAML: "
                  "'12:30'") != std::string::npos);
  CHECK(text.find("cfg.yaml:3: log_dir: '90.5' is what YAML reads there: quote it in YAML: "
                  "'1:30.5'") != std::string::npos);
  // Numbers without a colon are text as they are, and durations may be written so.
  Trial others{{"s.py"}, "distributed_type: 'NO'\nrdzv_id: 750\ngrace: 1:30\n"};
  CHECK(others.complaints().empty());
  CHECK(others.merged().spec.text("rdzv_id"_key) == "750");
}

TEST_CASE("a tilde in the file is the home folder, the script shows where it is from",
          "[launcher][merge]") {
  Trial c{{"s.py", "--lr", "1"},
          "distributed_type: 'NO'\nlog_dir: ~/logs\nreport: ~x\n",
          {{"HOME", "/home/me"}}};
  const auto spec = c.merged().spec;
  CHECK(spec.text("log_dir"_key) == "/home/me/logs");
  Trial flag{{"--log_dir=~/logs", "s.py"}, "", {{"HOME", "/home/me"}}};
  CHECK(flag.merged().spec.text("log_dir"_key) == "/home/me/logs");
  Trial homeless{{"--log_dir=~/logs", "s.py"}};  // whose home the list of users knows
  CHECK(homeless.merged().spec.text("log_dir"_key).starts_with("/"));
  CHECK(spec.text("report"_key) == "~x");
  CHECK(spec.text("script"_key) == "s.py");
  CHECK(spec.text("script_args"_key) == "['--lr', '1']");
}

TEST_CASE("a list or a mapping in the file is not taken for one value", "[launcher][merge]") {
  Trial c{{"s.py"},
          "distributed_type: [FSDP]\nnum_processes: [1]\nlog_dir: [a, b]\nnum_machines: {a: 1}\n"
          "mixed_precision: [no]\nuse_cpu: [true]\ngpu_ids: [[0]]\ntee: {0: 1}\n"
          "fsdp_config:\n  version: [2]\n  fsdp_offload_params: {a: 1}\n"};
  CHECK(c.complaints() ==
        "cfg.yaml:1: distributed_type: ['FSDP'] is a list: write the value alone, without brackets "
        "or dash\n"
        "cfg.yaml:2: num_processes: [1] is a list: write the value alone, without brackets or "
        "dash\n"
        "cfg.yaml:3: log_dir: ['a', 'b'] is a list: write one value\n"
        "cfg.yaml:4: num_machines: {'a': 1} is a mapping: write one value\n"
        "cfg.yaml:5: mixed_precision: [False] is a list: write the value alone, without brackets "
        "or dash\n"
        "cfg.yaml:6: use_cpu: [True] is a list: write the value alone, without brackets or dash\n"
        "cfg.yaml:7: gpu_ids: [0] is a list: write a plain value in this list\n"
        "cfg.yaml:8: tee: {'0': 1} is a mapping: write values separated by commas\n"
        "cfg.yaml:10: version: [2] is a list: write the value alone, without brackets or dash\n"
        "cfg.yaml:11: fsdp_offload_params: {'a': 1} is a mapping: write one value\n");
}

TEST_CASE("no key of the table takes a list for its one value", "[launcher][merge]") {
  for (const auto& row : key_rows()) {
    const auto section = std::string{section_name(row.place)};
    if (row.place == Place::nowhere || row.group == Group::cloud || row.name == "script_args")
      continue;
    INFO(row.name);
    const auto entry = std::string{row.name} + ": {a: 1}\n";
    const auto type =
        row.name == "distributed_type" ? std::string{} : std::string{"distributed_type: 'NO'\n"};
    Trial c{{"s.py"}, section.empty() ? type + entry : type + section + ":\n  " + entry};
    CHECK(c.complaints().find(": " + std::string{row.name} + ": {'a': 1} is a mapping: write") !=
          std::string::npos);
  }
}

TEST_CASE("where several words are meant a list is read as them", "[launcher][merge]") {
  Trial c{
      {"s.py"},
      "distributed_type: FSDP\nnum_processes: 2\ngpu_ids: [0, 1]\nno_restart_codes: [2, 64-78]\n"
      "preempt_signals: [TERM]\nfsdp_config:\n  transformer_layer_cls_to_wrap: [A, B]\n"};
  CHECK(c.complaints().empty());
  const auto spec = c.merged().spec;
  CHECK(spec.text("gpu_ids"_key) == "0,1");
  CHECK(spec.text("no_restart_codes"_key) == "2,64-78");
  CHECK(spec.text("preempt_signals"_key) == "TERM");
  CHECK(spec.text("fsdp_transformer_layer_cls_to_wrap"_key) == "A,B");
}

TEST_CASE("num_processes -1 is told as what it is, not as missing", "[launcher][merge]") {
  Trial file{{"s.py"}, "distributed_type: MULTI_GPU\nnum_processes: -1\n"};
  CHECK(file.complaints() == "cfg.yaml:2: num_processes: -1 is no count: write a number from 1\n");
  Trial flag{{"--num_processes", "-1", "s.py"}, "distributed_type: MULTI_GPU\n"};
  CHECK(flag.complaints() == "--num_processes: -1 is no count: write a number from 1\n");
  Trial missing{{"s.py"}, "distributed_type: MULTI_GPU\n"};
  CHECK(missing.complaints().find("num_processes is not set") != std::string::npos);
}

TEST_CASE("a guess of no processes says where it comes from", "[launcher][merge]") {
  Trial c{{"s.py"}};
  CHECK(defaults_warning(c.merged().spec, false)
            .find("`--num_processes` was set to a value of `0`\n\t\tno GPU was found: the script "
                  "runs as one process\n") != std::string::npos);
}

TEST_CASE("one machine is machine 0", "[launcher][merge]") {
  for (const char* rank : {"-1", "5"}) {
    Trial c{{"--cpu", "--num_processes=2", "--machine_rank", rank, "s.py"}};
    CHECK(c.complaints() == std::string{"--machine_rank: "} + rank +
                                " is out of range: this job has one machine, and its number is 0 "
                                "(for more give --num_machines or --nnodes)\n");
  }
  Trial zero{{"--cpu", "--num_processes=2", "--machine_rank=0", "s.py"}};
  CHECK(zero.complaints().empty());
}

TEST_CASE("options of the rendezvous are judged on one machine too", "[launcher][merge]") {
  Trial c{{"--cpu", "--rdzv_conf=join_timeout=x,is_host=maybe,keep_alive_max_attempt=0",
           "--rdzv_endpoint=h:x", "s.py"}};
  CHECK(c.complaints() ==
        "--rdzv_conf: join_timeout: 'x' is not a duration: write 15, 0.5s, 250ms, 2m or 1h\n"
        "--rdzv_conf: keep_alive_interval is a time in seconds, keep_alive_max_attempt a number "
        "from 1\n"
        "--rdzv_conf: is_host: 'maybe' is neither yes nor no: write true or false\n"
        "--rdzv_endpoint: 'h:x' is not HOST:PORT, as node1:29400 or [fd00::2]:29400\n");
  Trial any{{"--nproc_per_node=2", "--rdzv_backend=c10d", "--rdzv_endpoint=localhost:0", "s.py"}};
  CHECK(any.complaints().empty());
}

TEST_CASE("gpu_ids are judged on the CPU too", "[launcher][merge]") {
  const auto said = [](const std::string& ids) {
    return Trial{{"--cpu", "--gpu_ids=" + ids, "s.py"}}.complaints();
  };
  CHECK(said("0,x") == "--gpu_ids: 'x' is no device: write numbers, as 0,1,4, or all\n");
  CHECK(!said("0,,1").empty());
  CHECK(!said("GPU-").empty());
  for (const auto* good : {"all", "0", "0, 1", "GPU-5ab1,MIG-7", "0-3", "0.1", "-1", ""})
    CHECK(said(good).empty());
}

TEST_CASE("an empty path is no path", "[launcher][merge]") {
  for (const auto& row : key_rows()) {
    if (row.type != Type::path || !row.is_flag) continue;
    INFO(row.name);
    const auto flag = "--" + std::string{row.name};
    CHECK(Trial{{"--cpu", flag, "", "s.py"}}.complaints() ==
          "argument " + flag + ": the path is empty: name one, or leave this setting out\n");
  }
  CHECK(Trial{{"s.py"}, "distributed_type: 'NO'\nreport: ''\n"}.complaints() ==
        "cfg.yaml:2: report: the path is empty: name one, or leave this setting out\n");
  CHECK(Trial{{"--make_secret", "", "s.py"}}.complaints().starts_with(
      "argument --make_secret: the path is empty"));
  CHECK(Trial{{"--make_secret=", "s.py"}}.complaints().starts_with(
      "argument --make_secret: the path is empty"));
}
