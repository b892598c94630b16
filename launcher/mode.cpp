#include "launcher/mode.hpp"

#include "common/text.hpp"
#include "launcher/key_table.hpp"

#include <algorithm>

namespace acc::launcher {

using namespace literals;

Mode mode_of(const JobSpec& spec) {
  if (spec.flag("cpu"_key)) return Mode::single;
  if (spec.flag("use_deepspeed"_key)) return Mode::deepspeed;
  if (spec.flag("use_fsdp"_key)) return Mode::fsdp;
  if (spec.flag("use_megatron_lm"_key)) return Mode::megatron;
  if (spec.flag("multi_gpu"_key)) return Mode::multi_gpu;
  if (spec.flag("tpu"_key)) return Mode::tpu;
  return Mode::single;
}

bool mode_is_known(const JobSpec& spec) {
  constexpr Key kFlags[] = {"cpu"_key,       "use_deepspeed"_key,   "use_fsdp"_key,
                            "multi_gpu"_key, "use_megatron_lm"_key, "tpu"_key};
  const auto is_rejected = [&](Key key) { return !spec.can_judge({key}); };
  if (std::ranges::any_of(kFlags, is_rejected)) return false;
  const auto is_flag = [&](Key key) { return spec[key].source == Source::flag; };
  return !is_rejected("distributed_type"_key) || std::ranges::any_of(kFlags, is_flag);
}

bool counts_as_torchrun(const JobSpec& spec) {
  constexpr Key kCounts[] = {"nproc_per_node"_key, "nnodes"_key};
  return std::ranges::any_of(kCounts, [&](Key key) {
    const auto source = spec[key].source;
    return spec.is_given(key) && (source == Source::flag || source == Source::config);
  });
}

std::optional<bool> reshards_after_forward(std::string_view strategy) {
  constexpr std::pair<std::string_view, bool> kStrategies[] = {
      {"FULL_SHARD", true},          {"1", true},  {"SHARD_GRAD_OP", false}, {"2", false},
      {"NO_SHARD", false},           {"3", false}, {"HYBRID_SHARD", true},   {"4", true},
      {"HYBRID_SHARD_ZERO2", false}, {"5", false}};
  const auto name = to_upper(strategy);
  const auto found =
      std::ranges::find(kStrategies, name, &std::pair<std::string_view, bool>::first);
  return found == std::end(kStrategies) ? std::nullopt : std::optional{found->second};
}

namespace {

std::string visible_devices_variable(std::string_view accelerator) {
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"xpu", "ZE_AFFINITY_MASK"},          {"mlu", "MLU_VISIBLE_DEVICES"},
      {"sdaa", "SDAA_VISIBLE_DEVICES"},     {"musa", "MUSA_VISIBLE_DEVICES"},
      {"npu", "ASCEND_RT_VISIBLE_DEVICES"}, {"hpu", "HABANA_VISIBLE_MODULES"},
      {"neuron", "NEURON_RT_VISIBLE_CORES"}};
  const auto found =
      std::ranges::find(kNames, accelerator, &std::pair<std::string_view, std::string_view>::first);
  return std::string{found == std::end(kNames) ? "CUDA_VISIBLE_DEVICES" : found->second};
}

/// "550.40.07" as numbers, to be compared part by part.
std::vector<long> version_parts(std::string_view version) {
  std::vector<long> parts;
  for (const auto& part : split(version, '.'))
    parts.push_back(std::strtol(part.c_str(), nullptr, 10));
  return parts;
}

/// By which Accelerate's library learns a key's value.
bool has_accelerates_variable(const KeyRow& row) {
  constexpr Group kGroups[] = {Group::precision, Group::fsdp, Group::deepspeed,
                               Group::megatron,  Group::fp8,  Group::parallelism};
  return !row.variable.empty() && std::ranges::find(kGroups, row.group) != std::end(kGroups);
}

class Builder {
 public:
  Builder(const JobSpec& spec, HostFacts& facts, const Environment& environment)
      : spec_{spec}, facts_{facts}, environment_{environment} {}

  ModeEnv build(const std::string& interpreter, const std::string& cwd) {
    const auto mode = mode_of(spec_);
    common();
    precision(interpreter);
    absent_gpus();
    if (!mode_is_known(spec_)) return std::move(out_);
    if (mode == Mode::deepspeed) {
      deepspeed(interpreter, cwd);
    } else {
      dynamo();
      const auto threads = "num_cpu_threads_per_process"_key;
      if (spec_.is_set(threads)) variable("OMP_NUM_THREADS", spec_.text(threads));
    }
    if (mode == Mode::single) {
      single();
    } else {
      old_gpus_without_p2p();
      if (mode != Mode::deepspeed && spec_.flag("use_fsdp"_key)) fsdp();
      if (mode != Mode::deepspeed && spec_.flag("use_megatron_lm"_key)) {
        variable("ACCELERATE_USE_MEGATRON_LM", "true");
        group(Group::megatron);
      }
      if (spec_.flag("use_parallelism_config"_key)) parallelism();
    }
    if (counts_as_torchrun(spec_)) leave_defaults_out();
    return std::move(out_);
  }

 private:
  void variable(std::string_view name, std::string value) {
    out_.variables[std::string{name}] = std::move(value);
  }
  void complain(std::string what, Errc code = Errc::bad_config) {
    out_.complaints.push_back({code, std::move(what)});
  }

  void key(const KeyRow& row) {
    auto text = python_text(spec_.value(key_of(row)));
    variable(row.variable, row.shown == Case::lower ? to_lower(text) : std::move(text));
  }

  /// A row without a default is passed on only when it is set.
  void group(Group wanted) {
    for (const auto& row : key_rows()) {
      if (row.group != wanted || row.variable.empty()) continue;
      if (row.initial == nullptr && !spec_.is_set(key_of(row))) continue;
      const auto checked = check_passed_on(row, spec_.value(key_of(row)));
      if (!checked) complain(spec_.name_for_complaint(key_of(row)) + ": " + checked.error().what);
      key(row);
    }
  }

  void common() {
    if (spec_.flag("debug"_key)) variable("ACCELERATE_DEBUG_MODE", "true");
    if (spec_.flag("enable_cpu_affinity"_key)) variable("ACCELERATE_CPU_AFFINITY", "1");
    const auto ids = spec_.text("gpu_ids"_key);
    if (spec_.is_set("gpu_ids"_key) && ids != "all")
      variable(visible_devices_variable(facts_.accelerator()), ids);
  }

  void precision(const std::string& interpreter) {
    const auto key = "mixed_precision"_key;
    const auto word = to_lower(spec_.text(key));
    const auto choices = split(row_of(key).choices, ' ');
    if (std::ranges::find(choices, word) == choices.end()) {
      complain(spec_.name_for_complaint(key) + ": '" + printable(spec_.text(key)) +
               "' is not one of no, fp16, bf16, fp8");
      return;
    }
    variable("ACCELERATE_MIXED_PRECISION", word);
    if (word != "fp8") return;
    if (!facts_.fp8(interpreter)) {
      if (!facts_.shows_packages(interpreter)) {
        warn_of_unseen("Transformer Engine, MS-AMP or torchao, which mixed_precision fp8 needs",
                       interpreter);
        return fp8();
      }
      complain(
          "FP8 is not available on this machine: mixed_precision fp8 needs Transformer Engine, "
          "MS-AMP or torchao in the Python that runs the script (" +
              interpreter + ")",
          Errc::unavailable);
      return;
    }
    fp8();
  }

  /// Whether something is missing only the workers will say then.
  void warn_of_unseen(const std::string& what, const std::string& interpreter) {
    out_.warnings.push_back("whether " + interpreter + " has " + what +
                            ", can't be seen without running it: the workers start all the same");
  }

  void fp8() {
    for (const auto& row : key_rows()) {
      const auto& value = spec_.value(key_of(row));
      if (row.group != Group::fp8 || value.is_none()) continue;
      if (row.type == Type::truths) {
        fp8_overrides(value);
      } else {
        key(row);
      }
    }
    for (const auto& [name, value] : spec_.further_fp8) {
      if (!value.is_none()) variable("ACCELERATE_" + to_upper(name), python_text(value));
    }
  }

  /// The original takes elements 0 to 2 of whatever it finds: characters of a text, too.
  void fp8_overrides(const Value& value) {
    constexpr std::string_view kNames[] = {"ACCELERATE_FP8_OVERRIDE_FPROP",
                                           "ACCELERATE_FP8_OVERRIDE_DGRAD",
                                           "ACCELERATE_FP8_OVERRIDE_WGRAD"};
    std::vector<std::string> items;
    if (value.list() != nullptr) {
      for (const auto& item : *value.list()) items.push_back(python_text(item));
    } else if (value.text() != nullptr) {
      for (const char c : *value.text()) items.emplace_back(1, c);
    }
    if (items.size() < 3) {
      return complain(spec_.name_for_complaint("fp8_override_linear_precision"_key) + ": '" +
                      printable(python_text(value)) +
                      "' must be a list of three booleans, as [false, true, false]");
    }
    for (std::size_t i = 0; i < 3; ++i) variable(kNames[i], items[i]);
  }

  void dynamo() {
    const auto key = "dynamo_backend"_key;
    const auto word = to_lower(spec_.is_set(key) ? spec_.text(key) : "no");
    const auto choices = split(row_of(key).choices, ' ');
    if (std::ranges::find(choices, word) == choices.end() || spec_.value(key).is_bool()) {
      const bool unquoted = spec_.value(key).is_bool();
      complain(spec_.name_for_complaint(key) + ": '" +
               printable(unquoted ? spec_.value(key).spelled : spec_.text(key)) +
               "' is not a dynamo backend" +
               (unquoted ? ": " + as_read(spec_.value(key)) + "; write " +
                               (spec_.value(key).is_json ? "\"no\"" : "'no' in quotes")
                         : ": choose one of " + join(choices, ", ")));
    }
    for (const auto& row : key_rows()) {
      if (row.place == Place::dynamo_config) this->key(row);
    }
    variable("ACCELERATE_DYNAMO_BACKEND", to_upper(word));
  }

  /// torchrun sets none of these: a script under it is configured by what its caller exports, and
  /// torch.compile, for one, takes a variable that is False for another wish than one that is
  /// unset. So a default of the original is written only with the mode that was asked for, and
  /// never over the caller's value.
  void leave_defaults_out() {
    const auto leave = [&](std::string_view name, Group group, bool is_given) {
      if (is_given) return;
      const bool is_of_mode = group != Group::precision && group != Group::processes;
      if (!is_of_mode || environment_.contains(name)) out_.variables.erase(std::string{name});
    };
    for (const auto& row : key_rows()) {
      if (has_accelerates_variable(row))
        leave(row.variable, row.group, spec_.is_given(key_of(row)));
    }
    leave("ACCELERATE_USE_CPU", Group::processes,
          spec_.is_given("cpu"_key) || spec_.is_given("use_cpu"_key));
  }

  void single() {
    const bool cpu = spec_.flag("cpu"_key) || spec_.flag("use_cpu"_key);
    variable("ACCELERATE_USE_CPU", cpu ? "True" : "False");
  }

  void fsdp() {
    if (spec_.flag("fsdp_cpu_ram_efficient_loading"_key) &&
        !spec_.flag("fsdp_sync_module_states"_key) &&
        spec_.can_judge({"fsdp_cpu_ram_efficient_loading"_key, "fsdp_sync_module_states"_key})) {
      complain(spec_.name_for_complaint("fsdp_sync_module_states"_key) +
               ": `--fsdp_cpu_ram_efficient_loading` needs `--fsdp_sync_module_states` to be true: "
               "only rank 0 would have the weights");
    }
    check_reshard();
    variable("ACCELERATE_USE_FSDP", "true");
    group(Group::fsdp);
  }

  /// With version 2 Accelerate reads a word for true or false, and each worker would raise at a
  /// strategy of version 1.
  void check_reshard() {
    const auto key = "fsdp_reshard_after_forward"_key;
    if (spec_.text("fsdp_version"_key) != "2" || !spec_.can_judge({key, "fsdp_version"_key}))
      return;
    const auto word = spec_.text(key);
    const auto meant = reshards_after_forward(word);
    const bool is_strategy = meant || parse_number<std::uint32_t>(word);
    if (!is_strategy || word == "0" || word == "1") return;
    complain(spec_.name_for_complaint(key) + ": '" + printable(word) +
             "' is a sharding strategy of FSDP 1; with fsdp_version 2 write " +
             (!meant   ? "true or false"
              : *meant ? "true"
                       : "false"));
  }

  void deepspeed(const std::string& interpreter, const std::string& cwd) {
    auto version = facts_.deepspeed(interpreter);
    if (version.empty() && !facts_.shows_packages(interpreter)) {
      warn_of_unseen("DeepSpeed, which this job needs", interpreter);
      version = "0";
    }
    if (version.empty()) {
      return complain("DeepSpeed is not installed for the Python that runs the script (" +
                          interpreter + "): run `pip install deepspeed`",
                      Errc::unavailable);
    }
    if (spec_.text("deepspeed_multinode_launcher"_key) == "nossh" &&
        spec_.integer("num_machines"_key).value_or(1) > 1 && version != "0" &&
        version_parts(version) < version_parts("0.14.5")) {
      complain("deepspeed_multinode_launcher nossh needs DeepSpeed 0.14.5 or later, and " +
                   version + " is installed",
               Errc::unavailable);
    }
    variable("ACCELERATE_USE_DEEPSPEED", "true");
    variable("ACCELERATE_CONFIG_DS_FIELDS", to_lower(join(spec_.deepspeed_fields, ",")));
    std::string path;
    for (const auto& part : split(acc::launcher::variable(environment_, "PYTHONPATH"), ':')) {
      if (!part.empty()) path += part + ":";
    }
    variable("PYTHONPATH", path + cwd);
    group(Group::deepspeed);
  }

  void parallelism() {
    variable("ACCELERATE_USE_PARALLELISM_CONFIG", "true");
    const bool context = above_one("parallelism_config_cp_size"_key);
    const bool sequence = above_one("parallelism_config_sp_size"_key);
    for (const auto& row : key_rows()) {
      if (row.group != Group::parallelism) continue;
      if (row.name == "parallelism_config_cp_comm_strategy" && !context) continue;
      if (row.name.starts_with("parallelism_config_sp_") && !row.name.ends_with("_size") &&
          !row.name.ends_with("_backend") && !sequence)
        continue;
      key(row);
    }
  }

  bool above_one(Key size) {
    const auto& value = spec_.value(size);
    if (value.is_bool()) return false;
    if (const auto* number = std::get_if<double>(&value.data)) return *number > 1;
    if (value.integer() == nullptr) {
      complain(spec_.name_for_complaint(size) + ": '" + printable(python_text(value)) +
               "' is not a whole number");
      return false;
    }
    return *value.integer() > 1;
  }

  /// The original says nothing, and the script fails later, or trains on the processor.
  void absent_gpus() {
    if (spec_.flag("cpu"_key) || spec_.flag("use_cpu"_key)) return;
    const auto ids = spec_.text("gpu_ids"_key);
    const bool has_ids = spec_.is_set("gpu_ids"_key) && !ids.empty() && ids != "all";
    if ((!has_ids && !spec_.flag("multi_gpu"_key)) || facts_.gpus() > 0) return;
    out_.warnings.push_back(spec_.name_for_complaint(has_ids ? "gpu_ids"_key : "multi_gpu"_key) +
                            ": no GPU was found on this machine (acc-env shows what is; those "
                            "of AMD and Intel, and under WSL2, aren't looked for): the workers "
                            "start all the same");
  }

  /// RTX 40 cards with drivers before 550.40.07 hang or fail in NCCL's peer-to-peer transport.
  void old_gpus_without_p2p() {
    if (facts_.gpus() < 2 || facts_.accelerator() != "cuda") return;
    const auto names = facts_.gpu_names();
    const bool affected = std::ranges::any_of(
        names, [](const std::string& name) { return name.find("RTX 40") != std::string::npos; });
    if (!affected || version_parts(facts_.driver()) >= version_parts("550.40.07")) return;
    bool changed = false;
    for (const std::string_view name : {"NCCL_P2P_DISABLE", "NCCL_IB_DISABLE"}) {
      if (environment_.contains(name)) continue;
      variable(name, "1");
      changed = true;
    }
    if (changed)
      out_.warnings.push_back(
          "RTX 40 GPUs with this driver don't support fast communication: P2P and IB are disabled "
          "(NCCL_P2P_DISABLE, NCCL_IB_DISABLE). Driver 550.40.07 or later mends it.");
  }

  const JobSpec& spec_;
  HostFacts& facts_;
  const Environment& environment_;
  ModeEnv out_;
};

}  // namespace

ModeEnv mode_environment(const JobSpec& spec, HostFacts& facts, const Environment& environment,
                         const std::string& interpreter, const std::string& cwd) {
  return Builder{spec, facts, environment}.build(interpreter, cwd);
}

DeepspeedEnv deepspeed_env(const Environment& variables) {
  DeepspeedEnv out;
  for (const auto& [name, value] : variables) {
    constexpr std::string_view kForbidden = ";\n<> ";
    const bool is_readable = !name.empty() && !value.empty() &&
                             name.find_first_of(kForbidden) == std::string::npos &&
                             value.find_first_of(kForbidden) == std::string::npos;
    if (!is_readable) {
      out.skipped.push_back(printable(name));
      continue;
    }
    out.lines.push_back(name);
    out.lines.back().append("=").append(value);
  }
  return out;
}

}  // namespace acc::launcher
