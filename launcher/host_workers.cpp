#include "launcher/host_workers.hpp"

#include "common/text.hpp"
#include "launcher/key_table.hpp"
#include "launcher/setting_parsers.hpp"

#include <algorithm>
#include <utility>

namespace acc::launcher {

using namespace literals;

namespace {

class WorkerShares {
 public:
  WorkerShares(const CommandLine& line, const JobSpec& spec, const std::vector<Host>& hosts)
      : line_{line}, spec_{spec}, hosts_{hosts} {}

  HostWorkers run() {
    check_machines();
    share();
    return std::move(made_);
  }

 private:
  void complain(std::string what) {
    made_.complaints.push_back({Errc::bad_config, std::move(what)});
  }
  [[nodiscard]] bool is_flag(Key key) const { return line_.given(key) != nullptr; }
  [[nodiscard]] std::string shown(Key key) const {
    return spec_.name_for_complaint(key) + " " + printable(spec_.text(key));
  }

  void check_machines() {
    const auto hosts = hosts_.size();
    const auto count = plural(hosts, "host");
    made_.min_hosts = hosts;
    made_.nodes = std::to_string(hosts);
    if (is_flag("num_machines"_key) && is_flag("nnodes"_key))
      complain("--num_machines and --nnodes say the same thing: give one of them");
    if (is_flag("num_machines"_key) &&
        spec_.integer("num_machines"_key) != static_cast<std::int64_t>(hosts))
      complain(shown("num_machines"_key) + ", but there are " + count + ": leave it out");
    if (!is_flag("nnodes"_key)) return;
    const auto nodes = parse_nodes(line_.given("nnodes"_key)->word);
    if (!nodes) return;  // complained about by merge
    if (hosts < nodes->min || hosts > nodes->max)
      complain("--nnodes " + printable(line_.given("nnodes"_key)->word) + ", but there are " +
               count + ": leave it out");
    made_.min_hosts = nodes->min;
    if (nodes->min != nodes->max) made_.nodes = line_.given("nnodes"_key)->word;
  }

  /// Of the whole job. torchrun's counts set num_processes, too: to the workers of one node times
  /// the most nodes, which are others than our hosts.
  [[nodiscard]] bool names_total() const {
    return is_flag("num_processes"_key) ||
           (spec_.is_given("num_processes"_key) && !spec_.is_given("nproc_per_node"_key) &&
            !spec_.is_given("nnodes"_key));
  }

  void share() {
    auto& workers = made_.each;
    const bool has_slots =
        std::ranges::any_of(hosts_, [](const Host& host) { return host.slots.has_value(); });
    const bool per_node = is_flag("nproc_per_node"_key);
    std::uint64_t sum = 0;
    for (const auto& host : hosts_) {
      // As mpirun: beside hosts with slots, one without has one.
      workers.push_back(has_slots ? std::optional{host.slots.value_or(1)} : std::nullopt);
      sum += host.slots.value_or(1);
    }
    if (per_node && is_flag("num_processes"_key))
      return complain(
          "--num_processes counts workers over all hosts, --nproc_per_node on each: give one");
    if (has_slots && per_node) return check_slots();
    const auto total = spec_.integer("num_processes"_key);
    if (has_slots) {
      if (is_flag("num_processes"_key) && total && *total != static_cast<std::int64_t>(sum))
        complain(shown("num_processes"_key) + ", but the hosts have " + std::to_string(sum) +
                 " slots: leave it out, or give the slots that you want");
      return;
    }
    if (!per_node && total == -1 && !spec_.is_given("num_processes"_key))  // with a config file
      return complain(spec_.config_path +
                      ": num_processes is not set, and the hosts have no slots: write it there, "
                      "give --num_processes, or slots: --hosts HOST:2,…");
    if (per_node || !names_total() || !total) return;
    const auto each = *total / static_cast<std::int64_t>(hosts_.size());
    const auto more = *total % static_cast<std::int64_t>(hosts_.size());
    if (each < 1)
      return complain(shown("num_processes"_key) + " on " + plural(hosts_.size(), "host") +
                      ": give at least one for each host, or fewer hosts");
    for (std::size_t i = 0; i < workers.size(); ++i)
      workers[i] = static_cast<std::uint32_t>(each + (static_cast<std::int64_t>(i) < more ? 1 : 0));
  }

  void check_slots() {
    const auto& word = line_.given("nproc_per_node"_key)->word;
    for (const auto& host : hosts_) {
      if (!host.slots || std::to_string(*host.slots) == word) continue;
      return complain("--nproc_per_node " + printable(word) + ", but " + host.where + " gives " +
                      host.login + " " + plural(*host.slots, "slot") + ": leave one of them out");
    }
    made_.each.assign(hosts_.size(), std::nullopt);
  }

  const CommandLine& line_;
  const JobSpec& spec_;
  const std::vector<Host>& hosts_;
  HostWorkers made_;
};

}  // namespace

HostWorkers share_workers(const CommandLine& line, const JobSpec& spec,
                          const std::vector<Host>& hosts) {
  return WorkerShares{line, spec, hosts}.run();
}

}  // namespace acc::launcher
