#include "launcher/hosts_plan.hpp"

#include "common/duration.hpp"
#include "common/text.hpp"
#include "launcher/key_table.hpp"
#include "launcher/main_port.hpp"
#include "launcher/setting_parsers.hpp"
#include "launcher/shell_words.hpp"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <utility>

namespace acc::launcher {

using namespace literals;

namespace {

constexpr Key kOnlyWithHosts[] = {"ssh"_key,           "ssh_options"_key, "launch_agent"_key,
                                  "remote_launch"_key, "env"_key,         "tag_output"_key,
                                  "detach"_key,        "wait"_key};
/// Each host gets its own; one for all would be wrong.
constexpr std::pair<Key, std::string_view> kOfOneMachine[] = {
    {"machine_rank"_key, "each host gets its number by its place among the hosts"},
    {"node_name"_key, "each host has its own"},
    {"local_addr"_key, "each host has its own"},
    {"stdin"_key, "our standard input reaches no other host"},
    {"standalone"_key, "it is a job on one machine alone"},
    {"mpirun_hostfile"_key, "mpirun would start the workers"},
    {"secret_fd"_key, "each job on hosts gets a fresh secret"},
    {"life_line"_key, "it is for the acc-launch that runs there"}};
/// Said anew for each host, or for this side alone.
constexpr Key kNotPassedOn[] = {"hosts"_key,        "hostfile"_key,       "ssh"_key,
                                "ssh_options"_key,  "launch_agent"_key,   "remote_launch"_key,
                                "env"_key,          "tag_output"_key,     "print_plan"_key,
                                "detach"_key,       "wait"_key,           "nnodes"_key,
                                "num_machines"_key, "nproc_per_node"_key, "num_processes"_key,
                                "report"_key,       "events"_key,         "events_size"_key};

class UnknownFacts final : public HostFacts {
 public:
  std::string accelerator() override { return "cuda"; }
  std::uint32_t gpus() override { return 1; }
  std::vector<std::string> gpu_names() override { return {}; }
  std::string driver() override { return {}; }
  bool bf16() override { return true; }
  std::uint32_t physical_cores() override { return 1; }
  std::uint32_t logical_cores() override { return 1; }
  bool port_in_use(std::uint16_t /*port*/) override { return false; }
  std::string mpi() override { return {}; }
  bool fp8(const std::string& /*interpreter*/) override { return true; }
  std::string host_name() override { return {}; }
  std::string deepspeed(const std::string& /*interpreter*/) override { return {}; }
  CpuTopology topology() override { return {}; }
};

bool is_variable_name(std::string_view name) {
  return !name.empty() && std::isdigit(static_cast<unsigned char>(name.front())) == 0 &&
         std::ranges::all_of(name,
                             [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
}

class HostsPlanner {
 public:
  HostsPlanner(const CommandLine& line, const JobSpec& spec, const HostsInputs& inputs)
      : line_{line}, spec_{spec}, inputs_{inputs} {}

  PlannedHosts run() {
    read_hosts();
    check_flags();
    read_variables();
    if (list_.hosts.empty()) return std::move(planned_);
    choose_transport();
    check_machines();
    share_workers();
    choose_meeting();
    if (!planned_.complaints.empty()) return std::move(planned_);
    auto& launch = planned_.launch;
    launch.folder = inputs_.folder;
    launch.tags_lines = spec_.flag("tag_output"_key);
    launch.sends_secret =
        list_.hosts.size() > 1 && !spec_.flag("insecure"_key) && !spec_.is_given("secret_file"_key);
    set_patience();
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
    if (launch.uses_daemons) {
      launch.socket = inputs_.daemon.socket;
      for (std::size_t i = 0; i < list_.hosts.size(); ++i)
        launch.hosts.push_back({list_.hosts[i].login, bridge_to(i),
                                is_here(list_.hosts[i]) ? std::string{} : list_.hosts[i].address});
      launch.sends_secret = false;  // the daemons have one
      return std::move(planned_);
    }
    for (std::size_t i = 0; i < list_.hosts.size(); ++i)
      launch.hosts.push_back({list_.hosts[i].login, transport_to(list_.hosts[i], words_for(i))});
    return std::move(planned_);
  }

 private:
  void complain(std::string what) {
    planned_.complaints.push_back({Errc::bad_config, std::move(what)});
  }
  [[nodiscard]] bool is_flag(Key key) const { return line_.given(key) != nullptr; }
  [[nodiscard]] std::string shown(Key key) const {
    return spec_.name_for_complaint(key) + " " + printable(spec_.text(key));
  }

  void read_hosts() {
    HostList from_file;
    HostList from_flag;
    if (is_flag("hostfile"_key))
      from_file = parse_hostfile(inputs_.hostfile_text, spec_.text("hostfile"_key));
    if (is_flag("hosts"_key)) from_flag = parse_hosts(line_.given("hosts"_key)->word);
    list_ = merge_hosts(std::move(from_file), std::move(from_flag));
    std::ranges::move(list_.complaints, std::back_inserter(planned_.complaints));
  }

  void check_flags() {
    for (const auto& [key, why] : kOfOneMachine) {
      if (is_flag(key))
        complain(spec_.name_for_complaint(key) +
                 " can't be given with --hosts: " + std::string{why});
    }
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

  // ---- the way to a host ----

  [[nodiscard]] bool is_here(const Host& host) const {
    return host.login == host.address &&
           (is_loopback(host.address) || host.address == inputs_.host_name);
  }

  void choose_transport() {
    auto& launch = planned_.launch;
    if (is_flag("ssh"_key) && is_flag("launch_agent"_key))
      complain("--ssh and --launch_agent are two ways to the same hosts: give one of them");
    if (spec_.flag("detach"_key) && (is_flag("ssh"_key) || is_flag("launch_agent"_key)))
      complain(
          "--detach needs acc-agent on the hosts, which keeps the job: leave --ssh and "
          "--launch_agent out");
    if (spec_.flag("wait"_key) && (is_flag("ssh"_key) || is_flag("launch_agent"_key)))
      complain(
          "--wait needs acc-agent on the hosts, which counts their slots: leave --ssh and "
          "--launch_agent out");
    if (spec_.flag("detach"_key) && is_flag("events"_key))
      complain(
          "--events needs a connection to the hosts, and --detach leaves none: leave it out; each "
          "acc-agent has its part's events (/v1/jobs/ID/logs?stream=events)");
    if (is_flag("launch_agent"_key)) {
      agent_ = split_words("launch_agent"_key);
      if (agent_.empty()) return;
      launch.is_ssh = false;
      launch.transport = agent_.front();
      return;
    }
    if (is_flag("ssh"_key)) {
      ssh_options_ = split_words("ssh_options"_key);
      return;
    }
    if (is_flag("ssh_options"_key)) complain("--ssh_options needs --ssh");
    launch.is_ssh = false;
    launch.transport = "sh";
    const auto other =
        std::ranges::find_if(list_.hosts, [this](const Host& host) { return !is_here(host); });
    // A service here counts the workers, also where it reaches no other host.
    const bool needs_daemons =
        other != list_.hosts.end() || spec_.flag("detach"_key) || spec_.flag("wait"_key);
    if (!needs_daemons && inputs_.daemon.socket.empty()) return;
    launch.transport = "acc-ctl bridge";
    launch.uses_daemons = true;
    check_daemons(other == list_.hosts.end() ? list_.hosts.front() : *other);
  }

  void check_daemons(const Host& other) {
    if (is_flag("remote_launch"_key))
      complain("--remote_launch needs --ssh or --launch_agent: acc-agent has its own acc-launch");
    for (const auto& host : list_.hosts) {
      if (host.login == host.address) continue;
      return complain("--hosts: " + printable(host.login) +
                      ": acc-agent runs a job as the user who starts it: leave the name in front "
                      "of @ out, or add --ssh");
    }
    const auto& daemon = inputs_.daemon;
    constexpr std::string_view kCure =
        " (acc-agent --listen 29700, with the same secret on all hosts; docs/operations.md), or "
        "add --ssh to start the job through ssh";
    if (daemon.socket.empty())
      return complain("--hosts: " + printable(other.login) + " is " +
                      (is_here(other) ? "this machine" : "another machine") +
                      ", and no acc-agent answers here that could reach it (" + daemon.why +
                      "): start it on all hosts" + std::string{kCure});
    if (daemon.is_of_user && !is_here(other))
      complain("--hosts: " + printable(other.login) +
               " is another machine, and the acc-agent that answers here (" +
               printable(daemon.socket) +
               ") is your own: jobs on other machines need the system's, which runs as root: start "
               "it on all hosts" +
               std::string{kCure});
  }

  // The node's slots that its workers take: what is known of their number.
  [[nodiscard]] std::uint32_t slots_of(std::size_t index) const {
    if (planned_.workers[index]) return std::max(1U, *planned_.workers[index]);
    if (!is_flag("nproc_per_node"_key)) return 1;
    return parse_number<std::uint32_t>(line_.given("nproc_per_node"_key)->word).value_or(1);
  }

  [[nodiscard]] std::vector<std::string> bridge_to(std::size_t index) const {
    const auto& host = list_.hosts[index];
    const auto& launch = planned_.launch;
    std::vector<std::string> words{inputs_.ctl,
                                   "bridge",
                                   "--socket=" + inputs_.daemon.socket,
                                   "--launch=" + launch.id,
                                   "--nodes=" + std::to_string(list_.hosts.size()),
                                   "--node_rank=" + std::to_string(index),
                                   "--slots=" + std::to_string(slots_of(index))};
    if (launch.sends_secret) words.emplace_back("--secret");
    if (launch.detaches) words.emplace_back("--detach");
    if (is_here(host)) words.emplace_back("--here");
    words.push_back(host.login);
    words.emplace_back("--");
    const auto remote = job_words(index);
    words.insert(words.end(), remote.begin(), remote.end());
    return words;
  }

  std::vector<std::string> split_words(Key key) {
    if (!is_flag(key)) return {};
    auto words = split_shell_words(line_.given(key)->word);
    const auto name = spec_.name_for_complaint(key);
    if (!words) complain(name + ": " + words.error().what);
    if (words && words->empty()) complain(name + ": it is empty");
    return words ? std::move(*words) : std::vector<std::string>{};
  }

  [[nodiscard]] std::vector<std::string> transport_to(const Host& host,
                                                      const std::string& line) const {
    if (!agent_.empty()) return through_agent(host, line);
    if (!planned_.launch.is_ssh || is_here(host)) return {"sh", "-c", line};
    std::vector<std::string> words{"ssh"};
    // The first value of an option counts: the user's.
    words.insert(words.end(), ssh_options_.begin(), ssh_options_.end());
    for (const auto* word : {"-T", "-x", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o",
                             "ServerAliveInterval=10", "-o", "ServerAliveCountMax=3", "--"})
      words.emplace_back(word);
    words.push_back(host.login);
    words.push_back(line);
    return words;
  }

  [[nodiscard]] std::vector<std::string> through_agent(const Host& host,
                                                       const std::string& line) const {
    constexpr std::string_view kHost = "{host}";
    constexpr std::string_view kCommand = "{command}";
    auto words = agent_;
    bool is_placed = false;
    for (auto& word : words) {
      for (const auto& [mark, text] : {std::pair{kHost, &host.login}, std::pair{kCommand, &line}}) {
        const auto at = word.find(mark);
        if (at == std::string::npos) continue;
        word.replace(at, mark.size(), *text);
        is_placed = true;
        break;
      }
    }
    if (!is_placed) {
      words.push_back(host.login);
      words.push_back(line);
    }
    return words;
  }

  // ---- who runs how many ----

  void check_machines() {
    const auto hosts = list_.hosts.size();
    const auto count = plural(hosts, "host");
    planned_.launch.min_hosts = hosts;
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
    planned_.launch.min_hosts = nodes->min;
    if (nodes->min != nodes->max) nodes_ = line_.given("nnodes"_key)->word;
  }

  void share_workers() {
    auto& workers = planned_.workers;
    const auto& hosts = list_.hosts;
    const bool has_slots =
        std::ranges::any_of(hosts, [](const Host& host) { return host.slots.has_value(); });
    const bool per_node = is_flag("nproc_per_node"_key);
    std::uint64_t sum = 0;
    for (const auto& host : hosts) {
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
    if (per_node || !spec_.is_given("num_processes"_key) || !total) return;
    const auto each = *total / static_cast<std::int64_t>(hosts.size());
    const auto more = *total % static_cast<std::int64_t>(hosts.size());
    if (each < 1)
      return complain(shown("num_processes"_key) + " on " + plural(hosts.size(), "host") +
                      ": give at least one for each host, or fewer hosts");
    for (std::size_t i = 0; i < workers.size(); ++i)
      workers[i] = static_cast<std::uint32_t>(each + (static_cast<std::int64_t>(i) < more ? 1 : 0));
  }

  void check_slots() {
    const auto& word = line_.given("nproc_per_node"_key)->word;
    for (const auto& host : list_.hosts) {
      if (!host.slots || std::to_string(*host.slots) == word) continue;
      return complain("--nproc_per_node " + printable(word) + ", but " + host.where + " gives " +
                      host.login + " " + plural(*host.slots, "slot") + ": leave one of them out");
    }
    planned_.workers.assign(list_.hosts.size(), std::nullopt);
  }

  // ---- where they meet ----

  void choose_meeting() {
    // A config file of accelerate says static also where nobody chose it.
    const bool chosen = is_flag("rdzv_backend"_key) || (spec_.is_given("rdzv_backend"_key) &&
                                                        spec_.text("rdzv_backend"_key) != "static");
    const auto backend = chosen ? spec_.text("rdzv_backend"_key) : "tcp";
    if (!chosen) add("rdzv_backend", backend);
    if (!spec_.is_given("rdzv_id"_key)) add("rdzv_id", "hosts-" + inputs_.random);
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
  }

  // ---- the command there ----

  [[nodiscard]] std::vector<std::string> job_words(std::size_t index) const {
    std::vector<std::string> words;
    for (const auto& option : line_.options) {
      if (std::ranges::find(kNotPassedOn, option.key) != std::end(kNotPassedOn)) continue;
      const auto& row = row_of(option.key);
      words.push_back("--" + std::string{row.name} +
                      (row.type == Type::flag ? "" : "=" + option.word));
    }
    if (is_flag("report"_key) && index == 0)
      words.push_back("--report=" + line_.given("report"_key)->word);
    if (!inputs_.default_config.empty()) words.push_back("--config_file=" + inputs_.default_config);
    words.push_back("--nnodes=" + (nodes_.empty() ? std::to_string(list_.hosts.size()) : nodes_));
    if (list_.hosts.size() > 1) words.push_back("--node_rank=" + std::to_string(index));
    if (const auto& workers = planned_.workers[index]) {
      words.push_back("--nproc_per_node=" + std::to_string(*workers));
    } else if (is_flag("nproc_per_node"_key)) {
      words.push_back("--nproc_per_node=" + line_.given("nproc_per_node"_key)->word);
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
  std::vector<std::string> agent_;
  std::vector<std::string> ssh_options_;
  std::vector<std::string> added_;
  std::string nodes_;  ///< "2:4"
  PlannedHosts planned_;
};

}  // namespace

bool is_on_hosts(const CommandLine& line) {
  return line.given("hosts"_key) != nullptr || line.given("hostfile"_key) != nullptr;
}

Complaints check_without_hosts(const CommandLine& line) {
  Complaints complaints;
  for (const auto key : kOnlyWithHosts) {
    const auto* option = line.given(key);
    if (option == nullptr) continue;
    std::string hint;
    if (key == "env"_key)
      hint = ": on this machine workers inherit all variables: NAME=VALUE acc-launch …";
    if (key == "tag_output"_key) hint = ": on one machine --tee 3 shows the rank of each line";
    complaints.push_back(
        {Errc::bad_config, option->spelled + " needs --hosts or --hostfile" + hint});
  }
  return complaints;
}

PlannedHosts plan_hosts(const CommandLine& line, const JobSpec& spec, const HostsInputs& inputs) {
  return HostsPlanner{line, spec, inputs}.run();
}

std::unique_ptr<HostFacts> unknown_facts() { return std::make_unique<UnknownFacts>(); }

}  // namespace acc::launcher
