#include "launcher/machines_plan.hpp"

#include "common/endpoint.hpp"
#include "common/job_facts.hpp"
#include "common/text.hpp"
#include "launcher/coordinator_plan.hpp"
#include "launcher/key_table.hpp"
#include "launcher/main_port.hpp"
#include "launcher/mode.hpp"
#include "launcher/setting_parsers.hpp"
#include "rendezvous/secret.hpp"

#include <sys/random.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <string_view>

namespace acc::launcher {

using namespace literals;

namespace {

constexpr std::uint16_t kDefaultPort = 29500;

std::string count_of(std::int64_t processes) {
  return std::to_string(processes) + (processes == 1 ? " process" : " processes");
}

/// Version 4, as torchrun makes one for a standalone job.
std::string random_uuid() {
  std::uint16_t part[8] = {};
  if (::getrandom(part, sizeof part, 0) != static_cast<ssize_t>(sizeof part))
    part[0] = kDefaultPort;
  char text[40];
  std::snprintf(text, sizeof text, "%04x%04x-%04x-4%03x-%04x-%04x%04x%04x", part[0], part[1],
                part[2], part[3] & 0xfffU, (part[4] & 0x3fffU) | 0x8000U, part[5], part[6],
                part[7]);
  return text;
}

std::string base_name(const std::string& path) {
  const auto slash = path.rfind('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

/// As a shell would take them apart again, so that "a b" and "a" "b" differ.
std::string show_arguments(const std::vector<std::string>& words) {
  std::string text;
  for (const auto& word : words) {
    text += text.empty() ? "" : " ";
    const bool plain = !word.empty() && word.find_first_of(" \t\n'\"\\") == std::string::npos;
    text += plain ? word : "'" + word + "'";
  }
  return text;
}

class MachinesPlanner {
 public:
  MachinesPlanner(const JobSpec& spec, HostFacts& facts, agent::JobPlan& plan)
      : spec_{spec}, facts_{facts}, plan_{plan}, cluster_{plan.cluster} {}

  Complaints plan() {
    count_machines();
    const auto conf = read_conf();
    if (cluster_.several()) check_given();
    share_ranks();
    if (cluster_.backend == agent::Backend::fixed) {
      choose_port();
    } else {
      choose_port_of_rounds();
    }
    if (!cluster_.several()) return std::move(complaints_);
    place_master();
    if (backend_of(spec_.text("rdzv_backend"_key))) {  // else check_runnable complains
      describe_node();
      plan_coordinator(spec_, conf, plan_, complaints_);
      check_control_port();
    }
    return std::move(complaints_);
  }

  Complaints plan_outer_port() {
    count_machines();
    check_rank();
    choose_port();
    return std::move(complaints_);
  }

 private:
  void complain(std::string what, Errc code = Errc::bad_config) {
    complaints_.push_back({code, std::move(what)});
  }

  void count_machines() {
    machines_ =
        std::clamp<std::int64_t>(spec_.integer("num_machines"_key).value_or(1), 1, 1'000'000);
    rank_ = machines_ > 1 ? spec_.integer("machine_rank"_key).value_or(0) : 0;
    cluster_.nodes_min = cluster_.nodes_max = static_cast<std::uint32_t>(machines_);
    if (spec_.is_given("nnodes"_key)) {
      if (const auto nodes = parse_nodes(spec_.text("nnodes"_key))) cluster_.nodes_min = nodes->min;
    }
    cluster_.job = spec_.text("rdzv_id"_key);
    if (cluster_.several())
      cluster_.backend = backend_of(spec_.text("rdzv_backend"_key)).value_or(agent::Backend::fixed);
  }

  std::map<std::string, std::string> read_conf() {
    auto conf = parse_rendezvous_conf(spec_.text("rdzv_conf"_key));
    return conf ? std::move(*conf) : std::map<std::string, std::string>{};
  }

  void check_rank() {
    const bool is_judged = spec_.can_judge({"machine_rank"_key, "num_machines"_key});
    if (is_judged && !spec_.is_set("machine_rank"_key)) {
      complain(
          "several machines need --machine_rank (or --node_rank): 0 on the first machine, 1 on the "
          "next, and so on");
    } else if (is_judged && (rank_ < 0 || rank_ >= machines_)) {
      complain(spec_.name_for_complaint("machine_rank"_key) + ": " + std::to_string(rank_) +
               " is out of range: 0 to " + std::to_string(machines_ - 1) + " for " +
               std::to_string(machines_) + " machines");
    }
    rank_ = std::clamp<std::int64_t>(rank_, 0, machines_ - 1);
  }

  void check_count() {
    if (spec_.is_set("machine_rank"_key) && rank_ < 0)
      complain(spec_.name_for_complaint("machine_rank"_key) + ": " + std::to_string(rank_) +
               " is out of range: 0 or more");
    rank_ = std::max<std::int64_t>(rank_, 0);
    const auto processes = spec_.integer("num_processes"_key).value_or(0);
    if (!spec_.is_given("machine_rank"_key) && processes % machines_ != 0 &&
        spec_.can_judge({"machine_rank"_key, "num_processes"_key, "num_machines"_key}))
      complain(count_of(processes) + " on " + std::to_string(machines_) +
               " machines: that is an uneven share, so give --machine_rank on each machine, or "
               "--nproc_per_node");
  }

  void check_given() {
    if (cluster_.backend == agent::Backend::fixed) {
      check_rank();
      if (cluster_.nodes_min != cluster_.nodes_max && spec_.can_judge({"rdzv_backend"_key}))
        complain(
            spec_.name_for_complaint("nnodes"_key) + ": '" + printable(spec_.text("nnodes"_key)) +
            "': a number of machines that may change needs --rdzv_backend=tcp (or c10d, etcd): "
            "with static each machine's ranks are fixed");
    } else {
      check_count();
    }
    const bool told = mode_of(spec_) == Mode::single && !spec_.is_given("nnodes"_key) &&
                      !spec_.is_given("nproc_per_node"_key);  // with the port, by make_plan
    if (!told && spec_.text("main_process_ip"_key).empty() &&
        spec_.text("rdzv_endpoint"_key).empty() &&
        spec_.can_judge({"main_process_ip"_key, "rdzv_endpoint"_key, "standalone"_key})) {
      complain(
          "several machines need the main process IP, the address of machine 0: give "
          "--main_process_ip (as torchrun: --master_addr or --rdzv_endpoint)" +
          (spec_.scheduler.empty() ? std::string{} : "; " + spec_.scheduler + " doesn't tell one"));
    }
    const auto processes = spec_.integer("num_processes"_key).value_or(0);
    if (processes < machines_ && spec_.can_judge({"num_processes"_key, "num_machines"_key})) {
      complain(
          count_of(processes) + " on " + std::to_string(machines_) +
          " machines: --num_processes counts the whole job, so give at least one for each machine");
    }
  }

  /// Where the count doesn't divide evenly, the first machines take one more.
  void share_ranks() {
    const auto processes = spec_.integer("num_processes"_key).value_or(0);
    if (processes < 0 && spec_.can_judge({"num_processes"_key}))
      complain(spec_.name_for_complaint("num_processes"_key) + ": " + std::to_string(processes) +
               " is not a number of processes");
    if (processes > 1'000'000)
      complain(spec_.name_for_complaint("num_processes"_key) + ": " + std::to_string(processes) +
               " processes are more than a million");
    const auto total = std::clamp<std::int64_t>(processes, 0, 1'000'000);
    const auto each = total / machines_;
    const auto more = total % machines_;
    plan_.local_world_size = static_cast<std::uint32_t>(each + (rank_ < more ? 1 : 0));
    plan_.first_rank = Rank{static_cast<std::uint32_t>(each * rank_ + std::min(rank_, more))};
    plan_.world_size = WorldSize{static_cast<std::uint32_t>(std::max<std::int64_t>(total, 1))};
  }

  std::uint16_t any_free_port() {
    const auto port = free_port();
    if (!port) complain("no free port could be found on this machine", Errc::exhausted);
    return port.value_or(kDefaultPort);
  }

  std::string taken_port(std::uint16_t port) {
    return "port " + std::to_string(port) + " " + facts_.why_port_taken(port);
  }

  void choose_port() {
    auto& master = plan_.master;
    if (spec_.flag("standalone"_key) && machines_ == 1) {
      cluster_.job = random_uuid();  // as torchrun does, whatever --rdzv_id says
      return stand_alone(any_free_port());
    }
    auto wanted = wanted_port(spec_);
    if (bad_main_port(spec_)) wanted.reset();  // told by make_plan
    master.port_is_given = wanted.has_value() && *wanted != 0;
    if (wanted.has_value() && *wanted == 0) {
      master.port = any_free_port();
      return;
    }
    master.port = wanted ? static_cast<std::uint16_t>(*wanted) : kDefaultPort;
    if (!spec_.can_judge({"main_process_port"_key, "machine_rank"_key, "num_machines"_key})) return;
    if (rank_ != 0 || !facts_.port_in_use(master.port)) return;
    if (machines_ > 1) {
      return complain(
          taken_port(master.port) +
              " on this machine: choose another with --main_process_port, the same on all machines",
          Errc::unavailable);
    }
    const auto taken = master.port;
    if (!spec_.is_given("rdzv_id"_key)) cluster_.job = random_uuid();
    stand_alone(any_free_port());
    // An endpoint is the coordinator's: nobody asked for this port.
    if (!wanted && !spec_.text("rdzv_endpoint"_key).empty()) return;
    plan_.warnings.push_back(taken_port(taken) + ": port " + std::to_string(master.port) +
                             " is used instead, for this job alone. Choose one with "
                             "--main_process_port, or 0 for any free one.");
  }

  /// The endpoint's port is the coordinator's, and each round's rank 0 finds a free one for its
  /// store, unless the user names one beside the endpoint. torchrun ignores --master_port there, so
  /// scripts name one port twice (--rdzv_endpoint $A:$P --master_port $P).
  void choose_port_of_rounds() {
    auto& master = plan_.master;
    master.port = 0;
    if (bad_main_port(spec_)) return;
    const auto named = spec_.integer("main_process_port"_key).value_or(0);
    if (named == 0 || !spec_.is_set("rdzv_endpoint"_key) ||
        !spec_.is_given("main_process_port"_key))
      return;
    if (cluster_.several() && control_port(spec_, plan_) == named) {
      plan_.warnings.push_back(
          spec_.name_for_complaint("main_process_port"_key) + ": port " + std::to_string(named) +
          " is the one at which the machines meet: the workers get a free one");
      return;
    }
    master.port_is_given = true;
    master.port = static_cast<std::uint16_t>(named);
  }

  /// Where this machine is surely the one that listens.
  void check_control_port() {
    const auto port = control_port(spec_, plan_);
    const bool listens = cluster_.serve_seed == rendezvous::ServeSeed::must;
    if (!port || *port < 1 || *port > 65535 || !listens) return;
    if (!spec_.can_judge({"control_port"_key, "main_process_port"_key, "rdzv_endpoint"_key}))
      return;
    if (!facts_.port_in_use(static_cast<std::uint16_t>(*port))) return;
    const bool by_endpoint =
        cluster_.backend != agent::Backend::fixed && !spec_.is_set("control_port"_key);
    complain(taken_port(static_cast<std::uint16_t>(*port)) +
                 " on this machine, and the machines were to meet there: choose another with " +
                 (by_endpoint ? "--rdzv_endpoint or --main_process_port" : "--control_port") +
                 ", the same on all machines",
             Errc::unavailable);
  }

  void stand_alone(std::uint16_t port) {
    cluster_.standalone = true;
    plan_.master.port = port;
    plan_.master.port_is_given = false;
  }

  void place_master() {
    auto& address = plan_.master.addr;
    address = spec_.text("main_process_ip"_key);
    const auto endpoint = spec_.text("rdzv_endpoint"_key);
    if (!address.empty() || endpoint.empty()) return;
    if (const auto first = parse_endpoint(split(endpoint, ',').front())) address = first->host;
  }

  /// What this machine reports to the coordinator when it joins.
  void describe_node() {
    const bool is_fixed = cluster_.backend == agent::Backend::fixed;
    if (is_fixed || spec_.is_given("machine_rank"_key))
      cluster_.wanted = NodeRank{static_cast<std::uint32_t>(rank_)};
    cluster_.node_name = spec_.text("node_name"_key);
    if (printable(cluster_.node_name, std::string::npos) != cluster_.node_name)
      complain(spec_.name_for_complaint("node_name"_key) + ": " + in_quotes(cluster_.node_name) +
               " has characters that a terminal doesn't show: all nodes print it, so take letters "
               "and digits");
    cluster_.secret_file = spec_.text("secret_file"_key);
    cluster_.insecure = spec_.flag("insecure"_key);
    if (spec_.text("scale_up"_key) == "now") cluster_.scale_up = agent::ScaleUp::now;
    auto& facts = cluster_.facts;
    const auto add = [&](std::string_view name, std::string value) {
      facts.push_back({std::string{name}, std::move(value)});
    };
    if (is_fixed) add(job_facts::kWorldSize, std::to_string(plan_.world_size.value()));
    if (is_fixed && counts_per_node())
      add(job_facts::kPerNode, std::to_string(plan_.local_world_size));
    // The folder may have another name on each machine.
    add(job_facts::kScript, base_name(spec_.script));
    add(job_facts::kArguments, show_arguments(spec_.script_args));
    add(job_facts::kPrecision, to_lower(spec_.text("mixed_precision"_key)));
  }

  /// num_processes was multiplied from this machine's workers: the line says nothing of others'.
  [[nodiscard]] bool counts_per_node() const {
    if (spec_.is_given("nproc_per_node"_key)) return true;
    return spec_.is_given("nnodes"_key) &&
           spec_["num_processes"_key].source == spec_["nnodes"_key].source;
  }

  const JobSpec& spec_;
  HostFacts& facts_;
  agent::JobPlan& plan_;
  agent::Cluster& cluster_;
  Complaints complaints_;
  std::int64_t machines_ = 1;
  std::int64_t rank_ = 0;
};

}  // namespace

Complaints plan_machines(const JobSpec& spec, HostFacts& facts, agent::JobPlan& plan) {
  return MachinesPlanner{spec, facts, plan}.plan();
}

Complaints plan_outer_port(const JobSpec& spec, HostFacts& facts, agent::JobPlan& plan) {
  return MachinesPlanner{spec, facts, plan}.plan_outer_port();
}

Complaints check_machines(const JobSpec& spec, const agent::JobPlan& plan) {
  const auto& cluster = plan.cluster;
  if (plan.kind != agent::JobKind::elastic || !cluster.several()) return {};
  // Without an address it isn't known whether they meet on loopback.
  const bool has_address = cluster.backend == agent::Backend::etcd || !cluster.control_host.empty();
  if (!has_address || !spec.can_judge({"rdzv_backend"_key, "rdzv_endpoint"_key, "control_port"_key,
                                       "main_process_ip"_key, "main_process_port"_key,
                                       "num_machines"_key, "secret_file"_key, "insecure"_key}))
    return {};
  if (cluster.backend != agent::Backend::etcd && cluster.control_port == 0)
    return {{Errc::bad_config,
             "the machines need a fixed port to meet, the same on all: give --control_port, or a "
             "port other than 0"}};
  if (cluster.loopback || cluster.insecure || cluster.secret) return {};
  const auto places = rendezvous::secret_places(cluster.secret_file);
  const auto secret = rendezvous::load_secret(places);
  if (secret) return {};
  const bool named =
      !places.flag.empty() || !places.variable.empty() || !places.credentials_directory.empty();
  if (named || secret.error().code != Errc::not_found) return {secret.error()};
  const auto usual = rendezvous::default_secret_path(places);
  const std::string found =
      usual.empty() ? "no place for one (HOME isn't set): make one with `acc-launch --make_secret "
                      "FILE` on one machine, copy it to the others and name it with --secret_file"
                    : "none in '" + printable(usual) +
                          "'. Make one with `acc-launch --make_secret` on one machine and copy the "
                          "file to the others";
  return {{Errc::unavailable,
           "several machines need a secret that all of them have, and there is " + found +
               "; or give --insecure, in a network in which nobody else is"}};
}

}  // namespace acc::launcher
