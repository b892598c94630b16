#include "launcher/mode.hpp"

#include "common/text.hpp"
#include "tests/unit/launcher/trial.hpp"

#include <catch2/catch.hpp>

using namespace acc;
using namespace acc::launcher;

TEST_CASE("fp8 passes unknown keys of its section on, as the original", "[launcher][mode]") {
  Trial c{{"s.py"},
          "distributed_type: MULTI_GPU\nnum_processes: 2\nmixed_precision: FP8\nfp8_config:\n  "
          "backend: TE\n  amax_history_length: 512\n  override_linear_precision: [false, true, "
          "false]\n"};
  c.facts.has_fp8 = true;
  const auto env = c.planned().plan.env;
  CHECK(env.at("ACCELERATE_FP8_AMAX_HISTORY_LENGTH") == "512");
  CHECK(env.at("ACCELERATE_FP8_OVERRIDE_DGRAD") == "True");
  CHECK(env.at("ACCELERATE_FP8_PAD_INNER_DIM") == "1");
}

TEST_CASE("fp8 without a backend is refused", "[launcher][mode]") {
  Trial c{{"--mixed_precision=fp8", "--num_processes=1", "s.py"}};
  CHECK(c.complaints().find("FP8 is not available") != std::string::npos);
}

TEST_CASE("a job was refused for a package that the Python behind a wrapper has",
          "[launcher][mode]") {
  for (const auto* words : {"--mixed_precision=fp8", "--use_deepspeed"}) {
    Trial c{{words, "--num_processes=2", "s.py"}};
    CHECK_FALSE(c.complaints().empty());
    c.facts.shows = false;
    const auto planned = c.planned();
    CHECK(planned.complaints.empty());
    CHECK(acc::join(planned.plan.warnings, "\n").find("can't be seen without running it") !=
          std::string::npos);
  }
}

TEST_CASE("Megatron's switches are true for any text, also for 'false'", "[launcher][mode]") {
  Trial c{{"--use_megatron_lm", "--num_processes=2", "--megatron_lm_no_load_optim=false",
           "--megatron_lm_eod_mask_loss=", "s.py"}};
  const auto env = c.planned().plan.env;
  CHECK(env.at("MEGATRON_LM_NO_LOAD_OPTIM") == "True");
  CHECK(env.at("MEGATRON_LM_EOD_MASK_LOSS") == "False");
}

TEST_CASE("a torchrun line trained in fp32 where the caller's environment said bf16",
          "[launcher][mode]") {
  const Environment caller{{"ACCELERATE_MIXED_PRECISION", "bf16"},
                           {"ACCELERATE_USE_CPU", "true"},
                           {"ACCELERATE_DYNAMO_BACKEND", "INDUCTOR"},
                           {"ACCELERATE_DYNAMO_MODE", "max-autotune"}};
  const auto env_of = [&](std::vector<std::string> words) {
    return Trial{std::move(words), "", caller}.planned().plan.env;
  };
  for (const char* line : {"--nproc_per_node=1", "--nproc_per_node=2", "--standalone"}) {
    const auto env = env_of({line, "s.py"});
    for (const auto& [name, value] : caller) CHECK_FALSE(env.contains(name));
  }
  const auto given = env_of({"--nproc_per_node=2", "--mixed_precision=fp16", "s.py"});
  CHECK(given.at("ACCELERATE_MIXED_PRECISION") == "fp16");
  CHECK_FALSE(given.contains("ACCELERATE_DYNAMO_BACKEND"));
  // accelerate launch overrides them.
  CHECK(env_of({"--num_processes=2", "s.py"}).at("ACCELERATE_MIXED_PRECISION") == "no");
}

TEST_CASE("a torchrun line compiled with static shapes, as acc-launch set DYNAMO_USE_DYNAMIC=False",
          "[launcher][mode]") {
  const auto names_of = [](Trial trial) {
    trial.facts.devices = 2;
    std::string names;
    for (const auto& [name, value] : trial.planned().plan.env) names += name + " ";
    return names;
  };
  CHECK(names_of(Trial{{"--nproc_per_node=2", "s.py"}}) == "OMP_NUM_THREADS ");
  CHECK(names_of(Trial{{"--nproc_per_node=1", "s.py"}}).empty());
  CHECK(names_of(Trial{{"--standalone", "s.py"}}).empty());
  CHECK(names_of(Trial{{"--nproc_per_node=1", "--mixed_precision=bf16", "--cpu", "s.py"}}) ==
        "ACCELERATE_MIXED_PRECISION ACCELERATE_USE_CPU OMP_NUM_THREADS ");
  CHECK(names_of(Trial{{"--nproc_per_node=1", "--dynamo_backend=inductor", "s.py"}}) ==
        "ACCELERATE_DYNAMO_BACKEND ");
  CHECK(names_of(Trial{{"s.py"},
                       "distributed_type: 'NO'\nnproc_per_node: 1\nmixed_precision: 'no'\n"
                       "dynamo_config:\n  dynamo_use_dynamic: false\n"}) ==
        "ACCELERATE_DYNAMO_USE_DYNAMIC ACCELERATE_MIXED_PRECISION ");
}

TEST_CASE(
    "a torchrun line with --use_fsdp overrode the caller's FSDP_VERSION by Accelerate's default",
    "[launcher][mode]") {
  const Environment caller{{"FSDP_VERSION", "2"}, {"FSDP_USE_ORIG_PARAMS", "false"}};
  const auto env_of = [&](const std::string& counts) {
    return Trial{{counts, "--use_fsdp", "--fsdp_use_orig_params=true", "s.py"}, "", caller}
        .planned()
        .plan.env;
  };
  CHECK_FALSE(env_of("--nproc_per_node=2").contains("FSDP_VERSION"));
  CHECK(env_of("--nproc_per_node=2").at("FSDP_USE_ORIG_PARAMS") == "true");
  CHECK(env_of("--nproc_per_node=2").at("FSDP_SHARDING_STRATEGY") == "FULL_SHARD");
  CHECK(env_of("--num_processes=2").at("FSDP_VERSION") == "1");
}

TEST_CASE("FSDP's efficient loading needs synchronised states", "[launcher][mode]") {
  Trial c{{"s.py"},
          "distributed_type: FSDP\nnum_processes: 2\nfsdp_config:\n  sync_module_states: false\n"};
  CHECK(c.complaints().find("fsdp_sync_module_states") != std::string::npos);
  Trial flag{{"--use_fsdp", "--num_processes=2", "--fsdp_sync_module_states=false", "s.py"}};
  CHECK(flag.complaints().empty());
}

TEST_CASE("DeepSpeed appends the working directory to PYTHONPATH", "[launcher][mode]") {
  Trial c{{"--use_deepspeed", "--num_processes=2", "s.py"}, "", {{"PYTHONPATH", "/a::/b"}}};
  c.facts.deepspeed_version = "0.15.0";
  const auto plan = c.planned().plan;
  CHECK(plan.env.at("PYTHONPATH") == "/a:/b:/job");
  CHECK(plan.env.at("OMP_NUM_THREADS") == "1");
  CHECK(plan.env.count("ACCELERATE_DYNAMO_BACKEND") == 0);
}

TEST_CASE("the deepspeed program is told variables it can read back", "[launcher][mode]") {
  const auto env = deepspeed_env({{"A", "1"}, {"B", "x y"}, {"C", ""}});
  CHECK(env.lines == std::vector<std::string>{"A=1"});
  CHECK(env.skipped == std::vector<std::string>{"B", "C"});
}

TEST_CASE("variables that the deepspeed program can't be told are named in one warning",
          "[launcher][mode]") {
  Trial c{{"--use_deepspeed", "--num_processes=4", "--num_machines=2", "--machine_rank=0",
           "--main_process_ip=h", "s.py"},
          "",
          {{"PS1", "a b"}, {"EMPTY", ""}, {"FINE", "1"}}};
  c.facts.deepspeed_version = "0.15.0";
  const auto warnings = c.planned().plan.warnings;
  REQUIRE(warnings.size() == 1);
  CHECK(warnings[0].find("Skipping in .deepspeed_env") == 0);
  CHECK(warnings[0].find("EMPTY, PS1 (") != std::string::npos);
}

TEST_CASE("a value that FSDP won't understand is refused at once", "[launcher][mode]") {
  Trial c{{"s.py"},
          "distributed_type: FSDP\nnum_processes: 2\nfsdp_config:\n  fsdp_version: 3\n  "
          "sharding_strategy: FULLSHARD\n  fsdp_offload_params: maybe\n  state_dict_type: null\n  "
          "auto_wrap_policy: no_wrap\n  forward_prefetch: yes\n"};
  const auto text = c.complaints();
  CHECK(text.find("cfg.yaml:4: fsdp_version: '3' is not one of 1, 2\n") != std::string::npos);
  CHECK(text.find("cfg.yaml:5: fsdp_sharding_strategy: 'FULLSHARD' is not one of FULL_SHARD, ") !=
        std::string::npos);
  CHECK(text.find("(did you mean FULL_SHARD?)\n") != std::string::npos);
  CHECK(text.find("cfg.yaml:6: fsdp_offload_params: 'maybe' is not one of true, false\n") !=
        std::string::npos);
  CHECK(text.find("cfg.yaml:7") == std::string::npos);
  CHECK(text.find("cfg.yaml:8") == std::string::npos);
  CHECK(text.find("cfg.yaml:9") == std::string::npos);
  Trial unused{{"--multi_gpu", "s.py"}, c.yaml};
  CHECK(unused.complaints().empty());
}

TEST_CASE("with FSDP 2 a strategy of FSDP 1 was found by each worker", "[launcher][mode]") {
  const auto complaints = [](const std::string& version, const std::string& value) {
    return Trial{{"s.py"},
                 "distributed_type: FSDP\nnum_processes: 2\nfsdp_config:\n  fsdp_version: " +
                     version + "\n  fsdp_reshard_after_forward: " + value + "\n"}
        .complaints();
  };
  CHECK(complaints("2", "FULL_SHARD") ==
        "cfg.yaml:5: fsdp_reshard_after_forward: 'FULL_SHARD' is a sharding strategy of FSDP 1; "
        "with fsdp_version 2 write true\n");
  CHECK(complaints("2", "2").find("'2' is a sharding strategy of FSDP 1; with fsdp_version 2 write "
                                  "false") != std::string::npos);
  for (const auto* fine : {"true", "false", "1", "0", "'yes'"})
    CHECK(complaints("2", fine).empty());
  for (const auto* fine : {"true", "FULL_SHARD", "2"}) CHECK(complaints("1", fine).empty());
}

TEST_CASE("values of DeepSpeed's section are judged with DeepSpeed", "[launcher][mode]") {
  Trial c{{"--use_deepspeed", "--num_processes=2", "--zero_stage=7", "--offload_param_device=gpu",
           "s.py"}};
  c.facts.deepspeed_version = "0.15.0";
  const auto text = c.complaints();
  CHECK(text.find("--zero_stage: '7' is not one of 0, 1, 2, 3") != std::string::npos);
  CHECK(text.find("--offload_param_device: 'gpu' is not one of none, cpu, nvme") !=
        std::string::npos);
}

TEST_CASE("an unquoted no as dynamo backend is explained", "[launcher][mode]") {
  Trial c{{"s.py"}, "distributed_type: 'NO'\ndynamo_config:\n  backend: no\n"};
  CHECK(c.complaints().find("in quotes") != std::string::npos);
}

TEST_CASE("sizes of parallelism decide what is passed on", "[launcher][mode]") {
  Trial c{{"--use_fsdp", "--use_parallelism_config", "--num_processes=4",
           "--parallelism_config_sp_size=2", "s.py"}};
  const auto env = c.planned().plan.env;
  CHECK(env.at("PARALLELISM_CONFIG_SP_SEQ_LENGTH") == "None");
  CHECK(env.count("PARALLELISM_CONFIG_CP_COMM_STRATEGY") == 0);
  CHECK(env.at("PARALLELISM_CONFIG_CP_BACKEND") == "torch");
}

TEST_CASE("multi-GPU training on a machine without a GPU began without a word", "[launcher]") {
  const auto warned = [](std::vector<std::string> words, std::uint32_t gpus) {
    words.insert(words.end(), {"--num_processes", "2", "s.py"});
    Trial trial{std::move(words)};
    trial.facts.devices = gpus;
    const auto planned = trial.planned();
    CHECK(planned.complaints.empty());
    std::string text;
    for (const auto& warning : planned.plan.warnings) text += warning + "\n";
    return text;
  };
  CHECK_THAT(warned({"--multi_gpu"}, 0),
             Catch::Contains("--multi_gpu: no GPU was found on this machine"));
  CHECK_THAT(warned({"--gpu_ids", "0,1"}, 0),
             Catch::Contains("--gpu_ids: no GPU was found on this machine"));
  CHECK(warned({"--multi_gpu"}, 2).empty());
  CHECK(warned({"--gpu_ids", "all"}, 0).empty());
  CHECK(warned({"--gpu_ids", "0,1", "--cpu"}, 0).empty());
  CHECK(warned({}, 0).empty());
}
