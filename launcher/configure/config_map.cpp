#include "launcher/configure/config_map.hpp"

#include "common/text.hpp"
#include "launcher/config_keys.hpp"

#include <algorithm>
#include <array>
#include <filesystem>

namespace acc::configure {

namespace {

Map& section_of(Map& map, std::string_view name) {
  const auto* there = value_of(map, name);
  if (there == nullptr || there->map() == nullptr) put(map, name, Value{Map{}});  // or null
  const auto found = std::ranges::find(map, name, &Entry::key);
  return std::get<Map>(found->value.data);
}

Value words_of(const Answers& answers, std::string_view id) {
  List words;
  for (auto& word : split(answers.text(id), ',')) words.emplace_back(std::move(word));
  return Value{std::move(words)};
}

std::string absolute_path(const std::string& path, const std::string& folder) {
  auto whole = (std::filesystem::path{folder} / path).lexically_normal().string();
  while (whole.size() > 1 && whole.ends_with('/')) whole.pop_back();
  return whole;
}

/// Answers whose key and value in the file are the answer's own.
void put_plain_answers(Map& map, const Answers& answers) {
  for (const auto& [question, value] : answers.given()) {
    if (question->key.empty()) continue;
    put(question->section.empty() ? map : section_of(map, question->section), question->key, value);
  }
}

void put_tpu(Map& map, const Answers& answers, const std::string& folder) {
  if (!answers.is_yes("tpu_use_cluster")) return;
  if (answers.is_yes("use_command_file"))
    put(map, "command_file", Value{absolute_path(answers.text("command_file"), folder)});
  List commands;
  for (const auto& [question, value] : answers.given()) {
    if (question->id == "command") commands.push_back(value);
  }
  if (!commands.empty()) put(map, "commands", Value{std::move(commands)});
  put(map, "tpu_vm", words_of(answers, "tpu_vm"));
  put(map, "tpu_env", words_of(answers, "tpu_env"));
}

/// What the original's questionnaire hands to its config class for questions that weren't asked.
Map local_defaults() {
  return {{"downcast_bf16", Value{"no"}},
          {"enable_cpu_affinity", Value{false}},
          {"debug", Value{false}},
          {"machine_rank", Value{std::int64_t{0}}},
          {"main_training_function", Value{"main"}},
          {"num_machines", Value{std::int64_t{1}}},
          {"num_processes", Value{std::int64_t{1}}},
          {"rdzv_backend", Value{"static"}},
          {"same_network", Value{true}},
          {"tpu_env", Value{List{}}},
          {"tpu_use_cluster", Value{false}},
          {"tpu_use_sudo", Value{false}}};
}

Map local_config(const Answers& answers, const launcher::Environment& environment,
                 const std::string& folder) {
  Map map = local_defaults();
  put_plain_answers(map, answers);
  put(map, "distributed_type", Value{answers.distributed_type()});
  put(map, "use_cpu",
      Value{answers.is_yes("use_cpu") || answers.text("machine_type") == "MULTI_CPU"});
  if (answers.text("machine_type") == "XLA") put(map, "mixed_precision", Value{"no"});
  if (answers.find("mpirun_hostfile") != nullptr) {
    const std::string path{trim(answers.text("mpirun_hostfile"))};
    put(section_of(map, "mpirun_config"), "mpirun_hostfile",
        Value{launcher::expand_home(path, environment)});
  }
  const bool implied =
      answers.integer("fsdp_version") == 1 && answers.is_yes("fsdp_cpu_ram_efficient_loading");
  if (implied) put(section_of(map, "fsdp_config"), "fsdp_sync_module_states", Value{true});
  if (answers.find("override_linear_precision") != nullptr) {
    List gemms;
    for (const std::string_view id : {"fprop", "dgrad", "wgrad"})
      gemms.emplace_back(answers.is_yes(id));
    put(section_of(map, "fp8_config"), "override_linear_precision", Value{std::move(gemms)});
  }
  put_tpu(map, answers, folder);
  return map;
}

/// Of the original's class for SageMaker.
Map cloud_defaults() {
  return {{"base_job_name", Value{"accelerate-sagemaker-1"}},
          {"debug", Value{false}},
          {"enable_cpu_affinity", Value{false}},
          {"gpu_ids", Value{"all"}},
          {"num_machines", Value{std::int64_t{1}}},
          {"py_version", Value{"py38"}},
          {"pytorch_version", Value{"1.10.2"}},
          {"region", Value{"us-east-1"}},
          {"transformers_version", Value{"4.17.0"}},
          {"use_cpu", Value{false}}};
}

Map cloud_config(const Answers& answers) {
  Map map = cloud_defaults();
  put_plain_answers(map, answers);
  if (answers.integer("role_management") == 1)
    put(map, "iam_role_name", Value{"accelerate_sagemaker_execution_role"});
  // Of these the original keeps the small letters only.
  for (const std::string_view id : {"image_uri", "sagemaker_inputs_file", "sagemaker_metrics_file"})
    if (answers.find(id) != nullptr) put(map, id, Value{to_lower(answers.text(id))});
  const auto instance = answers.text("ec2_instance_type");
  put(map, "ec2_instance_type",
      Value{answers.text("sagemaker_mode") == "NO" ? to_lower(instance) : instance});
  return map;
}

/// Of the original's class for everything but SageMaker.
Map class_defaults() {
  return {{"compute_environment", Value{"LOCAL_MACHINE"}},
          {"debug", Value{false}},
          {"downcast_bf16", Value{false}},
          {"enable_cpu_affinity", Value{false}},
          {"machine_rank", Value{std::int64_t{0}}},
          {"main_training_function", Value{"main"}},
          {"num_machines", Value{std::int64_t{1}}},
          {"num_processes", Value{std::int64_t{-1}}},
          {"rdzv_backend", Value{"static"}},
          {"same_network", Value{false}},
          {"tpu_use_cluster", Value{false}},
          {"tpu_use_sudo", Value{false}},
          {"use_cpu", Value{false}}};
}

Map completed(const Map& keys, const Map& defaults) {
  Map map = keys;
  for (const auto& [key, value] : defaults) {
    if (value_of(map, key) == nullptr) put(map, key, value);
  }
  return without_empty(std::move(map));
}

Error wrong(std::string what) { return {Errc::bad_config, std::move(what)}; }

/// nullopt: one of `names`.
std::optional<Error> check_type(const launcher::Config& old, std::span<const std::string> names) {
  const auto* type = old.find("distributed_type");
  if (type == nullptr) return wrong(old.path + ": distributed_type is missing");
  const bool is_known =
      type->text() != nullptr && std::ranges::find(names, *type->text()) != names.end();
  if (is_known) return std::nullopt;
  const auto read = type->text() != nullptr ? in_quotes(*type->text()) : as_read(*type);
  return wrong(old.where(*type) + ": distributed_type: " + read + " is none of " +
               join(names, ", ") + (type->is_bool() ? ": write 'NO' in quotes" : ""));
}

/// `no` without quotes, which is false in YAML. Of mixed_precision the original, too, writes what
/// was meant.
void quote_no(Map& keys) {
  const auto mend = [](Map& map, std::string_view key, const char* word) {
    const auto found = std::ranges::find(map, key, &Entry::key);
    if (found != map.end() && found->value.is_bool() && !truthy(found->value))
      found->value = Value{word};
  };
  mend(keys, "mixed_precision", "no");
  const auto section = std::ranges::find(keys, "dynamo_config", &Entry::key);
  auto* dynamo = section == keys.end() ? nullptr : std::get_if<Map>(&section->value.data);
  if (dynamo == nullptr) return;
  mend(*dynamo, "dynamo_backend", "NO");
  mend(*dynamo, "backend", "NO");
}

Result<Map> updated_cloud_config(const launcher::Config& old) {
  const std::array<std::string, 3> types{"NO", "DATA_PARALLEL", "MODEL_PARALLEL"};
  if (auto error = check_type(old, types)) return std::move(*error);
  for (const std::string_view key : {"ec2_instance_type", "iam_role_name"})
    if (old.find(key) == nullptr)
      return wrong(old.path + ": " + std::string{key} +
                   " is missing: a file for SageMaker needs it");
  return completed(old.keys, cloud_defaults());
}

}  // namespace

const Value* value_of(const Map& map, std::string_view key) {
  const auto found = std::ranges::find(map, key, &Entry::key);
  return found == map.end() ? nullptr : &found->value;
}

void put(Map& map, std::string_view key, Value value) {
  const auto found = std::ranges::find(map, key, &Entry::key);
  if (found != map.end()) {
    found->value = std::move(value);
  } else {
    map.push_back({std::string{key}, std::move(value)});
  }
}

void put_in_section(Map& map, std::string_view section, std::string_view key, Value value) {
  put(section_of(map, section), key, std::move(value));
}

void put_key(Map& map, const launcher::KeyRow& row, Value value) {
  const auto section = launcher::section_name(row.place);
  if (section.empty()) return put(map, row.name, std::move(value));
  std::erase_if(section_of(map, section), [&](const Entry& entry) {
    return entry.key != row.name && launcher::name_in_section(row.place, entry.key) == row.name;
  });
  put_in_section(map, section, row.name, std::move(value));
}

const Value* value_of_key(const Map& map, const launcher::KeyRow& row) {
  const auto section = launcher::section_name(row.place);
  if (section.empty()) return value_of(map, row.name);
  const auto* keys = value_of(map, section);
  if (keys == nullptr || keys->map() == nullptr) return nullptr;
  const auto found = std::ranges::find_if(*keys->map(), [&](const Entry& entry) {
    return launcher::name_in_section(row.place, entry.key) == row.name;
  });
  return found == keys->map()->end() ? nullptr : &found->value;
}

bool is_key_of_accelerate(std::string_view key) {
  constexpr std::string_view kOptional[] = {
      "command_file",      "commands",        "distributed_type", "gpu_ids",  "main_process_ip",
      "main_process_port", "mixed_precision", "tpu_env",          "tpu_name", "tpu_vm",
      "tpu_zone"};
  const auto row = launcher::section_of(key);
  return row != launcher::Place::nowhere || value_of(class_defaults(), key) != nullptr ||
         std::ranges::find(kOptional, key) != std::end(kOptional);
}

static void empty_to_null(Value& value) {
  auto* map = std::get_if<Map>(&value.data);
  if (map == nullptr) return;
  if (map->empty()) {
    value = Value{};
    return;
  }
  for (auto& entry : *map) empty_to_null(entry.value);
}

Map without_empty(Map map) {
  for (auto& entry : map) empty_to_null(entry.value);
  std::erase_if(map, [](const Entry& entry) { return entry.value.is_none(); });
  return map;
}

Map config_of(const Answers& answers, const launcher::Environment& environment,
              const std::string& folder) {
  return without_empty(answers.is_local() ? local_config(answers, environment, folder)
                                          : cloud_config(answers));
}

Map basic_config(const std::string& precision, const std::string& accelerator,
                 std::uint32_t devices) {
  // With MLUs the original's next question begins anew and finds no device: a file for the CPU.
  const bool is_used = devices > 0 && accelerator != "mlu";
  const auto name = accelerator == "cuda" ? "GPU" : to_upper(accelerator);
  Map map{{"mixed_precision", Value{precision}},
          {"num_processes", Value{std::int64_t{is_used ? devices : 1}}},
          {"use_cpu", Value{!is_used}},
          {"distributed_type", Value{is_used && devices > 1 ? "MULTI_" + name : "NO"}}};
  return completed(map, class_defaults());
}

Result<Map> updated_config(const launcher::Config& old) {
  const auto check = check_config_keys(old);
  const auto* environment = old.find("compute_environment");
  const auto name =
      environment == nullptr ? std::string{"LOCAL_MACHINE"} : python_text(*environment);
  if (!check.complaints.empty()) {
    auto all = check.complaints.front();
    for (std::size_t i = 1; i < check.complaints.size(); ++i)
      all.what += "\n" + check.complaints[i].what;
    return all;
  }
  if (name == "AMAZON_SAGEMAKER") return updated_cloud_config(old);
  if (name != "LOCAL_MACHINE")
    return wrong(old.where(*environment) + ": compute_environment: " + in_quotes(name) +
                 " is neither LOCAL_MACHINE nor AMAZON_SAGEMAKER");
  const auto types = split(launcher::find_key("distributed_type")->choices, ' ');
  if (auto error = check_type(old, types)) return std::move(*error);
  auto keys = old.keys;
  std::erase_if(keys, [](const Entry& entry) { return launcher::was_removed(entry.key); });
  quote_no(keys);
  auto defaults = class_defaults();
  if (python_text(*old.find("distributed_type")) == "NO")
    put(defaults, "num_processes", Value{std::int64_t{1}});
  return completed(keys, defaults);
}

}  // namespace acc::configure
