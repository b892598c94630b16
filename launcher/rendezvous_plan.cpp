#include "launcher/rendezvous_plan.hpp"

#include "common/endpoint.hpp"
#include "common/text.hpp"
#include "launcher/cluster_plan.hpp"
#include "launcher/key_table.hpp"
#include "launcher/mode.hpp"
#include "launcher/setting_parsers.hpp"

#include <sys/random.h>

#include <algorithm>
#include <cstdio>

namespace acc::launcher {

using namespace literals;

namespace {

constexpr std::uint16_t kDefaultPort = 29500;

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

/// Only a static rendezvous has the workers' store at its endpoint; any other is the coordinator's.
std::optional<std::int64_t> port_of_endpoint(const JobSpec& spec) {
  const auto endpoint = spec.text("rdzv_endpoint"_key);
  const auto colon = endpoint.rfind(':');
  if (spec.text("rdzv_backend"_key) != "static" || colon == std::string::npos ||
      endpoint.ends_with(']') || (endpoint.find(':') != colon && !endpoint.starts_with('[')))
    return std::nullopt;
  return parse_number<std::int64_t>(std::string_view{endpoint}.substr(colon + 1));
}

std::optional<std::int64_t> wanted_port(const JobSpec& spec) {
  const auto given = spec.integer("main_process_port"_key);
  return given ? given : port_of_endpoint(spec);
}

class Meeting {
 public:
  Meeting(const JobSpec& spec, HostFacts& facts, agent::JobPlan& plan)
      : spec_{spec}, facts_{facts}, plan_{plan} {}

  Complaints plan() {
    count_machines();
    if (machines_ > 1) check_machines();
    share_ranks();
    if (machines_ > 1 && !fixed()) {
      choose_port_of_rounds();
    } else {
      choose_port();
    }
    place_master();
    if (machines_ > 1) check_control_port();
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
    auto& meeting = plan_.rendezvous;
    machines_ =
        std::clamp<std::int64_t>(spec_.integer("num_machines"_key).value_or(1), 1, 1'000'000);
    rank_ = machines_ > 1 ? spec_.integer("machine_rank"_key).value_or(0) : 0;
    meeting.nnodes_min = meeting.nnodes_max = static_cast<std::uint32_t>(machines_);
    if (spec_.is_given("nnodes"_key)) {
      if (const auto nodes = parse_nodes(spec_.text("nnodes"_key))) meeting.nnodes_min = nodes->min;
    }
    meeting.backend = spec_.text("rdzv_backend"_key);
    meeting.id = spec_.text("rdzv_id"_key);
    auto conf = parse_rendezvous_conf(spec_.text("rdzv_conf"_key));
    if (conf) {
      meeting.conf = std::move(*conf);
    } else {
      complain(spec_.name_for_complaint("rdzv_conf"_key) + ": " + conf.error().what);
    }
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

  /// By the coordinator's count of who came; ranks by the user's numbers otherwise.
  [[nodiscard]] bool fixed() const {
    return backend_of(plan_.rendezvous.backend).value_or(agent::Backend::fixed) ==
           agent::Backend::fixed;
  }

  void check_count() {
    if (spec_.is_set("machine_rank"_key) && rank_ < 0)
      complain(spec_.name_for_complaint("machine_rank"_key) + ": " + std::to_string(rank_) +
               " is out of range: 0 or more");
    rank_ = std::max<std::int64_t>(rank_, 0);
    const auto processes = spec_.integer("num_processes"_key).value_or(0);
    if (!spec_.is_given("machine_rank"_key) && processes % machines_ != 0 &&
        spec_.can_judge({"machine_rank"_key, "num_processes"_key, "num_machines"_key}))
      complain(std::to_string(processes) + " processes on " + std::to_string(machines_) +
               " machines: that is an uneven share, so give --machine_rank on each machine, or "
               "--nproc_per_node");
  }

  void check_machines() {
    if (fixed()) {
      check_rank();
      if (plan_.rendezvous.nnodes_min != plan_.rendezvous.nnodes_max &&
          spec_.can_judge({"rdzv_backend"_key}))
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
          std::to_string(processes) + " processes on " + std::to_string(machines_) +
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
    plan_.rendezvous.node_rank = NodeRank{static_cast<std::uint32_t>(rank_)};
  }

  std::uint16_t any_free_port() {
    const auto port = free_port();
    if (!port) complain("no free port could be found on this machine", Errc::exhausted);
    return port.value_or(kDefaultPort);
  }

  void choose_port() {
    auto& master = plan_.master;
    if (spec_.flag("standalone"_key) && machines_ == 1) return stand_alone(any_free_port());
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
      return complain("port " + std::to_string(master.port) +
                          " is already in use on this machine: choose another with "
                          "--main_process_port, the same on all machines",
                      Errc::unavailable);
    }
    const auto taken = master.port;
    stand_alone(any_free_port());
    plan_.warnings.push_back("port " + std::to_string(taken) + " is already in use: port " +
                             std::to_string(master.port) +
                             " is used instead, for this job alone. Choose one with "
                             "--main_process_port, or 0 for any free one.");
  }

  /// The endpoint's port is the coordinator's, and each round's rank 0 finds a free one for its
  /// store, unless the user names one beside the endpoint.
  void choose_port_of_rounds() {
    auto& master = plan_.master;
    master.port = 0;
    if (bad_main_port(spec_)) return;
    const auto named = spec_.integer("main_process_port"_key).value_or(0);
    master.port_is_given =
        named != 0 && spec_.is_set("rdzv_endpoint"_key) && spec_.is_given("main_process_port"_key);
    if (master.port_is_given) master.port = static_cast<std::uint16_t>(named);
  }

  /// Where this machine is surely the one that listens.
  void check_control_port() {
    const auto port = control_port(spec_, plan_);
    const bool listens = spec_.hosts.value_or(rank_ == 0 && spec_.is_given("machine_rank"_key));
    if (!port || *port < 1 || *port > 65535 || !listens) return;
    if (!spec_.can_judge({"control_port"_key, "main_process_port"_key, "rdzv_endpoint"_key}))
      return;
    if (!facts_.port_in_use(static_cast<std::uint16_t>(*port))) return;
    const bool by_endpoint = !fixed() && !spec_.is_set("control_port"_key);
    complain("port " + std::to_string(*port) +
                 " is already in use on this machine, and the machines were to meet there: choose "
                 "another with " +
                 (by_endpoint ? "--rdzv_endpoint or --main_process_port" : "--control_port") +
                 ", the same on all machines",
             Errc::unavailable);
  }

  void stand_alone(std::uint16_t port) {
    auto& meeting = plan_.rendezvous;
    meeting.standalone = true;
    meeting.backend = "c10d";
    meeting.id = random_uuid();
    plan_.master.port = port;
    plan_.master.port_is_given = false;
  }

  void place_master() {
    auto& meeting = plan_.rendezvous;
    auto& master = plan_.master;
    const auto endpoint = spec_.text("rdzv_endpoint"_key);
    if (machines_ > 1) master.addr = spec_.text("main_process_ip"_key);
    if (machines_ > 1 && master.addr.empty() && !endpoint.empty()) {
      const auto first = split(endpoint, ',').front();
      if (const auto parsed = parse_endpoint(first)) master.addr = parsed->host;
    }
    const auto port = fixed() || machines_ < 2
                          ? std::int64_t{master.port}
                          : control_port(spec_, plan_).value_or(wanted_port(spec_).value_or(2379));
    const auto here = join_host_port(master.addr, port);
    if (meeting.standalone) {
      meeting.endpoint = "localhost:" + std::to_string(master.port);
    } else if (meeting.backend == "static") {
      meeting.endpoint = here;
      meeting.conf["rank"] = std::to_string(rank_);
    } else if (!endpoint.empty()) {
      meeting.endpoint = endpoint;
    } else {
      meeting.endpoint = machines_ > 1 ? here : "";
    }
  }

  const JobSpec& spec_;
  HostFacts& facts_;
  agent::JobPlan& plan_;
  Complaints complaints_;
  std::int64_t machines_ = 1;
  std::int64_t rank_ = 0;
};

}  // namespace

std::optional<Error> bad_main_port(const JobSpec& spec) {
  const auto wanted = wanted_port(spec);
  if (!wanted || (*wanted >= 0 && *wanted <= 65535)) return std::nullopt;
  const bool by_endpoint = !spec.is_set("main_process_port"_key);
  return Error{Errc::bad_config, spec.name_for_complaint(by_endpoint ? "rdzv_endpoint"_key
                                                                     : "main_process_port"_key) +
                                     ": " + std::to_string(*wanted) + " is not a port: 0 to 65535"};
}

Complaints plan_rendezvous(const JobSpec& spec, HostFacts& facts, agent::JobPlan& plan) {
  return Meeting{spec, facts, plan}.plan();
}

Complaints plan_outer_port(const JobSpec& spec, HostFacts& facts, agent::JobPlan& plan) {
  return Meeting{spec, facts, plan}.plan_outer_port();
}

}  // namespace acc::launcher
