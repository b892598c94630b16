#include "common/text.hpp"
#include "launcher/configure/questions.hpp"

/// torch.compile, mixed precision with its 8-bit backends, and SageMaker, which asks for both, too.
namespace acc::configure {

namespace {

bool is_cloud(const Answers& answers) { return !answers.empty() && !answers.is_local(); }
bool is_cloud_job_of_several(const Answers& answers) {
  return is_cloud(answers) && answers.text("sagemaker_mode") != "NO";
}

// Both environments have rows of these names, so each looks at its own only.
bool is_local(const Answers& answers) { return answers.is_local(); }
bool compiles_here(const Answers& answers) {
  return is_local(answers) && answers.is_yes("use_dynamo");
}
bool compiles_on_cloud(const Answers& answers) {
  return is_cloud(answers) && answers.is_yes("use_dynamo");
}
bool customizes_here(const Answers& answers) {
  return is_local(answers) && answers.is_yes("use_custom_options");
}
bool customizes_on_cloud(const Answers& answers) {
  return is_cloud(answers) && answers.is_yes("use_custom_options");
}

std::vector<Option> dynamo_backends() {
  std::vector<Option> options;
  for (auto& option : plain_options(
           "EAGER AOT_EAGER INDUCTOR AOT_TS_NVFUSER NVPRIMS_NVFUSER CUDAGRAPHS OFI FX2TRT "
           "ONNXRT TENSORRT AOT_TORCHXLA_TRACE_ONCE TORHCHXLA_TRACE_ONCE TVM"))
    options.push_back({to_lower(option.label), std::move(option.value)});
  return options;
}

/// In the original's menu, but its own list of backends doesn't have it: it ends with an error.
std::string refuse_backend(const Answers& /*answers*/, const Value& value) {
  if (python_text(value) != "TORHCHXLA_TRACE_ONCE") return {};
  return "no version of PyTorch has this backend: choose another one";
}

constexpr auto kTe = [](const Answers& a) { return a.text("fp8_backend") == "TE"; };
constexpr auto kOverride = [](const Answers& a) { return a.is_yes("override_linear_precision"); };
constexpr auto kAo = [](const Answers& a) { return a.text("fp8_backend") == "AO"; };

struct Fp8Rows {
  Questions& table;

  void add(std::string_view id, Kind kind, std::string text, std::string_view key,
           std::optional<Value> initial, std::string_view when, bool (*applies)(const Answers&),
           std::vector<Option> options = {}) {
    table.push_back({.id = id,
                     .kind = kind,
                     .text = std::move(text),
                     .section = "fp8_config",
                     .key = key,
                     .initial = std::move(initial),
                     .choices = std::move(options),
                     .when = when,
                     .applies = applies});
  }
};

void add_transformer_engine_questions(Fp8Rows& rows) {
  constexpr std::string_view kWhen = "fp8 with te";
  rows.add("use_autocast_during_eval", Kind::yes_no,
           "Keep FP8 autocast on while evaluating? (off often gives better metrics)",
           "use_autocast_during_eval", Value{false}, kWhen, kTe);
  rows.add("margin", Kind::integer, "Margin of the gradient scale", "margin",
           Value{std::int64_t{0}}, kWhen, kTe);
  rows.add("interval", Kind::integer, "Steps between two computations of the scale", "interval",
           Value{std::int64_t{1}}, kWhen, kTe);
  rows.add("fp8_format", Kind::choice, "Format of the weights", "fp8_format", Value{"HYBRID"},
           kWhen, kTe, plain_options("HYBRID E4M3 E5M2"));
  rows.add("amax_history_length", Kind::integer, "Steps of history for amax", "amax_history_length",
           Value{std::int64_t{1024}}, kWhen, kTe);
  rows.add("amax_compute_algorithm", Kind::choice, "How the scale follows from amax",
           "amax_compute_algorithm", Value{"max"}, kWhen, kTe, plain_options("max most_recent"));
  rows.add("override_linear_precision", Kind::yes_no,
           "Compute some of `fprop`, `dgrad`, `wgrad` in a higher precision?", "", Value{false},
           kWhen, kTe);
  for (const std::string_view gemm : {"fprop", "dgrad", "wgrad"})
    rows.add(gemm, Kind::yes_no, "Compute `" + std::string{gemm} + "` in a higher precision?", "",
             Value{false}, "some in higher precision", kOverride);
}

std::string question_of_instance(const Answers& /*answers*/) { return "EC2 instance type"; }

struct CloudRows {
  Questions& table;

  void add(std::string_view id, Kind kind, std::string text, std::string_view key,
           std::optional<Value> initial, std::string_view when, bool (*applies)(const Answers&),
           std::vector<Option> options = {}) {
    table.push_back({.id = id,
                     .kind = kind,
                     .text = std::move(text),
                     .key = key,
                     .initial = std::move(initial),
                     .choices = std::move(options),
                     .when = when,
                     .applies = applies});
  }
};

void add_cloud_account_questions(CloudRows& rows) {
  const std::string_view kWhen = "SageMaker";
  constexpr auto kByKeys = [](const Answers& a) { return a.integer("credentials") == 1; };
  rows.add("credentials", Kind::choice, "Credentials from", "", Value{std::int64_t{0}}, kWhen,
           is_cloud,
           {{"AWS Profile", Value{std::int64_t{0}}},
            {"Credentials (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY)", Value{std::int64_t{1}}}});
  rows.add("profile", Kind::text, "AWS profile", "profile", Value{"default"},
           "with a profile",
           [](const Answers& a) { return is_cloud(a) && a.integer("credentials") == 0; });
  rows.add("aws_access_key_id", Kind::text, "AWS Access Key ID", "", {}, "with credentials",
           kByKeys);
  rows.table.back().help =
      "Asked because `accelerate config` asks; it is not written and not used here. Give it at the "
      "start: accelerate launch --aws_access_key_id …";
  rows.add("aws_secret_access_key", Kind::secret, "AWS Secret Access Key", "", {},
           "with credentials", kByKeys);
  rows.table.back().help = "Not written and not used here.";
  rows.add("region", Kind::text, "Enter your AWS Region", "region", Value{"us-east-1"}, kWhen,
           is_cloud);
  rows.add("role_management", Kind::choice, "IAM role of the training jobs", "",
           Value{std::int64_t{0}}, kWhen, is_cloud,
           {{"Provide IAM Role name", Value{std::int64_t{0}}},
            {"A new one (to be created by you)", Value{std::int64_t{1}}}});
  rows.table.back().help =
      "acc-config makes no role: with the second answer it writes the name "
      "accelerate_sagemaker_execution_role, and you create that role.";
  rows.add("iam_role_name", Kind::text, "Name of the IAM role", "iam_role_name", {},
           "with a role",
           [](const Answers& a) { return is_cloud(a) && a.integer("role_management") == 0; });
}

void add_cloud_file_questions(CloudRows& rows) {
  const std::string_view kWhen = "SageMaker";
  rows.add("is_custom_docker_image", Kind::yes_no, "Use a Docker image of your own?", "",
           Value{false}, kWhen, is_cloud);
  rows.add("image_uri", Kind::text, "Enter your Docker image", "", {}, "a custom image",
           [](const Answers& a) { return a.is_yes("is_custom_docker_image"); });
  rows.add("is_sagemaker_inputs_enabled", Kind::yes_no,
           "Name input channels and where their data lies?", "", Value{false}, kWhen, is_cloud);
  rows.add("sagemaker_inputs_file", Kind::text,
           "TSV file of the inputs (columns channel_name, data_location)", "", {}, "input channels",
           [](const Answers& a) { return a.is_yes("is_sagemaker_inputs_enabled"); });
  rows.add("is_sagemaker_metrics_enabled", Kind::yes_no, "Report metrics to SageMaker?", "",
           Value{false}, kWhen, is_cloud);
  rows.add("sagemaker_metrics_file", Kind::text,
           "TSV file of the metrics (columns metric_name, metric_regex)", "", {}, "metrics",
           [](const Answers& a) { return a.is_yes("is_sagemaker_metrics_enabled"); });
  rows.add(
      "sagemaker_mode", Kind::choice, "Distributed mode", "distributed_type",
      Value{"NO"}, kWhen, is_cloud,
      {{"No distributed training", Value{"NO"}}, {"Data parallelism", Value{"DATA_PARALLEL"}}});
}

std::vector<Option> precisions() { return plain_options("no fp16 bf16 fp8"); }

}  // namespace

void add_dynamo_questions(Questions& table, bool of_cloud) {
  using Condition = bool (*)(const Answers&);
  const Condition applies = of_cloud ? is_cloud : is_local;
  const Condition compiles = of_cloud ? compiles_on_cloud : compiles_here;
  const Condition customizes = of_cloud ? customizes_on_cloud : customizes_here;
  const auto add = [&](std::string_view id, Kind kind, std::string text, std::string_view key,
                       Value initial, std::string_view when, std::string_view help,
                       std::vector<Option> options = {}) {
    table.push_back({.id = id,
                     .kind = kind,
                     .text = std::move(text),
                     .section = key.empty() ? "" : "dynamo_config",
                     .key = key,
                     .initial = std::move(initial),
                     .choices = std::move(options),
                     .when = when,
                     .applies = customizes,
                     .help = help});
  };
  add("use_dynamo", Kind::yes_no, "Compile with torch dynamo?", "", Value{false},
      of_cloud ? "SageMaker" : "on this machine", "yes: torch.compile for the model.");
  table.back().applies = applies;
  add("dynamo_backend", Kind::choice, "Backend of dynamo", "dynamo_backend", Value{"INDUCTOR"},
      "torch dynamo", "inductor is PyTorch's own.", dynamo_backends());
  table.back().applies = compiles;
  table.back().refuse = refuse_backend;
  add("use_custom_options", Kind::yes_no, "Set options of torch.compile?", "", Value{false},
      "torch dynamo", "");
  table.back().applies = compiles;
  add("dynamo_mode", Kind::choice, "Mode of torch.compile", "dynamo_mode", Value{"default"},
      "customized dynamo", "What to optimize for.",
      plain_options("default reduce-overhead max-autotune"));
  add("dynamo_use_fullgraph", Kind::yes_no, "Demand one whole graph (yes), or allow several (no)?",
      "dynamo_use_fullgraph", Value{false}, "customized dynamo", "yes: one graph or an error.");
  add("dynamo_use_dynamic", Kind::yes_no, "Trace with dynamic shapes?", "dynamo_use_dynamic",
      Value{false}, "customized dynamo", "yes: inputs of several sizes need no new compilation.");
  add("dynamo_use_regional_compilation", Kind::yes_no,
      "Compile repeated blocks once (regional compilation)?", "dynamo_use_regional_compilation",
      Value{false}, "customized dynamo", "yes: repeated blocks are compiled once.");
}

void add_precision_questions(Questions& table) {
  table.push_back({.id = "mixed_precision",
                   .kind = Kind::choice,
                   .text = "Mixed precision",
                   .key = "mixed_precision",
                   .initial = Value{"no"},
                   .choices = precisions(),
                   .when = "on this machine, no TPU, no DeepSpeed config file",
                   .applies =
                       [](const Answers& a) {
                         return a.is_local() && a.text("machine_type") != "XLA" &&
                                !a.is_yes("use_deepspeed_config");
                       },
                   .help = "bf16 needs an NVIDIA GPU of the Ampere generation or later; fp8 a "
                           "library where the job runs: torchao, Transformer Engine or MS-AMP."});
  Fp8Rows rows{table};
  rows.add("fp8_backend", Kind::choice, "Backend for FP8", "backend", Value{"AO"}, "fp8",
           [](const Answers& a) { return a.is_local() && a.text("mixed_precision") == "fp8"; },
           {{"ao", Value{"AO"}}, {"te", Value{"TE"}}, {"msamp", Value{"MSAMP"}}});
  add_transformer_engine_questions(rows);
  rows.add(
      "optimization_level", Kind::choice, "Optimization level", "optimization_level", Value{"O2"},
      "fp8 with msamp", [](const Answers& a) { return a.text("fp8_backend") == "MSAMP"; },
      plain_options("O1 O2"));
  rows.add("enable_fsdp_float8_all_gather", Kind::yes_no,
           "All-gather in float8 with FSDP2? (faster there)", "enable_fsdp_float8_all_gather",
           Value{true}, "fp8 with ao", kAo);
  rows.add(
      "pad_inner_dim", Kind::yes_no,
      "Pad the inner dimension of weights for float8 products? (_scaled_mm needs it; takes memory)",
      "pad_inner_dim", Value{true}, "fp8 with ao", kAo);
}

void add_sagemaker_questions(Questions& table) {
  CloudRows rows{table};
  add_cloud_account_questions(rows);
  add_cloud_file_questions(rows);
  add_dynamo_questions(table, true);
  rows.add("ec2_instance_type", Kind::choice, "", "ec2_instance_type", Value{"ml.p3.16xlarge"},
           "SageMaker with data parallelism", is_cloud_job_of_several,
           plain_options("ml.p3.16xlarge ml.p3dn.24xlarge ml.p4dn.24xlarge"));
  table.back().text_now = question_of_instance;
  rows.add("ec2_instance_type", Kind::text, "", "", Value{"ml.p3.2xlarge"},
           "SageMaker without distributed training",
           [](const Answers& a) { return is_cloud(a) && a.text("sagemaker_mode") == "NO"; });
  table.back().text_now = question_of_instance;
  rows.add("debug", Kind::yes_no,
           "Check collectives for mismatches at run time? (slower; turns time-outs into errors)",
           "debug", Value{false}, "SageMaker with data parallelism", is_cloud_job_of_several);
  rows.add("num_machines", Kind::integer, "Number of instances", "num_machines",
           Value{std::int64_t{1}}, "SageMaker with data parallelism", is_cloud_job_of_several);
  rows.add("mixed_precision", Kind::choice, "Mixed precision", "mixed_precision", Value{"no"},
           "SageMaker", is_cloud, precisions());
}

}  // namespace acc::configure
