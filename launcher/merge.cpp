#include "launcher/merge.hpp"

#include "common/text.hpp"
#include "launcher/key_table.hpp"
#include "launcher/merge_rules.hpp"

#include <algorithm>
#include <vector>

namespace acc::launcher {

using namespace literals;

namespace {

constexpr Key kModeFlags[] = {"multi_gpu"_key,     "tpu"_key,      "tpu_use_cluster"_key,
                              "use_deepspeed"_key, "use_fsdp"_key, "use_megatron_lm"_key};

bool any_given(const CommandLine& line, std::span<const Key> keys) {
  return std::ranges::any_of(keys, [&](Key key) { return line.given(key) != nullptr; });
}

/// How many workers, or where another way to say so is.
constexpr Key kCounts[] = {"nproc_per_node"_key, "nnodes"_key, "num_processes"_key,
                           "num_machines"_key};
/// Accelerate's ways to describe a job, or ours: with one of them the line isn't torchrun's.
constexpr Key kNotTorchruns[] = {"config_file"_key,     "cpu"_key,     "hosts"_key, "hostfile"_key,
                                 "mixed_precision"_key, "gpu_ids"_key, "dynamo_backend"_key};

/// Keys with a rule of their own.
bool is_special(const KeyRow& row) {
  constexpr std::string_view kSpecial[] = {"mixed_precision", "distributed_type",
                                           "compute_environment", "script_args"};
  return std::ranges::find(kSpecial, row.name) != std::end(kSpecial);
}

/// Paths of ours, in which no shell has replaced a `~`: not in the config file, nor in --flag=~/x.
/// Those of the original's sections are passed on as they are.
bool is_our_path(const KeyRow& row) {
  return row.type == Type::path && section_name(row.place).empty();
}

/// 1:3 without quotes is a number in YAML 1.1, namely 63. Of a duration or a count it is one, too.
bool is_base_60(const KeyRow& row, const Value& value) {
  constexpr Type kTextTypes[] = {Type::text, Type::path, Type::address, Type::streams};
  const bool is_number = value.integer() != nullptr || std::get_if<double>(&value.data) != nullptr;
  return is_number && std::ranges::find(kTextTypes, row.type) != std::end(kTextTypes) &&
         value.spelled.find(':') != std::string::npos;
}

/// What such a number isn't.
std::string_view words_meant(const KeyRow& row) {
  if (row.type == Type::streams) return "names no streams";
  return key_of(row) == "nnodes"_key ? "names no machines" : "is what YAML reads there";
}

/// The key of this section that was meant; empty if none is near.
std::string_view nearest_in_section(Place place, std::string_view name) {
  std::vector<std::string_view> names;
  for (const auto& row : key_rows()) {
    if (row.place != place) continue;
    if (row.name.ends_with("_" + std::string{name})) return row.name;  // without its prefix
    names.push_back(row.name);
  }
  return nearest(name, names);
}

class Merger {
 public:
  Merger(const CommandLine& line, const std::optional<Config>& config, HostFacts& facts,
         const Environment& environment)
      : line_{line},
        config_{config},  // a copy: entries that can't be used are dropped
        rules_{merged_.spec, merged_.complaints, facts, environment} {}

  Merged run() {
    for (const auto& option : line_.options)
      spec().set(option.key, with_home(option.key, option.value, option.spelled), Source::flag,
                 option.spelled);
    for (const Key key : line_.rejected) spec().reject(key);
    take_environment();
    check_flags();
    if (config_) {
      take_config();
    } else {
      rules_.scheduler();
      take_torchruns_default();
      rules_.torchrun_counts();
      rules_.guess_without_config();
    }
    rules_.counts();
    rules_.dropped_counts();
    rules_.devices();
    take_script();
    rules_.threads();
    rules_.grace();
    return std::move(merged_);
  }

 private:
  JobSpec& spec() { return merged_.spec; }
  void complain(std::string what, Errc code = Errc::bad_config) {
    merged_.complaints.push_back({code, std::move(what)});
  }

  /// PET_* reach what the original has no option for.
  void take_environment() {
    constexpr std::pair<std::string_view, Key> kFromEnvironment[] = {
        {"PET_RDZV_ID", "rdzv_id"_key},
        {"PET_START_METHOD", "start_method"_key},
        {"PET_REDIRECTS", "redirects"_key}};
    for (const auto& [name, key] : kFromEnvironment) {
      const auto value = rules_.environment(name);
      if (value.empty() || line_.given(key) != nullptr) continue;
      spec().set(key, Value{std::string{value}}, Source::environment, std::string{name});
    }
  }

  /// torchrun's --nproc_per_node 1, where nobody says how many.
  void take_torchruns_default() {
    const auto* const flag = sign_of_torchrun(line_);
    const auto per_node = rules_.environment("PET_NPROC_PER_NODE");
    const bool is_counted = std::ranges::any_of(
        kCounts, [this](Key key) { return spec().is_given(key) || !spec().can_judge({key}); });
    if (flag == nullptr || is_counted) return;
    spec().set("nproc_per_node"_key, Value{per_node.empty() ? "1" : std::string{per_node}},
               Source::flag, per_node.empty() ? flag->spelled : "PET_NPROC_PER_NODE");
  }

  void check_flags() {
    int modes = 0;
    for (const Key key :
         {"cpu"_key, "multi_gpu"_key, "tpu"_key, "use_deepspeed"_key, "use_fsdp"_key})
      modes += spec().flag(key) ? 1 : 0;
    if (modes > 1) {
      complain(
          "You can only use one of `--cpu`, `--multi_gpu`, `--tpu`, `--use_deepspeed`, "
          "`--use_fsdp` at a time",
          Errc::bad_config);
    }
    const auto processes = spec().integer("num_processes"_key);
    if (spec().flag("multi_gpu"_key) && processes && *processes < 2) {
      complain("--multi_gpu needs --num_processes of at least 2, not " +
               std::to_string(*processes) + ": leave --multi_gpu out for one process");
      spec().reject("num_processes"_key);
    }
    if (spec().flag("use_parallelism_config"_key) && !spec().flag("use_fsdp"_key) &&
        spec().can_judge({"use_fsdp"_key})) {
      complain("--use_parallelism_config needs --use_fsdp and --fsdp_version=2");
    }
  }

  void take_config() {
    spec().config_path = config_->path;
    spec().notes = config_->notes;
    check_keys();
    check_shapes();
    take_environment_kind();
    take_top_level();
    take_mode();
    take_sections();
    take_precision();
    rules_.scheduler();
    rules_.torchrun_counts();
    rules_.defaults_with_config();
  }

  void check_keys() {
    auto check = check_config_keys(*config_);
    merged_.complaints.insert(merged_.complaints.end(), check.complaints.begin(),
                              check.complaints.end());
    spec().notes.insert(spec().notes.end(), check.notes.begin(), check.notes.end());
    for (const auto& name : check.meant) {
      if (const auto* row = find_key(name)) spec().reject(key_of(*row));
    }
  }

  /// Complains about lists and mappings that stand for one value, and drops them.
  void check_shapes() {
    std::erase_if(config_->keys, [&](const Entry& entry) {
      const auto* row = find_key(entry.key);
      const bool is_used = row != nullptr && row->place == Place::top && row->group != Group::cloud;
      return is_used && has_wrong_shape(*row, entry);
    });
    for (auto& section : config_->keys) {
      const auto place = section_of(section.key);
      auto* map = std::get_if<Map>(&section.value.data);
      if (place == Place::nowhere || map == nullptr) continue;
      std::erase_if(*map, [&](const Entry& entry) {
        const auto* row = find_key(name_in_section(place, entry.key));
        return row != nullptr && has_wrong_shape(*row, entry);
      });
    }
  }

  bool has_wrong_shape(const KeyRow& row, const Entry& entry) {
    if (line_.given(key_of(row)) != nullptr) return false;
    const auto shape = check_shape(row, entry.value);
    if (shape) return false;
    spec().reject(key_of(row));
    complain(config_->where(entry.value) + ": " + entry.key + ": " + shape.error().what);
    return true;
  }

  void take_environment_kind() {
    const auto* kind = config_->find("compute_environment");
    if (kind == nullptr || kind->is_none() || python_text(*kind) == "LOCAL_MACHINE") return;
    complain(
        config_->where(*kind) + ": compute_environment '" + printable(python_text(*kind)) +
        "' is not supported: only LOCAL_MACHINE is; start SageMaker jobs with `accelerate launch`");
  }

  void take_top_level() {
    for (const auto& entry : config_->keys) {
      const auto* row = find_key(entry.key);
      if (row == nullptr || row->place != Place::top || is_special(*row) || entry.value.is_none())
        continue;
      if (line_.given(key_of(*row)) != nullptr || is_of_other_program(key_of(*row))) continue;
      if (row->group == Group::cloud) {  // not used, so not judged
        spec().set(key_of(*row), Value{python_text(entry.value)}, Source::config,
                   config_->where(entry.value));
        continue;
      }
      take_top_level_key(*row, entry);
    }
  }

  /// How the file's program starts, where the command line says it of another: -m and --no_python
  /// exclude each other.
  [[nodiscard]] bool is_of_other_program(Key key) const {
    return (key == "module"_key && line_.given("no_python"_key) != nullptr) ||
           (key == "no_python"_key && line_.given("module"_key) != nullptr);
  }

  void take_top_level_key(const KeyRow& row, const Entry& entry) {
    const auto where = config_->where(entry.value);
    const auto reject = [&](const std::string& what) {
      spec().reject(key_of(row));
      complain(where + ": " + entry.key + ": " + what);
    };
    if (is_base_60(row, entry.value)) {
      const auto& spelled = entry.value.spelled;
      return reject("'" + python_text(entry.value) + "' " + std::string{words_meant(row)} +
                    ": quote it in YAML: '" + printable(spelled) + "'");
    }
    auto checked = check_value(row, entry.value);
    if (!checked) return reject(checked.error().what);
    spec().set(key_of(row), with_home(key_of(row), *checked, where + ": " + entry.key),
               Source::config, where);
  }

  Value with_home(Key key, Value value, const std::string& whose) {
    if (!is_our_path(row_of(key)) || value.text() == nullptr) return value;
    auto path = expand_home(*value.text(), rules_.all_environment());
    if (path == "~" || path.starts_with("~/"))
      complain(whose + ": '" + printable(path) +
               "': HOME isn't set and this user has no home folder: write the whole path");
    value.data = std::move(path);
    return value;
  }

  void take_mode() {
    const auto* type = config_->find("distributed_type");
    if (type == nullptr) return;
    rules_.distributed_type(*type, config_->where(*type));
    if (any_given(line_, kModeFlags)) return;
    const auto name = spec().text("distributed_type"_key);
    const auto turn_on = [&](Key key) {
      spec().set(key, Value{true}, Source::config, config_->where(*type));
    };
    if (name == "DEEPSPEED") turn_on("use_deepspeed"_key);
    if (name == "FSDP") turn_on("use_fsdp"_key);
    if (name == "MEGATRON_LM") turn_on("use_megatron_lm"_key);
    if (name == "XLA") turn_on("tpu"_key);
    if (name.starts_with("MULTI_") && name != "MULTI_CPU") turn_on("multi_gpu"_key);
    const auto* parallelism = config_->find("parallelism_config");
    if (parallelism != nullptr && parallelism->map() != nullptr && !parallelism->map()->empty())
      turn_on("use_parallelism_config"_key);
  }

  void take_sections() {
    for (const auto& section : config_->keys) {
      const auto place = section_of(section.key);
      if (place == Place::nowhere || section.value.map() == nullptr) continue;
      for (const auto& entry : *section.value.map()) {
        if (place == Place::deepspeed_config) spec().deepspeed_fields.push_back(entry.key);
        take_section_key(place, entry);
      }
    }
  }

  /// An unknown key inside a section is no error: it sets the option of that name, if there is one
  /// (as the original).
  void take_section_key(Place place, const Entry& entry) {
    const auto name = name_in_section(place, entry.key);
    const auto* row = find_key(name);
    if (row == nullptr) {
      if (!name.starts_with("fp8_")) return tell_unknown(place, entry, name);
      spec().further_fp8.emplace_back(name, entry.value);
      return;
    }
    if (line_.given(key_of(*row)) != nullptr) return;
    if (!section_name(row->place).empty()) {
      const auto* list = row->joins_list ? entry.value.list() : nullptr;
      spec().set(key_of(*row), list != nullptr ? Value{joined(*list)} : entry.value, Source::config,
                 config_->where(entry.value));
      return;
    }
    const auto checked = check_value(*row, entry.value);
    if (!checked) {
      spec().reject(key_of(*row));
      return complain(config_->where(entry.value) + ": " + entry.key + ": " + checked.error().what);
    }
    spec().set(key_of(*row), *checked, Source::config, config_->where(entry.value));
  }

  void tell_unknown(Place place, const Entry& entry, const std::string& name) {
    const auto meant = nearest_in_section(place, name);
    std::string note = config_->where(entry.value) + ": ";
    note.append(section_name(place)).append(": '").append(printable(entry.key));
    note += "' is no known key and has no effect";
    if (!meant.empty()) note.append(" (did you mean ").append(meant).append("?)");
    spec().notes.push_back(std::move(note));
  }

  void take_precision() {
    const auto key = "mixed_precision"_key;
    const auto* value = config_->find("mixed_precision");
    if (line_.given(key) != nullptr) return rules_.check_bf16_option();
    if (value == nullptr || value->is_none()) return;
    if (value->text() == nullptr) {
      complain(config_->where(*value) + ": mixed_precision: " + as_read(*value) +
               ", not a precision: write " +
               (value->is_json ? R"("no", "fp16", "bf16" or "fp8")"
                               : "mixed_precision: 'no' in quotes, or fp16, bf16, fp8"));
      return;
    }
    spec().set(key, *value, Source::config, config_->where(*value));
    spec().deepspeed_fields.push_back("mixed_precision");
  }

  void take_script() {
    if (line_.script) {
      spec().script = *line_.script;
      spec().script_args = line_.script_args;
      if (const auto* other = config_ ? config_->find("script") : nullptr)
        spec().script_replaced = config_->where(*other) + ": script: " + python_text(*other);
      const auto* left_out = config_ ? config_->find("script_args") : nullptr;
      if (left_out != nullptr && left_out->list() != nullptr && !left_out->list()->empty())
        spec().notes.push_back(config_->where(*left_out) +
                               ": script_args has no effect: the command line names the script, "
                               "and its arguments stand behind it");
      spec().set("script"_key, Value{*line_.script}, Source::flag, "");
      List words;
      for (const auto& word : line_.script_args) words.emplace_back(word);
      if (!words.empty()) spec().set("script_args"_key, Value{std::move(words)}, Source::flag, "");
      return;
    }
    spec().script = spec().text("script"_key);
    const auto* args = config_ ? config_->find("script_args") : nullptr;
    if (args == nullptr || args->is_none()) return;
    auto checked = check_value(row_of("script_args"_key), *args);
    if (!checked) return complain(config_->where(*args) + ": script_args: " + checked.error().what);
    for (const auto& word : *checked->list()) {
      if (word.is_none() || word.list() != nullptr || word.map() != nullptr) {
        complain_argument(word);
        continue;
      }
      // 0.1 and yes are meant as written here, not as YAML reads them
      spec().script_args.push_back(word.spelled.empty() ? python_text(word) : word.spelled);
    }
    spec().set("script_args"_key, *checked, Source::config, config_->where(*args));
  }

  void complain_argument(const Value& word) {
    const auto where = config_->where(word) + ": script_args: ";
    if (word.is_none())
      return complain(where +
                      "null is no word: write 'null' in quotes if it is meant, or '' for an empty "
                      "argument");
    complain(where + std::string{kind_name(word)} +
             " is no word: write each argument for itself, as [--lr, '0.1'], or in quotes");
  }

  const CommandLine& line_;
  std::optional<Config> config_;
  Merged merged_;
  MergeRules rules_;  // refers to merged_
};

}  // namespace

const GivenOption* sign_of_torchrun(const CommandLine& line) {
  if (any_given(line, kModeFlags) || any_given(line, kCounts) || any_given(line, kNotTorchruns))
    return nullptr;
  const auto* standalone = line.given("standalone"_key);
  return standalone != nullptr ? standalone : line.given("rdzv_endpoint"_key);
}

bool wants_default_config(const CommandLine& line) {
  return line.given("cpu"_key) == nullptr && line.given("nproc_per_node"_key) == nullptr &&
         line.given("nnodes"_key) == nullptr && sign_of_torchrun(line) == nullptr;
}

Merged merge(const CommandLine& line, const std::optional<Config>& config, HostFacts& facts,
             const Environment& environment) {
  return Merger{line, config, facts, environment}.run();
}

}  // namespace acc::launcher
