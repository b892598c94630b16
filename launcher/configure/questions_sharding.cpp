#include "launcher/configure/questions.hpp"

/// DeepSpeed, FSDP with its kinds of parallelism, and Megatron-LM.
namespace acc::configure {

namespace {

bool may_shard(const Answers& answers) {
  return answers.is_local() && answers.text("machine_type").starts_with("MULTI_") &&
         answers.text("machine_type") != "MULTI_CPU";
}

/// A row of one of the sections, which has the same name in the file.
struct SectionRows {
  Questions& table;
  std::string_view section;

  void add(std::string_view key, Kind kind, std::string text, std::optional<Value> initial,
           std::string_view when, bool (*applies)(const Answers&), std::string_view help) {
    table.push_back({.id = key,
                     .kind = kind,
                     .text = std::move(text),
                     .section = section,
                     .key = key,
                     .initial = std::move(initial),
                     .when = when,
                     .applies = applies,
                     .help = help});
  }
  void choice(std::string_view key, std::string text, std::vector<Option> options,
              std::size_t initial, std::string_view when, bool (*applies)(const Answers&),
              std::string_view help) {
    add(key, Kind::choice, std::move(text), options[initial].value, when, applies, help);
    table.back().choices = std::move(options);
  }
};

std::string refuse_on_neuron(const Answers& answers, const Value& value) {
  if (!truthy(value) || answers.text("machine_type") != "MULTI_NEURON") return {};
  return "it doesn't run on Neuron devices";
}

constexpr auto kUsesDeepspeed = [](const Answers& a) { return a.is_yes("use_deepspeed"); };
constexpr auto kZero = [](const Answers& a) {
  return a.is_yes("use_deepspeed") && !a.is_yes("use_deepspeed_config");
};
constexpr auto kOffload = [](const Answers& a) {
  return a.is_yes("use_deepspeed") && a.integer("zero_stage") >= 2;
};
constexpr auto kZero3 = [](const Answers& a) {
  return a.is_yes("use_deepspeed") && a.integer("zero_stage") == 3;
};
constexpr auto kSeveral = [](const Answers& a) {
  return a.is_yes("use_deepspeed") && a.integer("num_machines") > 1;
};
constexpr auto kHostfile = [](const Answers& a) {
  return a.is_yes("use_deepspeed") && a.integer("num_machines") > 1 &&
         a.text("deepspeed_multinode_launcher") != "standard";
};

void add_offload_questions(SectionRows& rows) {
  constexpr std::string_view kWhen = "ZeRO stage 2 or 3";
  rows.choice("offload_optimizer_device", "Optimizer states are offloaded to",
              plain_options("none cpu nvme"), 0, kWhen, kOffload,
              "cpu and nvme save memory of the GPU and cost time.");
  rows.choice("offload_param_device", "Parameters are offloaded to",
              plain_options("none cpu nvme"), 0, kWhen, kOffload,
              "DeepSpeed offloads parameters with stage 3 only.");
  rows.add(
      "offload_param_nvme_path", Kind::text, "NVMe folder for parameters", Value{"/nvme"},
      "parameters on nvme",
      [](const Answers& a) { return a.text("offload_param_device") == "nvme"; },
      "A folder on a fast disk, on every machine.");
  rows.add(
      "offload_optimizer_nvme_path", Kind::text, "NVMe folder for optimizer states", Value{"/nvme"},
      "optimizer states on nvme",
      [](const Answers& a) { return a.text("offload_optimizer_device") == "nvme"; },
      "A folder on a fast disk, on every machine.");
}

void add_zero_questions(SectionRows& rows) {
  constexpr std::string_view kWhen = "DeepSpeed without a config file of its own";
  std::vector<Option> stages;
  for (std::int64_t stage = 0; stage <= 3; ++stage)
    stages.push_back({std::to_string(stage), Value{stage}});
  rows.choice("zero_stage", "ZeRO stage", std::move(stages), 2, kWhen, kZero,
              "1 shards optimizer states over the workers, 2 gradients too, 3 parameters too; 0: "
              "nothing.");
  add_offload_questions(rows);
  rows.add("gradient_accumulation_steps", Kind::integer,
           "Gradient accumulation steps of your script", Value{std::int64_t{1}}, kWhen, kZero,
           "Batches before an optimizer step.");
  rows.table.back().doubt = doubt_below_one;
  rows.add("use_gradient_clipping", Kind::yes_no, "Clip gradients?", Value{false}, kWhen, kZero,
           "");
  rows.table.back().key = {};
  rows.add(
      "gradient_clipping", Kind::number, "Largest norm of the gradients", Value{1.0},
      "gradient clipping", [](const Answers& a) { return a.is_yes("use_gradient_clipping"); },
      "The norm to clip to.");
  rows.add("zero3_save_16bit_model", Kind::yes_no, "Save 16-bit weights (ZeRO stage 3)?",
           Value{false}, "ZeRO stage 3", kZero3,
           "yes: whole weights are gathered when the model is saved.");
}

void add_deepspeed_machines(SectionRows& rows) {
  rows.choice("deepspeed_multinode_launcher", "How DeepSpeed reaches the machines",
              plain_options("pdsh standard openmpi mvapich mpich nossh slurm"), 0,
              "DeepSpeed on several machines", kSeveral,
              "standard: this launcher on each machine. The others start the program deepspeed, "
              "which reaches the machines by itself.");
  rows.add("deepspeed_hostfile", Kind::text, "Host file of DeepSpeed", {},
           "a launcher other than standard", kHostfile,
           "A line for each machine: node1 slots=8. Machines may differ.");
  rows.table.back().doubt = doubt_missing_file;
  rows.add("is_exclusion_filter", Kind::yes_no,
           "Leave out some hosts or devices (exclusion filter)?", Value{false},
           "a launcher other than standard", kHostfile,
           "Machines and devices to leave out: node1@node2:0,1.");
  rows.table.back().key = {};
  rows.add(
      "deepspeed_exclusion_filter", Kind::text, "DeepSpeed exclusion filter string", {},
      "an exclusion filter", [](const Answers& a) { return a.is_yes("is_exclusion_filter"); },
      "As deepspeed --exclude takes it: node1@node2:0,1.");
  rows.add("is_inclusion_filter", Kind::yes_no,
           "Take only some hosts or devices (inclusion filter)?", Value{false},
           "a launcher other than standard", kHostfile,
           "Machines and devices to use, and no others: node1@node2:0,1.");
  rows.table.back().key = {};
  rows.add(
      "deepspeed_inclusion_filter", Kind::text, "DeepSpeed inclusion filter string", {},
      "an inclusion filter", [](const Answers& a) { return a.is_yes("is_inclusion_filter"); },
      "As deepspeed --include takes it: node1@node2:0,1.");
}

constexpr auto kUsesFsdp = [](const Answers& a) { return a.is_yes("use_fsdp"); };
constexpr auto kFsdp1 = [](const Answers& a) {
  return a.is_yes("use_fsdp") && a.integer("fsdp_version") == 1;
};
constexpr auto kFsdp2 = [](const Answers& a) {
  return a.is_yes("use_fsdp") && a.integer("fsdp_version") == 2;
};
constexpr auto kParallelism = [](const Answers& a) { return a.is_yes("use_parallelism_config"); };

void add_wrap_questions(SectionRows& rows) {
  rows.choice("fsdp_auto_wrap_policy", "Which modules are wrapped",
              plain_options("TRANSFORMER_BASED_WRAP SIZE_BASED_WRAP NO_WRAP"), 0, "FSDP", kUsesFsdp,
              "What is sharded as one unit: named layers, modules above a size, or the model.");
  constexpr auto kByLayer = [](const Answers& a) {
    return a.text("fsdp_auto_wrap_policy") == "TRANSFORMER_BASED_WRAP";
  };
  rows.add("use_no_split_modules", Kind::yes_no,
           "Wrap the model's own `_no_split_modules`? (Transformers models)", Value{false},
           "TRANSFORMER_BASED_WRAP", kByLayer,
           "Models of Transformers name their layers themselves.");
  rows.table.back().key = {};
  rows.add(
      "fsdp_transformer_layer_cls_to_wrap", Kind::text,
      "Layer classes to wrap, comma-separated, as BertLayer,BertEmbeddings", {},
      "TRANSFORMER_BASED_WRAP with names of your own",
      [](const Answers& a) {
        return a.text("fsdp_auto_wrap_policy") == "TRANSFORMER_BASED_WRAP" &&
               !a.is_yes("use_no_split_modules");
      },
      "Names of Python classes, as in the model's source.");
  rows.add(
      "fsdp_min_num_params", Kind::integer, "Parameters from which a module is wrapped",
      Value{std::int64_t{100'000'000}}, "SIZE_BASED_WRAP",
      [](const Answers& a) { return a.text("fsdp_auto_wrap_policy") == "SIZE_BASED_WRAP"; },
      "Written out: 100000000, not 1e8.");
  rows.table.back().doubt = doubt_below_one;
}

std::vector<Option> state_dict_types(const Answers& answers) {
  return plain_options(answers.integer("fsdp_version") == 1
                           ? "FULL_STATE_DICT LOCAL_STATE_DICT SHARDED_STATE_DICT"
                           : "SHARDED_STATE_DICT FULL_STATE_DICT");
}

/// Of FSDP's first version too: what the second one has no counterpart for.
void add_fsdp_loading_questions(SectionRows& rows) {
  rows.choice("fsdp_backward_prefetch", "Prefetch in the backward pass",
              plain_options("BACKWARD_PRE BACKWARD_POST NO_PREFETCH"), 0, "FSDP 1", kFsdp1,
              "PRE gathers the next parameters earlier and takes more memory.");
  rows.table.push_back({.id = "fsdp_state_dict_type",
                        .kind = Kind::choice,
                        .text = "Form of the state dict",
                        .section = rows.section,
                        .key = "fsdp_state_dict_type",
                        .when = "FSDP",
                        .applies = kUsesFsdp,
                        .help = "SHARDED: each rank saves its part. FULL: rank 0 saves all.",
                        .choices_now = state_dict_types});
  rows.add("fsdp_forward_prefetch", Kind::yes_no, "Prefetch in the forward pass?", Value{false},
           "FSDP 1", kFsdp1, "Gathers the next parameters while the forward pass computes.");
  rows.add("fsdp_use_orig_params", Kind::yes_no,
           "Keep the original parameters (`use_orig_params`)?", Value{true}, "FSDP 1", kFsdp1,
           "Parameters keep their names and shapes for the optimizer.");
  rows.add("fsdp_cpu_ram_efficient_loading", Kind::yes_no,
           "Load the weights on rank 0 alone, to save memory? (Transformers models)", Value{true},
           "FSDP", kUsesFsdp, "Only the first rank reads the checkpoint.");
  rows.add(
      "fsdp_sync_module_states", Kind::yes_no,
      "Broadcast the parameters of each FSDP unit from rank 0 before training?", Value{true},
      "FSDP 1 without RAM efficient loading",
      [](const Answers& a) {
        return a.is_yes("use_fsdp") && a.integer("fsdp_version") == 1 &&
               !a.is_yes("fsdp_cpu_ram_efficient_loading");
      },
      "With RAM efficient loading it is always on.");
  rows.add("fsdp_activation_checkpointing", Kind::yes_no, "Checkpoint activations?", Value{false},
           "FSDP", kUsesFsdp, "Computes activations again in the backward pass, to save memory.");
}

void add_parallelism_questions(Questions& table) {
  SectionRows rows{table, "parallelism_config"};
  rows.add("use_parallelism_config", Kind::yes_no, "Set the sizes of parallel dimensions?",
           Value{false}, "FSDP 2", kFsdp2,
           "Several kinds of parallelism at once; their sizes multiply to the number of workers.");
  table.back().section = {};
  table.back().key = {};
  const auto size = [&](std::string_view key, std::string text, std::string_view help) {
    rows.add(key, Kind::integer, std::move(text), Value{std::int64_t{1}}, "parallelism config",
             kParallelism, help);
    table.back().doubt = doubt_below_one;
  };
  size("parallelism_config_dp_replicate_size", "Replicas (data parallel)",
       "Copies of the sharded model.");
  size("parallelism_config_dp_shard_size", "Ranks that one model is sharded over",
       "Workers over which a copy is sharded.");
  size("parallelism_config_tp_size", "Tensor parallel size", "Workers that share each layer.");
  size("parallelism_config_cp_size", "Context parallel size", "Workers that share a sequence.");
  rows.choice(
      "parallelism_config_cp_comm_strategy", "How context parallel ranks exchange their parts",
      plain_options("allgather alltoall"), 0, "context parallelism above 1",
      [](const Answers& a) { return a.integer("parallelism_config_cp_size") > 1; },
      "How the workers exchange parts of the sequence.");
}

}  // namespace

void add_deepspeed_questions(Questions& table) {
  SectionRows rows{table, "deepspeed_config"};
  rows.add(
      "use_deepspeed", Kind::yes_no, "Train with DeepSpeed?", Value{false},
      "no distributed training, or multi-X other than CPU",
      [](const Answers& a) { return a.text("machine_type") == "NO" || may_shard(a); },
      "DeepSpeed must be installed where the job runs.");
  table.back().section = {};
  table.back().key = {};
  table.back().refuse = refuse_on_neuron;
  rows.add("use_deepspeed_config", Kind::yes_no, "Is there a DeepSpeed config file (JSON)?",
           Value{false}, "DeepSpeed", kUsesDeepspeed,
           "Then DeepSpeed's own file decides, also on the precision.");
  table.back().key = {};
  rows.add(
      "deepspeed_config_file", Kind::text, "DeepSpeed config file", Value{"none"},
      "a DeepSpeed config file", [](const Answers& a) { return a.is_yes("use_deepspeed_config"); },
      "The file must be there on every machine.");
  table.back().doubt = doubt_missing_file;
  add_zero_questions(rows);
  rows.add("zero3_init_flag", Kind::yes_no,
           "Build the model sharded, with `deepspeed.zero.Init` (ZeRO stage 3)?", Value{false},
           "DeepSpeed", kUsesDeepspeed,
           "The model is built sharded. Needs Transformers where the job runs.");
  rows.add("use_moe", Kind::yes_no, "Train a mixture of experts (MoE)?", Value{false}, "DeepSpeed",
           kUsesDeepspeed, "");
  table.back().key = {};
  rows.add(
      "deepspeed_moe_layer_cls_names", Kind::text,
      "MoE layer classes, comma-separated, as JetMoEAttention,JetMoEBlock", {}, "MoE",
      [](const Answers& a) { return a.is_yes("use_moe"); },
      "Names of Python classes, as in the model's source.");
  add_deepspeed_machines(rows);
}

void add_sharding_questions(Questions& table) {
  SectionRows rows{table, "fsdp_config"};
  rows.add(
      "use_fsdp", Kind::yes_no, "Train with FullyShardedDataParallel (FSDP)?", Value{false},
      "multi-X other than CPU, without DeepSpeed",
      [](const Answers& a) { return may_shard(a) && !a.is_yes("use_deepspeed"); },
      "PyTorch shards parameters, gradients and optimizer states over the workers.");
  table.back().section = {};
  table.back().key = {};
  table.back().refuse = refuse_on_neuron;
  rows.choice(
      "fsdp_version", "Version of FSDP",
      {{"1", Value{std::int64_t{1}}}, {"2", Value{std::int64_t{2}}}}, 1, "FSDP", kUsesFsdp,
      "2 needs PyTorch 2.6; acc-config convert --to fsdp2 makes a file of 2 from one of 1.");
  rows.choice("fsdp_sharding_strategy", "What is sharded",
              plain_options("FULL_SHARD SHARD_GRAD_OP NO_SHARD HYBRID_SHARD HYBRID_SHARD_ZERO2"), 0,
              "FSDP 1", kFsdp1,
              "FULL_SHARD shards all; HYBRID shards within a machine and copies between machines.");
  table.back().key = "fsdp_reshard_after_forward";
  rows.add("fsdp_reshard_after_forward", Kind::yes_no,
           "Shard parameters again after the forward pass?", Value{true}, "FSDP 2", kFsdp2,
           "yes saves memory, no saves communication.");
  rows.add("fsdp_offload_params", Kind::yes_no, "Offload parameters and gradients to the CPU?",
           Value{false}, "FSDP", kUsesFsdp, "Saves memory of the GPU and costs time.");
  add_wrap_questions(rows);
  add_fsdp_loading_questions(rows);
  add_parallelism_questions(table);
}

void add_megatron_questions(Questions& table) {
  SectionRows rows{table, "megatron_lm_config"};
  constexpr auto kMegatron = [](const Answers& a) { return a.is_yes("use_megatron_lm"); };
  constexpr std::string_view kWhen = "Megatron-LM";
  rows.add(
      "use_megatron_lm", Kind::yes_no, "Train with Megatron-LM?", Value{false},
      "multi-GPU, without DeepSpeed and FSDP",
      [](const Answers& a) { return a.is_local() && a.distributed_type() == "MULTI_GPU"; },
      "Tensor and pipeline parallelism for large language models.");
  table.back().section = {};
  table.back().key = {};
  rows.add("megatron_lm_tp_degree", Kind::integer, "Tensor parallel size of Megatron-LM",
           Value{std::int64_t{1}}, kWhen, kMegatron, "Workers that share each layer.");
  table.back().doubt = doubt_below_one;
  rows.add(
      "megatron_lm_sequence_parallelism", Kind::yes_no, "Split activations along the sequence?",
      Value{true}, "tensor parallelism above 1",
      [](const Answers& a) { return a.integer("megatron_lm_tp_degree") > 1; },
      "Saves memory of activations.");
  rows.add("megatron_lm_pp_degree", Kind::integer, "Pipeline stages", Value{std::int64_t{1}}, kWhen,
           kMegatron, "Workers that hold successive layers.");
  table.back().doubt = doubt_below_one;
  rows.add(
      "megatron_lm_num_micro_batches", Kind::integer, "Micro-batches", Value{std::int64_t{1}},
      "pipeline parallelism above 1",
      [](const Answers& a) { return a.integer("megatron_lm_pp_degree") > 1; },
      "Parts of a batch that are in the pipeline at once.");
  table.back().doubt = doubt_below_one;
  rows.add("megatron_lm_recompute_activations", Kind::yes_no, "Recompute activations selectively?",
           Value{true}, kWhen, kMegatron, "Saves memory and costs a little time.");
  rows.add("megatron_lm_use_distributed_optimizer", Kind::yes_no,
           "Shard optimizer state and gradients over data parallel ranks (distributed optimizer)?",
           Value{true}, kWhen, kMegatron, "");
  rows.add("megatron_lm_gradient_clipping", Kind::number,
           "Largest global L2 norm of the gradients (0: no clipping)", Value{1.0}, kWhen, kMegatron,
           "");
}

}  // namespace acc::configure
