#include "launcher/hosts_plan.hpp"

#include "common/duration.hpp"
#include "common/text.hpp"
#include "launcher/host_list.hpp"
#include "launcher/host_transport.hpp"
#include "launcher/host_workers.hpp"
#include "launcher/hosts_flags.hpp"
#include "launcher/key_table.hpp"
#include "launcher/main_port.hpp"
#include "launcher/setting_parsers.hpp"
#include "launcher/shell_words.hpp"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

namespace acc::launcher {

using namespace literals;

namespace {

class HostsPlanner {
 public:
  HostsPlanner(const CommandLine& line, const JobSpec& spec, const HostsInputs& inputs)
      : line_{line}, spec_{spec}, inputs_{inputs} {}

  PlannedHosts run() {
    read_hosts();
    take(check_with_hosts(line_, spec_));
    read_variables();
    if (list_.hosts.empty()) return std::move(planned_);
    auto transport = choose_transport(line_, spec_, inputs_, list_.hosts);
    take(std::move(transport.complaints));
    auto shares = share_workers(line_, spec_, list_.hosts);
    take(std::move(shares.complaints));
    planned_.workers = std::move(shares.each);
    nodes_ = std::move(shares.nodes);
    choose_meeting();
    if (inputs_.reads_all_output) {
      add("redirects", "0");
      add("local_ranks_filter", "");
    }
    if (!planned_.complaints.empty()) return std::move(planned_);
    set_launch();
    planned_.launch.min_hosts = shares.min_hosts;
    set_patience();
    set_commands(transport);
    return std::move(planned_);
  }

 private:
  void set_launch() {
    auto& launch = planned_.launch;
    launch.folder = inputs_.folder;
    launch.tags_lines = spec_.flag("tag_output"_key);
    launch.sends_secret =
        list_.hosts.size() > 1 && !spec_.flag("insecure"_key) && !spec_.is_given("secret_file"_key);
    // In a config file that the hosts read, too, it is for each of them.
    if (is_flag("events"_key)) launch.events_file = line_.given("events"_key)->word;
    // Where the first host writes it. A standard output is the job's there.
    if (is_flag("report"_key) && is_here(list_.hosts.front()) && spec_.text("report"_key) != "-")
      launch.report_file = line_.given("report"_key)->word;
    if (const auto size = parse_bytes(spec_.text("events_size"_key))) launch.events_size = *size;
    launch.shows_status = !spec_.flag("quiet"_key) && spec_.text("color"_key) != "never";
    launch.id = "hosts-" + inputs_.random;
    launch.detaches = spec_.flag("detach"_key);
    launch.waits = spec_.flag("wait"_key);
  }

  void set_commands(const HostTransport& transport) {
    auto& launch = planned_.launch;
    launch.transport = transport.name();
    launch.is_ssh = transport.kind == HostTransport::Kind::ssh;
    launch.uses_daemons = transport.kind == HostTransport::Kind::daemons;
    for (std::size_t i = 0; i < list_.hosts.size(); ++i) {
      const auto& host = list_.hosts[i];
      if (launch.uses_daemons) {
        launch.hosts.push_back(
            {host.login, bridge_to(i), is_here(host) ? std::string{} : host.address});
      } else {
        launch.hosts.push_back(
            {.name = host.login,
             .command = command_through(transport, host, is_here(host), words_for(i)),
             .is_direct = is_direct(transport, is_here(host))});
      }
    }
    if (!launch.uses_daemons) return;
    launch.socket = inputs_.daemon.socket;
    launch.node = inputs_.host_name;
    launch.sends_secret = false;  // the daemons have one
  }

  void complain(std::string what) {
    planned_.complaints.push_back({Errc::bad_config, std::move(what)});
  }
  [[nodiscard]] bool is_flag(Key key) const { return line_.given(key) != nullptr; }
  [[nodiscard]] bool is_here(const Host& host) const {
    return is_this_machine(host, inputs_.host_name);
  }
  void take(Complaints complaints) {
    std::ranges::move(complaints, std::back_inserter(planned_.complaints));
  }

  void read_hosts() {
    HostList from_file;
    HostList from_flag;
    if (is_flag("hostfile"_key))
      from_file = parse_hostfile(inputs_.hostfile_text, spec_.text("hostfile"_key));
    if (is_flag("hosts"_key)) from_flag = parse_hosts(line_.given("hosts"_key)->word);
    list_ = merge_hosts(std::move(from_file), std::move(from_flag));
    take(std::move(list_.complaints));
  }

  void read_variables() {
    for (const auto& word : line_.env) {
      const auto equals = word.find('=');
      const auto name = word.substr(0, equals);
      if (!is_variable_name(name)) {
        complain("--env: " + in_quotes(name, 80) + " is no name of a variable: write NAME=VALUE");
        continue;
      }
      if (equals != std::string::npos) {
        planned_.launch.variables.push_back({name, word.substr(equals + 1), true});
        continue;
      }
      const auto found = inputs_.environment.find(name);
      if (found == inputs_.environment.end()) {
        complain("--env: " + name + " isn't set here: set it, or write " + name + "=VALUE");
        continue;
      }
      planned_.launch.variables.push_back({name, found->second, true});
    }
  }

  /// Workers of each host, where its slots don't say it: a number, or a word by which each counts
  /// itself. Of the flag or the config file; empty: neither has it, as what a scheduler gives this
  /// task is not the hosts'.
  [[nodiscard]] std::string workers_of_each() const {
    const Key key = "nproc_per_node"_key;
    const auto source = spec_[key].source;
    const bool is_ours = source == Source::flag || source == Source::config;
    return is_ours ? std::string{trim(spec_.text(key))} : std::string{};
  }

  /// The node's slots that its workers take. Nothing: it counts them itself.
  [[nodiscard]] std::optional<std::uint32_t> slots_of(std::size_t index) const {
    if (planned_.workers[index]) return std::max(1U, *planned_.workers[index]);
    const auto each = workers_of_each();
    return each.empty() ? std::optional{1U} : parse_number<std::uint32_t>(each);
  }

  [[nodiscard]] std::vector<std::string> bridge_to(std::size_t index) const {
    const auto& host = list_.hosts[index];
    const auto& launch = planned_.launch;
    std::vector<std::string> words{inputs_.ctl,
                                   "bridge",
                                   "--socket=" + inputs_.daemon.socket,
                                   "--launch=" + launch.id,
                                   "--nodes=" + std::to_string(list_.hosts.size()),
                                   "--node_rank=" + std::to_string(index)};
    if (const auto slots = slots_of(index)) words.push_back("--slots=" + std::to_string(*slots));
    if (launch.sends_secret) words.emplace_back("--secret");
    if (launch.detaches) words.emplace_back("--detach");
    if (is_here(host)) words.emplace_back("--here");
    words.push_back(host.login);
    words.emplace_back("--");
    const auto remote = job_words(index);
    words.insert(words.end(), remote.begin(), remote.end());
    return words;
  }

  // ---- where they meet ----

  void choose_meeting() {
    // A config file of accelerate says static also where nobody chose it.
    const bool chosen = is_flag("rdzv_backend"_key) || (spec_.is_given("rdzv_backend"_key) &&
                                                        spec_.text("rdzv_backend"_key) != "static");
    const auto backend = chosen ? spec_.text("rdzv_backend"_key) : "tcp";
    if (!chosen) add("rdzv_backend", backend);
    if (!spec_.is_given("rdzv_id"_key)) add("rdzv_id", "hosts-" + inputs_.random);
    // There all lines count as torchrun's do, and have its default.
    if (!spec_.is_given("grace"_key)) add("grace", spec_.text("grace"_key));
    const bool is_even = std::ranges::all_of(
        planned_.workers, [&](const auto& one) { return one == planned_.workers.front(); });
    if (backend == "static" && !is_even)
      complain(
          "--rdzv_backend static gives all hosts as many workers: leave it out for hosts with "
          "different numbers");
    if (list_.hosts.size() < 2) return;
    const bool is_placed =
        spec_.is_given("main_process_ip"_key) || spec_.is_given("rdzv_endpoint"_key);
    if (backend.starts_with("etcd") && !spec_.is_given("rdzv_endpoint"_key))
      complain("--rdzv_backend etcd needs --rdzv_endpoint, the address of its servers");
    if (is_placed || backend.starts_with("etcd")) return;
    const auto& first = list_.hosts.front();
    const bool all_here =
        std::ranges::all_of(list_.hosts, [this](const Host& host) { return is_here(host); });
    if (is_loopback(first.address) && !all_here)
      complain(first.where + ": the first host is " + printable(first.login) +
               ", a name that leads each host to itself: give --main_process_ip, the address by "
               "which the others reach it");
    add("main_process_ip", first.address);
    if (backend != "static" && !spec_.is_given("main_process_port"_key))
      add("main_process_port", std::to_string(port_from(inputs_.random)));
  }

  void add(std::string_view name, const std::string& value) {
    added_.push_back("--" + std::string{name} + "=" + value);
  }

  void set_patience() {
    auto& launch = planned_.launch;
    Millis sum{30'000};
    for (const auto key :
         {"grace"_key, "preempt_grace"_key, "give_up"_key, "output_patience"_key}) {
      const auto time = parse_duration(spec_.text(key));
      if (!time) continue;  // complained about on the hosts
      sum += std::min(*time, Millis{std::chrono::hours{24}});
      if (key == "output_patience"_key) launch.patience = *time;
    }
    launch.end_patience = sum;
    // A delay has a jitter of a tenth, and the nodes meet again behind it.
    if (const auto delay = parse_duration(spec_.text("restart_delay_max"_key)))
      launch.lost_patience =
          Millis{30'000} + std::min(*delay, Millis{std::chrono::hours{24}}) / 10 * 11;
  }

  // ---- the command there ----

  [[nodiscard]] std::vector<std::string> job_words(std::size_t index) const {
    std::vector<std::string> words;
    for (const auto& option : line_.options) {
      if (!is_passed_on(option.key)) continue;
      const auto& row = row_of(option.key);
      words.push_back("--" + std::string{row.name} +
                      (row.type == Type::flag ? "" : "=" + option.word));
    }
    if (is_flag("report"_key) && index == 0)
      words.push_back("--report=" + line_.given("report"_key)->word);
    if (!inputs_.default_config.empty()) words.push_back("--config_file=" + inputs_.default_config);
    words.push_back("--nnodes=" + nodes_);
    if (list_.hosts.size() > 1) words.push_back("--node_rank=" + std::to_string(index));
    if (const auto& workers = planned_.workers[index]) {
      words.push_back("--nproc_per_node=" + std::to_string(*workers));
    } else if (const auto each = workers_of_each(); !each.empty()) {
      words.push_back("--nproc_per_node=" + each);
    }
    words.insert(words.end(), added_.begin(), added_.end());
    if (line_.script) {
      words.emplace_back("--");
      words.push_back(*line_.script);
      words.insert(words.end(), line_.script_args.begin(), line_.script_args.end());
    }
    return words;
  }

  /// A command line for a shell.
  [[nodiscard]] std::string words_for(std::size_t index) const {
    std::vector<std::string> words{"--life_line=0"};
    if (planned_.launch.sends_secret) words.emplace_back("--secret_fd=0");
    const auto of_job = job_words(index);
    words.insert(words.end(), of_job.begin(), of_job.end());
    const auto tail = quote_for_shell(words);
    if (is_flag("remote_launch"_key))
      return "exec " + quote_for_shell(spec_.text("remote_launch"_key)) + " " + tail;
    return "exec sh -c " +
           quote_for_shell("a=" + quote_for_shell(inputs_.program) +
                           R"(; [ -x "$a" ] || a=acc-launch; exec "$a" "$@")") +
           " sh " + tail;
  }

  const CommandLine& line_;
  const JobSpec& spec_;
  const HostsInputs& inputs_;
  HostList list_;
  std::vector<std::string> added_;
  std::string nodes_;  ///< --nnodes for each host
  PlannedHosts planned_;
};

}  // namespace

PlannedHosts plan_hosts(const CommandLine& line, const JobSpec& spec, const HostsInputs& inputs) {
  return HostsPlanner{line, spec, inputs}.run();
}

}  // namespace acc::launcher
