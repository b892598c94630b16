#include "launcher/configure/known_line.hpp"

#include "common/text.hpp"
#include "launcher/cli.hpp"
#include "launcher/configure/config_map.hpp"
#include "launcher/configure/deepspeed_line.hpp"
#include "launcher/configure/refusals.hpp"
#include "launcher/configure/torchrun_settings.hpp"
#include "launcher/configure/unexpanded.hpp"
#include "launcher/host_list.hpp"
#include "launcher/hosts_flags.hpp"
#include "launcher/key_table.hpp"
#include "launcher/merge.hpp"
#include "launcher/setting_parsers.hpp"

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <utility>

namespace acc::configure {

using namespace launcher::literals;
using launcher::CommandLine;
using launcher::Key;
using launcher::Place;

namespace {

constexpr const char* kCounts[] = {"num_processes", "nproc_per_node", "nnodes"};

/// torchrun's and Accelerate's flags, which acc-launch knows all.
class KnownFlags {
 public:
  KnownFlags(const CommandLine& line, bool is_torchrun, const LineContext& context)
      : line_{line},
        is_torchrun_{is_torchrun || launcher::sign_of_torchrun(line) != nullptr},
        is_on_hosts_{launcher::is_on_hosts(line)},
        context_{context} {
    done_.map = context.base;
    if (!context.base_path.empty() && !is_given("config_file"_key))
      done_.notes.push_back("the line reads " + in_quotes(context.base_path) +
                            ", the file in the default place: its keys are taken over");
  }

  Result<ForeignLine> read() {
    for (const auto place : line_.foreign)
      done_.notes.push_back("left out: " + line_.complaints[place].what);
    for (const auto& option : line_.options) take(option);
    drop_unused_parallelism();
    take_counts();
    take_count_of_launcher();
    take_type();
    take_one_device();
    take_endpoint();
    if (is_counted_per_machine_) put_torchrun_settings(done_, context_.environment);
    if (line_.script) done_.command.push_back(*line_.script);
    for (const auto& word : line_.script_args) done_.command.push_back(word);
    if (!complaints_.empty()) return joined(complaints_);
    return std::move(done_);
  }

 private:
  [[nodiscard]] bool is_given(Key key) const { return line_.given(key) != nullptr; }
  [[nodiscard]] std::string word(Key key) const {
    const auto* option = line_.given(key);
    return option == nullptr ? std::string{} : option->word;
  }

  void take(const launcher::GivenOption& option) {
    const auto& row = launcher::row_of(option.key);
    constexpr Key kElsewhere[] = {"config_file"_key,
                                  "cpu"_key,
                                  "multi_gpu"_key,
                                  "use_deepspeed"_key,
                                  "use_fsdp"_key,
                                  "use_megatron_lm"_key,
                                  "use_parallelism_config"_key,
                                  "nproc_per_node"_key,
                                  "nnodes"_key,
                                  "rdzv_endpoint"_key};
    if (std::ranges::find(kElsewhere, option.key) != std::end(kElsewhere)) return;
    if (is_of_deepspeed_file(row.name) && reads_deepspeed_file()) {
      done_.notes.push_back(option.spelled +
                            " stays a flag: in a file Accelerate refuses it beside "
                            "deepspeed_config_file");
      return keep_flag(row, option.word);
    }
    if (row.place != Place::nowhere) return put_key(done_.map, row, option.value);
    done_.notes.push_back(option.spelled + " is no key of a config file: it stays a flag");
    if (option.key != "env"_key) return keep_flag(row, option.word);
    for (const auto& variable : line_.env) keep_flag(row, variable);
  }

  /// Its section in a file turns it on. A line with a flag for the mode ignores that of its file.
  void drop_unused_parallelism() {
    constexpr Key kModes[] = {"multi_gpu"_key, "use_deepspeed"_key, "use_fsdp"_key,
                              "use_megatron_lm"_key};
    constexpr const char* kSection = "parallelism_config";
    const auto* of_file = value_of(context_.base, kSection);
    const bool is_on_in_file =
        of_file != nullptr && of_file->map() != nullptr && !of_file->map()->empty() &&
        std::ranges::none_of(kModes, [this](Key key) { return is_given(key); });
    if (is_on_in_file || is_given("use_parallelism_config"_key)) return;
    if (value_of(done_.map, kSection) == nullptr) return;
    drop({kSection});
    done_.notes.emplace_back(
        "left out: parallelism_config, which the line doesn't turn on (--use_parallelism_config)");
  }

  [[nodiscard]] bool reads_deepspeed_file() const {
    const auto file = word("deepspeed_config_file"_key);
    return file.empty() ? has_deepspeed_file(done_.map) : file != "none";
  }

  void keep_flag(const launcher::KeyRow& row, const std::string& word) {
    const auto name = "--" + std::string{row.name};
    if (word.starts_with('-')) return done_.flags.push_back(name + "=" + word);
    done_.flags.push_back(name);
    if (!word.empty()) done_.flags.push_back(word);
  }

  /// torchrun counts per machine, a config file over all. What isn't a plain number can be said
  /// with torchrun's words only, which acc-launch takes as keys.
  void take_counts() {
    const bool is_counted = is_given("nproc_per_node"_key) || is_given("nnodes"_key);
    is_counted_per_machine_ = is_torchrun_ || is_counted;
    if (is_on_hosts_) return take_counts_of_hosts();
    if (!is_counted_per_machine_) return drop_counts_per_machine();
    const auto workers = workers_per_machine();
    const auto nodes = count_in({"nnodes", "num_machines"});
    drop({"num_processes", "nproc_per_node", "num_machines", "nnodes"});
    const auto workers_count = parse_number<std::int64_t>(workers);
    const auto nodes_count = parse_number<std::int64_t>(nodes);
    // num_processes: 1 is a plain process, without a rank, unless the type is MULTI_GPU. And
    // torchrun leaves all cores to a worker that is alone on its machine.
    const bool is_alone = workers_count == 1 && (is_torchrun_ || nodes_count == 1);
    if (workers_count && nodes_count && !is_alone) {
      put(done_.map, "num_processes", Value{*workers_count * *nodes_count});
      return put(done_.map, "num_machines", Value{*nodes_count});
    }
    put(done_.map, "nproc_per_node", Value{workers});
    put(done_.map, "nnodes", Value{nodes});
  }

  /// The value of the first of the keys, of the line or else of its file, that is set; "1".
  [[nodiscard]] std::string count_in(std::initializer_list<const char*> keys) const {
    for (const auto* key : keys) {
      const auto* option = line_.given(launcher::key_of(*launcher::find_key(key)));
      if (option != nullptr) return option->word;
    }
    for (const auto* key : keys)
      if (const auto* value = value_of(done_.map, key); value != nullptr)
        return python_text(*value);
    return "1";
  }

  /// The caller's environment may say it for a line that says nothing of counts.
  [[nodiscard]] std::string workers_per_machine() const {
    const std::string in_environment{
        launcher::variable(context_.environment, "PET_NPROC_PER_NODE")};
    const bool is_left = is_torchrun_ && !is_given("nproc_per_node"_key) &&
                         !is_given("nnodes"_key) &&
                         value_of(done_.map, "nproc_per_node") == nullptr;
    return is_left && !in_environment.empty() ? in_environment : count_in({"nproc_per_node"});
  }

  void drop(std::initializer_list<std::string_view> keys) {
    std::erase_if(done_.map, [&](const Entry& entry) {
      return std::ranges::find(keys, entry.key) != keys.end();
    });
  }

  /// --num_processes beats the counts per machine of the file, which can't have both.
  void drop_counts_per_machine() {
    if (!is_given("num_processes"_key)) return;
    const auto nodes = parse_number<std::int64_t>(count_in({"num_machines", "nnodes"}));
    if (value_of(done_.map, "nnodes") != nullptr && nodes)
      put(done_.map, "num_machines", Value{*nodes});
    drop({"nproc_per_node", "nnodes"});
  }

  /// On each host; in a file they would be of the whole job. Without any it is one worker a host.
  void take_counts_of_hosts() {
    for (const Key key : {"nproc_per_node"_key, "nnodes"_key})
      if (is_given(key)) keep_flag(launcher::row_of(key), word(key));
    if (is_given("nproc_per_node"_key) || value_of(done_.map, "num_processes") != nullptr) return;
    auto hosts = launcher::parse_hosts(word("hosts"_key)).hosts;
    if (is_given("hostfile"_key)) {
      const auto text = context_.read_file(word("hostfile"_key));
      if (!text)
        return complaints_.push_back({Errc::bad_usage, "--hostfile: " + text.error().what});
      auto more = launcher::parse_hostfile(*text, word("hostfile"_key)).hosts;
      std::ranges::move(more, std::back_inserter(hosts));
    }
    const bool has_slots = std::ranges::any_of(
        hosts, [](const launcher::Host& host) { return host.slots.has_value(); });
    if (!has_slots) keep_flag(launcher::row_of("nproc_per_node"_key), "1");
  }

  /// Where nothing says how many workers: a file must, unless its type is NO.
  void take_count_of_launcher() {
    const bool is_counted = std::ranges::any_of(
        kCounts, [this](const char* key) { return value_of(done_.map, key) != nullptr; });
    if (is_counted || is_torchrun_ || is_on_hosts_) return;
    const auto put_count = [this](std::int64_t count, const std::string& by) {
      put(done_.map, "num_processes", Value{count});
      done_.notes.push_back(
          "the line leaves num_processes to the launcher: " + std::to_string(count) + by);
    };
    if (!context_.base_path.empty()) return put_count(1, ", the default of a file of type NO");
    if (is_given("cpu"_key)) {
      keep_threads();
      return put_count(1, " with --cpu");
    }
    const auto ids = word("gpu_ids"_key);
    if (!ids.empty() && ids != "all")
      return put_count(std::ssize(split(ids, ',')), " by --gpu_ids");
    put_count(std::max(context_.gpus, 1U), " by the devices of this machine");
  }

  /// By the devices there are N processes, of which --cpu starts one with its share of the cores;
  /// none: a single thread. A file that counts one process gives it all cores.
  void keep_threads() {
    if (is_given("num_cpu_threads_per_process"_key) ||
        context_.environment.contains("OMP_NUM_THREADS"))
      return;
    const auto share = context_.gpus == 0 ? 1U : context_.cores / context_.gpus;
    const auto threads = std::max(1U, share);
    if (threads == context_.cores) return;
    const auto& row = launcher::row_of("num_cpu_threads_per_process"_key);
    keep_flag(row, std::to_string(threads));
    done_.notes.push_back("the line gives its process OMP_NUM_THREADS=" + std::to_string(threads) +
                          ", and the file by itself " + std::to_string(context_.cores) +
                          ": the printed command has a flag for it");
  }

  void take_type() {
    constexpr std::pair<Key, const char*> kTypes[] = {{"use_deepspeed"_key, "DEEPSPEED"},
                                                      {"use_fsdp"_key, "FSDP"},
                                                      {"use_megatron_lm"_key, "MEGATRON_LM"},
                                                      {"multi_gpu"_key, "MULTI_GPU"}};
    if (is_given("cpu"_key)) put(done_.map, "use_cpu", Value{true});
    if (is_given("cpu"_key) || word("nproc_per_node"_key) == "cpu")
      return put(done_.map, "distributed_type", Value{is_single() ? "NO" : "MULTI_CPU"});
    for (const auto& [flag, type] : kTypes)
      if (is_given(flag)) return put(done_.map, "distributed_type", Value{type});
    if (value_of(done_.map, "distributed_type") != nullptr) return;
    const bool has_ranks = is_torchrun_ || is_on_hosts_ || !is_single();
    put(done_.map, "distributed_type", Value{has_ranks ? "MULTI_GPU" : "NO"});
  }

  [[nodiscard]] bool is_single() const {
    const auto* count = value_of(done_.map, "num_processes");
    return count != nullptr && count->integer() != nullptr && *count->integer() <= 1;
  }

  /// A file of type MULTI_GPU must name two devices. torchrun's count starts workers that share
  /// one.
  void take_one_device() {
    const auto* type = value_of(done_.map, "distributed_type");
    const auto ids = word("gpu_ids"_key);
    const bool is_one = !ids.empty() && ids != "all" && ids.find(',') == std::string::npos;
    const auto* count = value_of(done_.map, "num_processes");
    const bool is_here = count_in({"num_machines"}) == "1";
    if (!is_one || !is_here || python_text(*type) != "MULTI_GPU") return;
    put(done_.map, "distributed_type", Value{"NO"});
    if (count == nullptr) return;
    const Value workers{python_text(*count)};
    drop({"num_processes"});
    put(done_.map, "nproc_per_node", workers);
  }

  void take_endpoint() {
    const auto endpoint = word("rdzv_endpoint"_key);
    if (endpoint.empty()) return;
    const auto parsed = launcher::parse_endpoint(endpoint);
    const bool is_one =
        endpoint.find(',') == std::string::npos && endpoint.find(']') == std::string::npos;
    const bool is_of_machines = word("rdzv_backend"_key).find("etcd") == std::string::npos;
    // Beside an endpoint they are of the workers' store, as is the port of a single machine.
    const bool has_store = is_given("main_process_ip"_key) || is_given("main_process_port"_key) ||
                           count_in({"nnodes", "num_machines"}) == "1";
    if (!parsed || !parsed->port || !is_one || !is_of_machines || has_store)
      return put(done_.map, "rdzv_endpoint", Value{endpoint});
    put(done_.map, "main_process_ip", Value{parsed->host});
    put(done_.map, "main_process_port", Value{std::int64_t{*parsed->port}});
  }

  const CommandLine& line_;
  bool is_torchrun_;
  bool is_on_hosts_;
  bool is_counted_per_machine_ = false;
  const LineContext& context_;
  ForeignLine done_;
  Complaints complaints_;
};

}  // namespace

Result<ForeignLine> read_known(std::span<const std::string> words, bool is_torchrun,
                               const LineContext& context) {
  const auto line = launcher::parse_command_line(words);
  const auto behind = line.script_args.size() + (line.script ? 1 : 0);
  const auto unexpanded = unexpanded_values(words.first(words.size() - behind));
  if (!unexpanded.empty()) return joined(unexpanded);
  const auto complaints = refusals(line, context.base_path, context.base);
  if (!complaints.empty()) return joined(complaints);
  return KnownFlags{line, is_torchrun, context}.read();
}

}  // namespace acc::configure
