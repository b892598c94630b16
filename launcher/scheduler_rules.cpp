#include "launcher/scheduler_rules.hpp"

#include "common/endpoint.hpp"
#include "common/text.hpp"
#include "launcher/key_table.hpp"
#include "launcher/mode.hpp"
#include "launcher/scheduler.hpp"
#include "launcher/setting_parsers.hpp"

#include <algorithm>

namespace acc::launcher {

using namespace literals;

namespace {

class Rules {
 public:
  Rules(const Placement& place, JobSpec& spec, Complaints& complaints, HostFacts& facts,
        const Environment& environment)
      : place_{place},
        spec_{spec},
        complaints_{complaints},
        facts_{facts},
        environment_{environment} {}

  void apply() {
    const auto given = given_machines();
    if ((given && *given < 2) || (!given && is_plain())) return stay_alone();
    if (!given && place_.machines == 0) return;
    user_counts_ = given.has_value();
    for (const auto& finding : place_.settings) take(finding);
    if (!place_.job.empty()) fill("rdzv_id"_key, place_.job);
    if (place_.settings.empty()) {
      count();
      share_gpus();
    }
    meet();
    take_rank();
    tell();
  }

 private:
  /// Most that the user's own words allow.
  std::optional<std::uint32_t> given_machines() {
    if (spec_.is_given("nnodes"_key)) {
      const auto nodes = parse_nodes(spec_.text("nnodes"_key));
      return nodes ? nodes->max : 2;  // complained about elsewhere
    }
    if (!spec_.is_given("num_machines"_key)) {
      if (spec_.flag("standalone"_key)) return 1;
      return std::nullopt;
    }
    return static_cast<std::uint32_t>(
        std::clamp<std::int64_t>(spec_.integer("num_machines"_key).value_or(1), 1, 1'000'000));
  }

  /// The config file asks for one process without RANK.
  [[nodiscard]] bool is_plain() const {
    return spec_.text("distributed_type"_key) == "NO" && !spec_.config_path.empty() &&
           spec_.is_given("num_processes"_key) && !spec_.is_given("nproc_per_node"_key) &&
           mode_of(spec_) == Mode::single;
  }

  void stay_alone() {
    if (place_.machines < 2) return;
    const Key key = spec_.is_given("nnodes"_key)         ? "nnodes"_key
                    : spec_.is_given("num_machines"_key) ? "num_machines"_key
                    : spec_.flag("standalone"_key)       ? "standalone"_key
                                                         : "distributed_type"_key;
    spec_.notes.push_back(place_.who + " has " + std::to_string(place_.machines) + " tasks, but " +
                          spec_.name_for_complaint(key) +
                          (key == "distributed_type"_key ? " says NO" : " says one machine") +
                          ": each task is a job of its own");
  }

  bool fill(Key key, Value value, std::string origin = {}) {
    if (spec_.is_given(key)) return false;
    spec_.set(key, std::move(value), Source::scheduler, origin.empty() ? place_.who : origin);
    return true;
  }

  void take(const Finding& finding) {
    const auto* row = find_key(finding.key);
    if (row == nullptr || spec_.is_given(key_of(*row))) return;
    const bool counts = finding.key == "nnodes" || finding.key == "nproc_per_node";
    if (counts && (user_counts_ || spec_.is_given("num_processes"_key))) {
      if (finding.key == "nnodes" && !user_counts_)
        fill("num_machines"_key, std::int64_t{place_.machines}, std::string{finding.variable});
      return;
    }
    auto value = parse_value(*row, finding.value);
    if (!value) {
      complaints_.push_back(
          {Errc::bad_config,
           "environment variable " + std::string{finding.variable} + ": " + value.error().what});
      return;
    }
    fill(key_of(*row), std::move(*value), std::string{finding.variable});
  }

  /// The scheduler's tasks are our machines; each has as many workers as it sees GPUs.
  void count() {
    if (user_counts_) return;
    if (spec_.is_given("num_processes"_key)) {
      fill("num_machines"_key, std::int64_t{place_.machines});
      return;
    }
    fill("nnodes"_key, std::to_string(place_.machines));
    const bool all_gpus = place_.tasks_here == 1 || place_.own_gpus;
    const auto workers = all_gpus ? std::max(1U, facts_.gpus()) : 1U;
    fill("nproc_per_node"_key, std::to_string(workers));
  }

  /// Each task's worker has local rank 0 and would take the first GPU.
  void share_gpus() {
    if (place_.tasks_here < 2 || place_.own_gpus || spec_.is_given("gpu_ids"_key) ||
        spec_.flag("cpu"_key) || facts_.gpus() < place_.tasks_here)
      return;
    if (place_.task_here >= facts_.gpus()) {
      complaints_.push_back(
          {Errc::bad_config,
           place_.who + ": this is task " + std::to_string(place_.task_here) +
               " of this host by its variables, which has " + plural(facts_.gpus(), "GPU") +
               " and " + plural(place_.tasks_here, "task") + ": name its GPU with --gpu_ids"});
      return;
    }
    const auto visible = split(variable(environment_, "CUDA_VISIBLE_DEVICES"), ',');
    const bool listed = visible.size() == facts_.gpus();
    fill("gpu_ids"_key, listed ? visible[place_.task_here] : std::to_string(place_.task_here));
  }

  /// The address that the user gave is the user's business, host and all.
  void meet() {
    if (place_.host.empty() || spec_.is_given("main_process_ip"_key) ||
        spec_.is_given("rdzv_endpoint"_key))
      return;
    if (place_.settings.empty()) fill("rdzv_backend"_key, "tcp");
    const auto backend = spec_.text("rdzv_backend"_key);
    if (backend.starts_with("etcd")) return;
    if (backend == "static") {
      fill("main_process_ip"_key, place_.host);
      fill("main_process_port"_key, std::int64_t{place_.port});
      return;
    }
    const auto port = spec_.integer("main_process_port"_key).value_or(place_.port);
    fill("rdzv_endpoint"_key, join_host_port(place_.host, port));
    spec_.hosts = place_.is_host;
  }

  /// But for static, accelerate ignores machine_rank, which its config files always hold: one file
  /// for all machines numbers none of them.
  void take_rank() {
    if (!place_.rank) return;
    const std::int64_t rank = *place_.rank;
    const bool is_shared = spec_["machine_rank"_key].source == Source::config &&
                           spec_.text("rdzv_backend"_key) != "static";
    if (is_shared) {
      spec_.set("machine_rank"_key, rank, Source::scheduler, place_.who);
    } else {
      fill("machine_rank"_key, rank);
    }
  }

  void tell() {
    std::string text = place_.who + ":";
    if (place_.machines != 0) text += " " + std::to_string(place_.machines) + " tasks,";
    text += place_.rank ? " this is number " + std::to_string(*place_.rank) : " without a number";
    const auto endpoint = spec_.text("rdzv_endpoint"_key);
    const auto address = spec_.text("main_process_ip"_key);
    if (!endpoint.empty() || !address.empty())
      text += "; the machines meet at " + printable(endpoint.empty() ? address : endpoint);
    const auto rank = spec_.integer("machine_rank"_key);
    if (place_.rank && rank && *rank != *place_.rank)
      text += "; " + spec_.name_for_complaint("machine_rank"_key) + " says number " +
              std::to_string(*rank) + ", which counts";
    spec_.notes.push_back(std::move(text));
    spec_.scheduler = place_.who;
  }

  const Placement& place_;
  JobSpec& spec_;
  Complaints& complaints_;
  HostFacts& facts_;
  const Environment& environment_;
  bool user_counts_ = false;
};

/// Asked for in words; a config file always says how many machines there are.
bool is_one_machine_wanted(const JobSpec& spec) {
  constexpr Key kMachines[] = {"num_machines"_key, "nnodes"_key};
  return spec.flag("standalone"_key) ||
         std::ranges::any_of(kMachines, [&](Key key) { return spec[key].source == Source::flag; });
}

/// Machines that are reached without the scheduler.
bool names_machines(const JobSpec& spec) {
  constexpr Key kHosts[] = {"hosts"_key, "hostfile"_key, "deepspeed_hostfile"_key,
                            "mpirun_hostfile"_key};
  return spec.integer("num_machines"_key).value_or(1) > 1 ||
         std::ranges::any_of(kHosts, [&](Key key) { return spec.is_set(key); });
}

void tell_of_unreached_nodes(JobSpec& spec, const Environment& environment) {
  const auto found = find_unreached_nodes(environment);
  if (!found || is_one_machine_wanted(spec) || names_machines(spec)) return;
  spec.notes.push_back(
      found->who + " has " + std::to_string(found->nodes) +
      " nodes, and all workers start on this one: in front of acc-launch 'srun "
      "--ntasks-per-node=1' uses them all; --num_machines 1 is for one alone, without this note");
}

}  // namespace

void apply_scheduler(JobSpec& spec, Complaints& complaints, HostFacts& facts,
                     const Environment& environment) {
  const bool in_pod = environment.contains("JOB_COMPLETION_INDEX");
  const auto place = find_placement(environment, in_pod ? facts.host_name() : std::string{});
  if (place) return Rules{*place, spec, complaints, facts, environment}.apply();
  tell_of_unreached_nodes(spec, environment);
}

}  // namespace acc::launcher
