#include "launcher/merge_rules.hpp"

#include "common/text.hpp"
#include "launcher/key_table.hpp"
#include "launcher/mode.hpp"
#include "launcher/scheduler_rules.hpp"
#include "launcher/setting_parsers.hpp"

#include <algorithm>

namespace acc::launcher {

using namespace literals;

void MergeRules::distributed_type(const Value& value, const std::string& where) {
  const auto& row = row_of("distributed_type"_key);
  if (value.is_bool() && !truthy(value)) {
    // The original goes on with False: one plain process, but without NO's default of
    // num_processes.
    if (!spec_.is_given("num_processes"_key)) {
      complain(
          where + ": distributed_type: " + as_read(value) +
          ", so num_processes has no default here: write " +
          (value.is_json ? R"("distributed_type": "NO")" : "distributed_type: 'NO' in quotes") +
          ", or give --num_processes");
      spec_.set("num_processes"_key, Value{std::int64_t{1}}, Source::by_default, "");
    } else {
      spec_.notes.push_back(where + ": distributed_type: " + as_read(value) + "; taken as 'NO'. " +
                            (value.is_json ? R"(Write "NO".)" : "Quote it."));
    }
    spec_.set("distributed_type"_key, Value{"NO"}, Source::config, where);
    return;
  }
  const auto* text = value.text();
  if (text != nullptr && *text == "TPU") {  // XLA's name in earlier versions
    spec_.reject("distributed_type"_key);
    complaints_.push_back({Errc::bad_config, where + ": distributed_type 'TPU': " + kNoTpu});
    return;
  }
  const auto choices = split(row.choices, ' ');
  if (text == nullptr || std::ranges::find(choices, *text) == choices.end()) {
    const std::vector<std::string_view> names{choices.begin(), choices.end()};
    const auto spelled = value.spelled.empty() ? python_text(value) : value.spelled;
    const auto known = nearest(to_upper(spelled), names);
    complain(where + ": distributed_type '" + printable(spelled) + "' is not one of " +
             join(choices, ", ") +
             (known.empty() ? "" : " (did you mean " + std::string{known} + "?)"));
    spec_.set("distributed_type"_key, Value{}, Source::config, where);
    spec_.reject("distributed_type"_key);
    return;
  }
  spec_.set("distributed_type"_key, value, Source::config, where);
}

void MergeRules::guess(Key key, Value value) {
  spec_.defaulted.emplace_back(row_of(key).name, python_text(value));
  spec_.set(key, std::move(value), Source::guessed, "guessed");
}

void MergeRules::guess_without_config() {
  if (!spec_.is_set("num_processes"_key))
    guess("num_processes"_key, Value{std::int64_t{facts_.gpus()}});
  const bool torchrun = spec_.is_given("nproc_per_node"_key) || spec_.is_given("nnodes"_key);
  if (!torchrun && !spec_.flag("multi_gpu"_key) && !spec_.flag("tpu"_key) &&
      spec_.integer("num_processes"_key).value_or(0) > 1 && facts_.gpus() > 1) {
    spec_.multi_gpu_was_guessed = true;
    spec_.set("multi_gpu"_key, Value{true}, Source::guessed, "more than one GPU found");
  }
  if (!spec_.is_set("num_machines"_key)) guess("num_machines"_key, Value{std::int64_t{1}});
  if (!spec_.is_set("mixed_precision"_key)) guess("mixed_precision"_key, Value{"no"});
  if (!spec_.is_set("dynamo_backend"_key)) guess("dynamo_backend"_key, Value{"no"});
  if (torchrun) spec_.defaulted.clear();  // torchrun tells nothing of the kind
  spec_.set("use_cpu"_key, spec_.value("cpu"_key), Source::by_default, "");
}

void MergeRules::defaults_with_config() {
  const auto fill = [&](Key key, Value value) {
    if (!spec_.is_set(key)) spec_.set(key, std::move(value), Source::by_default, "");
  };
  const bool no = spec_.text("distributed_type"_key) == "NO";
  fill("num_processes"_key, Value{std::int64_t{no ? 1 : -1}});
  fill("num_machines"_key, Value{std::int64_t{1}});
  fill("machine_rank"_key, Value{std::int64_t{0}});
  fill("gpu_ids"_key, Value{"all"});
  fill("mixed_precision"_key, Value{"no"});
  fill("dynamo_backend"_key, Value{"no"});
  if (spec_.integer("num_processes"_key) == -1 && !spec_.is_given("num_processes"_key) &&
      spec_.can_judge({"num_processes"_key, "distributed_type"_key})) {
    // The hosts may say how many by their slots (hosts_plan.cpp).
    if (!spec_.is_given("hosts"_key) && !spec_.is_given("hostfile"_key))
      complain(spec_.config_path +
               ": num_processes is not set: write it there or give --num_processes");
    spec_.reject("num_processes"_key);
  }
  const auto ids = spec_.text("gpu_ids"_key);
  if (spec_.flag("multi_gpu"_key) && spec_.can_judge({"gpu_ids"_key, "num_machines"_key}) &&
      ids != "all" && ids.find(',') == std::string::npos &&
      spec_.integer("num_machines"_key).value_or(1) <= 1) {
    complain(spec_.name_for_complaint("gpu_ids"_key) + ": gpu_ids '" + printable(ids) +
             "' names fewer than two devices for multi-GPU training: name at least two, or write "
             "gpu_ids: all");
  }
}

void MergeRules::scheduler() { apply_scheduler(spec_, complaints_, facts_, environment_); }

std::optional<std::int64_t> MergeRules::workers_per_node(const std::string& given) {
  const std::string word{trim(given)};
  if (word == "cpu") return facts_.logical_cores();
  if (word == "auto") return facts_.gpus() > 0 ? facts_.gpus() : facts_.logical_cores();
  if (word == "gpu") {
    if (facts_.gpus() > 0) return facts_.gpus();
    complain(spec_.name_for_complaint("nproc_per_node"_key) +
             ": 'gpu': no GPU was found on this machine");
    return std::nullopt;
  }
  const auto number = parse_number<std::int64_t>(word);
  if (number && *number > 0) return number;
  complain(spec_.name_for_complaint("nproc_per_node"_key) + ": '" + printable(word) +
           "' is not a number of workers: write a number from 1, cpu, gpu or auto");
  return std::nullopt;
}

void MergeRules::reject_counts(bool machines_too) {
  spec_.reject("num_processes"_key);
  if (machines_too) spec_.reject("num_machines"_key);
}

// A flag beats the file's way of counting, whichever of the two it is.
void MergeRules::drop_beaten_counts() {
  const auto drop_beaten = [&](Key theirs, Key ours) {
    if (is_flag(ours) && !is_flag(theirs))
      spec_.set(theirs, default_value(row_of(theirs)), Source::by_default, "");
  };
  drop_beaten("nproc_per_node"_key, "num_processes"_key);
  drop_beaten("nnodes"_key, "num_machines"_key);
}

void MergeRules::torchrun_counts() {
  drop_beaten_counts();
  const bool per_node = spec_.is_given("nproc_per_node"_key);
  const bool nodes_given = spec_.is_given("nnodes"_key);
  if (!spec_.can_judge({"nnodes"_key})) reject_counts(true);
  if (!spec_.can_judge({"nproc_per_node"_key})) reject_counts(false);
  if (!per_node && !nodes_given) return;
  // Two ways in one place contradict each other.
  const auto clashes = [&](Key ours, Key theirs) {
    return spec_.is_given(ours) && spec_.is_given(theirs) &&
           spec_[ours].source == spec_[theirs].source;
  };
  if (clashes("num_processes"_key, "nproc_per_node"_key) ||
      clashes("num_processes"_key, "nnodes"_key)) {
    complain(
        "--num_processes counts workers over all machines, --nproc_per_node and --nnodes count per "
        "machine as torchrun does: use one of the two ways");
    return reject_counts(nodes_given);
  }
  if (clashes("num_machines"_key, "nnodes"_key)) {
    complain("--num_machines and --nnodes say the same thing: give one of them");
    return reject_counts(true);
  }
  NodeRange nodes{static_cast<std::uint32_t>(
                      std::max<std::int64_t>(1, spec_.integer("num_machines"_key).value_or(1))),
                  1};
  if (nodes_given) {
    const auto parsed = parse_nodes(spec_.text("nnodes"_key));
    if (!parsed) {
      complain(spec_.name_for_complaint("nnodes"_key) + ": " + parsed.error().what);
      return reject_counts(true);
    }
    nodes = *parsed;
  } else {
    nodes.max = nodes.min;
  }
  const auto workers = workers_per_node(per_node ? spec_.text("nproc_per_node"_key) : "1");
  if (!workers) return reject_counts(false);
  const Key who = per_node ? "nproc_per_node"_key : "nnodes"_key;
  spec_.set("num_machines"_key, Value{std::int64_t{nodes.max}}, spec_[who].source,
            spec_[who].origin);
  if (per_node || !is_flag("num_processes"_key))
    spec_.set("num_processes"_key, Value{*workers * nodes.max}, spec_[who].source,
              spec_[who].origin);
  if (!spec_.is_set("machine_rank"_key))
    spec_.set("machine_rank"_key, Value{std::int64_t{0}}, Source::by_default, "");
}

void MergeRules::counts() {
  for (const Key key : {"num_processes"_key, "num_machines"_key}) {
    const auto number = spec_.integer(key).value_or(0);
    if (number == 0 && key == "num_processes"_key && spec_.is_given(key) && spec_.can_judge({key}))
      spec_.notes.push_back(spec_.name_for_complaint(key) +
                            " is 0: not no worker, but one plain process without RANK, as "
                            "accelerate does; write a number from 1");
    if (number >= 0 || !spec_.is_given(key) || !spec_.can_judge({key})) continue;
    complain(spec_.name_for_complaint(key) + ": " + std::to_string(number) +
             " is no count: write a number from 1");
    spec_.reject(key);
  }
  const auto machines = spec_.integer("num_machines"_key).value_or(1);
  const auto rank = spec_.integer("machine_rank"_key).value_or(0);
  if (machines < 2 && rank != 0 && spec_.can_judge({"machine_rank"_key, "num_machines"_key})) {
    complain(spec_.name_for_complaint("machine_rank"_key) + ": " + std::to_string(rank) +
             " is out of range: this job has one machine, and its number is 0 (for more give "
             "--num_machines or --nnodes)");
    spec_.reject("machine_rank"_key);
  }
  if (!spec_.flag("standalone"_key) || machines < 2 || !spec_.can_judge({"num_machines"_key}))
    return;
  const Key who = spec_.is_given("nnodes"_key) ? "nnodes"_key : "num_machines"_key;
  complain(spec_.name_for_complaint("standalone"_key) + " is a job on this machine alone, but " +
           spec_.name_for_complaint(who) + " says " + printable(spec_.text(who)) +
           " machines: leave one of them out");
  spec_.reject("standalone"_key);
  reject_counts(true);
}

void MergeRules::dropped_counts() {
  const auto type = "distributed_type"_key;
  if (spec_.text(type) != "NO" || spec_[type].source != Source::config ||
      mode_of(spec_) != Mode::single || spec_.is_set("mpirun_hostfile"_key) ||
      spec_.is_given("nproc_per_node"_key) || spec_.is_given("nnodes"_key))
    return;
  std::vector<std::string> dropped;
  for (const Key key : {"num_processes"_key, "num_machines"_key}) {
    const bool counts = is_flag(key) || spec_[key].source == Source::config;
    if (counts && spec_.integer(key).value_or(0) > 1)
      dropped.push_back(spec_.name_for_complaint(key) + " " + spec_.text(key));
  }
  if (dropped.empty()) return;
  // --cpu leaves the default file out, not one that is named.
  const bool is_named = spec_.is_given("config_file"_key);
  spec_.notes.push_back(join(dropped, " and ") + (dropped.size() == 1 ? " has" : " have") +
                        " no effect: " + spec_[type].origin +
                        " says distributed_type: NO, one process without RANK; add --multi_gpu" +
                        (is_named ? "" : ", --cpu") + " or --nproc_per_node N");
}

namespace {

/// As the driver's variables take them: 3, 0.1 (a tile), 0-3, -1 (none), GPU-5ab1…, MIG-….
bool is_device(std::string_view word) {
  if (word.starts_with("GPU-") || word.starts_with("MIG-")) return word.size() > 4;
  if (word == "-1") return true;
  const auto between = word.find_first_of(".-");
  const auto number = [](std::string_view text) {
    return parse_number<std::uint32_t>(text).has_value();
  };
  if (between == std::string_view::npos) return number(word);
  return number(word.substr(0, between)) && number(word.substr(between + 1));
}

}  // namespace

void MergeRules::devices() {
  const auto key = "gpu_ids"_key;
  const auto ids = spec_.text(key);
  if (ids.empty() || ids == "all" || !spec_.can_judge({key})) return;
  for (const auto& word : split(ids, ',')) {
    if (is_device(trim(word))) continue;
    complain(spec_.name_for_complaint(key) + ": '" + printable(word) +
             "' is no device: write numbers, as 0,1,4, or all");
    return spec_.reject(key);
  }
}

void MergeRules::check_bf16_option() {
  // Since torch 2.4 is_bf16_supported() counts emulation, so that accelerate refuses no NVIDIA GPU.
  const bool is_emulated = spec_.text("mixed_precision"_key) == "bf16" && !spec_.flag("tpu"_key) &&
                           facts_.gpus() > 0 && !facts_.bf16();
  if (is_emulated) {
    spec_.notes.push_back(
        "--mixed_precision: the GPU here computes bf16 by emulation, slowly: fp16 is faster");
  }
}

std::int64_t MergeRules::number_from(std::initializer_list<std::string_view> names,
                                     std::int64_t otherwise) {
  for (const auto name : names) {
    const auto found = environment_.find(name);
    if (found == environment_.end()) continue;
    const auto number = parse_value(row_of("num_processes"_key), found->second);
    if (!number) {
      complain("environment variable " + std::string{name} + ": '" + printable(found->second) +
               "' is not a whole number");
      return otherwise;
    }
    if (*number->integer() >= 0) return *number->integer();
  }
  return otherwise;
}

namespace {

/// OpenMP takes an empty value as none, and "4,2" as one number for each level of nested threads.
bool is_for_openmp_alone(std::string_view threads) {
  const auto is_number = [](const std::string& word) {
    return parse_number<std::uint32_t>(trim(word)).has_value();
  };
  if (trim(threads).empty()) return true;
  const auto levels = split(threads, ',');
  return levels.size() > 1 && std::ranges::all_of(levels, is_number);
}

}  // namespace

void MergeRules::grace() {
  const auto key = "grace"_key;
  if (spec_.is_given(key)) return;
  constexpr const char* kName = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT";
  const auto text = environment(kName);
  if (text.empty()) {
    if (counts_as_torchrun(spec_)) spec_.set(key, Value{"30"}, Source::by_default, "");
    return;
  }
  const auto value = parse_value(row_of(key), std::string{text});
  if (!value)
    return complain("environment variable " + std::string{kName} + ": " + value.error().what);
  spec_.set(key, *value, Source::environment, kName);
}

void MergeRules::threads() {
  const auto key = "num_cpu_threads_per_process"_key;
  const auto given = spec_.integer(key).value_or(1);
  if (given < 1 && spec_.is_given(key) && spec_.can_judge({key}))
    spec_.notes.push_back(spec_.name_for_complaint(key) + " is " +
                          std::to_string(given) + ": OpenMP takes no such OMP_NUM_THREADS, and "
                          "chooses a number itself; write a number from 1");
  if (spec_.is_set(key)) return;
  if (environment_.contains("OMP_NUM_THREADS") &&
      is_for_openmp_alone(environment("OMP_NUM_THREADS")))
    return;  // it is passed on as it is
  const auto complaints_before = complaints_.size();
  const auto from_caller = number_from({"OMP_NUM_THREADS"}, 1);
  const bool inherited = environment_.contains("OMP_NUM_THREADS");
  spec_.set(key, Value{from_caller}, inherited ? Source::environment : Source::by_default,
            inherited ? "OMP_NUM_THREADS" : "");
  if (complaints_.size() != complaints_before) return;
  const auto processes = spec_.integer("num_processes"_key).value_or(0);
  if (!spec_.flag("use_cpu"_key) || processes < 1 || number_from({"OMP_NUM_THREADS"}, 0) != 0)
    return;
  const auto machines = std::max<std::int64_t>(1, spec_.integer("num_machines"_key).value_or(1));
  const auto local =
      number_from({"MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE"},
                  std::max<std::int64_t>(processes / machines, 1));
  const auto each = facts_.physical_cores() / std::max<std::int64_t>(local, 1);
  if (each > 1) guess(key, Value{static_cast<std::int64_t>(each)});
}

}  // namespace acc::launcher
