#include "launcher/cluster_plan.hpp"

#include "common/endpoint.hpp"
#include "common/text.hpp"
#include "launcher/key_table.hpp"
#include "launcher/setting_parsers.hpp"
#include "rendezvous/secret.hpp"

#include <algorithm>

namespace acc::launcher {

using namespace literals;

namespace {

constexpr std::uint16_t kEtcdPort = 2379;

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

class ClusterPlanner {
 public:
  ClusterPlanner(const JobSpec& spec, agent::JobPlan& plan)
      : spec_{spec}, plan_{plan}, cluster_{plan.cluster} {}

  Complaints run() {
    const auto& meeting = plan_.rendezvous;
    cluster_.nodes_min = meeting.nnodes_min;
    cluster_.nodes_max = meeting.nnodes_max;
    cluster_.job = meeting.id;
    if (!cluster_.several()) return {};
    const auto backend = backend_of(meeting.backend);
    if (!backend) return {};  // told by check_runnable
    cluster_.backend = *backend;
    if (*backend == agent::Backend::fixed || spec_.is_given("machine_rank"_key))
      cluster_.wanted = meeting.node_rank;
    cluster_.node_name = spec_.text("node_name"_key);
    cluster_.address = spec_.text("local_addr"_key);
    cluster_.secret_file = spec_.text("secret_file"_key);
    cluster_.insecure = spec_.flag("insecure"_key);
    const auto growth = spec_.text("scale_up"_key);
    cluster_.scale_up = growth == "now" ? agent::ScaleUp::now : agent::ScaleUp::next_round;
    if (*backend == agent::Backend::etcd) {
      meet_by_etcd();
    } else {
      meet_at_endpoint();
    }
    choose_times();
    agree();
    return std::move(complaints_);
  }

 private:
  void complain(Key key, const std::string& what) {
    complaints_.push_back({Errc::bad_config, spec_.name_for_complaint(key) + ": " + what});
  }

  // ---- where ----

  void meet_at_endpoint() {
    cluster_.control_host = plan_.master.addr;
    const auto endpoint = spec_.text("rdzv_endpoint"_key);
    if (cluster_.backend == agent::Backend::tcp && !endpoint.empty()) {
      const auto parsed = parse_endpoint(endpoint);
      if (!parsed) return complain("rdzv_endpoint"_key, parsed.error().what);
      cluster_.control_host = parsed->host;
    }
    take_port(control_port(spec_, plan_).value_or(0));
    cluster_.loopback = is_loopback(cluster_.control_host);
    if (cluster_.loopback) {
      cluster_.listen = cluster_.control_host;
      if (cluster_.address.empty()) cluster_.address = cluster_.control_host;
    }
    cluster_.hosting = hosting();
  }

  agent::Hosting hosting() {
    const auto said = conf("is_host");
    if (!said.empty()) {
      const auto host = parse_yes_no(said);
      if (host) return *host ? agent::Hosting::must : agent::Hosting::never;
      complain("rdzv_conf"_key, "is_host: " + host.error().what);
    }
    if (spec_.hosts) return *spec_.hosts ? agent::Hosting::must : agent::Hosting::never;
    // Rank 0 by default, as in torchrun, is no claim to be the first machine.
    if (!spec_.is_given("machine_rank"_key)) return agent::Hosting::may;
    return cluster_.wanted == NodeRank{0} ? agent::Hosting::must : agent::Hosting::never;
  }

  void meet_by_etcd() {
    const auto protocol = conf("protocol").empty() ? "http" : std::string{conf("protocol")};
    if (protocol != "http" && protocol != "https")
      complain("rdzv_conf"_key, "protocol: '" + printable(protocol) + "' is not http or https");
    bool all_loopback = true;
    for (const auto& one : split(plan_.rendezvous.endpoint, ',')) {
      auto text = std::string{trim(one)};
      auto scheme = protocol;
      if (const auto end = text.find("://"); end != std::string::npos) {
        scheme = text.substr(0, end);
        text.erase(0, end + 3);
      }
      if (scheme == "https")  // as the client in rendezvous/ says it
        return complain("rdzv_endpoint"_key, "etcd endpoint \"https://" + printable(text) +
                                                 "\": TLS to etcd isn't supported; use http:// on "
                                                 "a trusted network");
      const auto parsed = parse_endpoint(text);
      if (!parsed) return complain("rdzv_endpoint"_key, parsed.error().what);
      all_loopback = all_loopback && is_loopback(parsed->host);
      cluster_.etcd_endpoints.push_back(
          scheme + "://" + join_host_port(parsed->host, parsed->port.value_or(kEtcdPort)));
    }
    cluster_.etcd_prefix = spec_.text("etcd_prefix"_key);
    cluster_.hosting = agent::Hosting::may;
    cluster_.loopback = all_loopback && (cluster_.address.empty() || is_loopback(cluster_.address));
    if (cluster_.loopback) cluster_.listen = cluster_.address = "127.0.0.1";
    take_port(spec_.integer("control_port"_key).value_or(0));
  }

  void take_port(std::int64_t port) {
    if (port >= 0 && port <= 65535) {
      cluster_.control_port = static_cast<std::uint16_t>(port);
    } else if (spec_.is_set("control_port"_key)) {
      complain("control_port"_key, std::to_string(port) + " is not a port: 0 to 65535");
    } else {
      complain("control_port"_key,
               "beside --main_process_port 65535 there is no next port: give one");
    }
  }

  // ---- when ----

  void choose_times() {
    if (const auto time = time_of("join_timeout"_key, {"join_timeout", "timeout"}))
      cluster_.join_timeout = *time;
    cluster_.last_call = time_of("last_call"_key, {"last_call_timeout"});
    if (const auto time = time_of("dead_after"_key, {})) cluster_.dead_after = *time;
    if (!spec_.is_given("dead_after"_key)) keep_alive();
    constexpr Millis kQuickest{250};
    if (cluster_.dead_after < kQuickest)
      complain("dead_after"_key, describe(cluster_.dead_after) +
                                     " is too short to tell a lost machine from a busy one: 250ms "
                                     "or more");
    cluster_.lease = 2 * cluster_.dead_after;
    if (const auto time = time_of("lease"_key, {})) cluster_.lease = *time;
    const auto least = cluster_.dead_after + 2 * agent::beat_interval(cluster_);
    if (cluster_.lease <= least &&
        spec_.can_judge({"lease"_key, "dead_after"_key, "rdzv_conf"_key}))
      complain("lease"_key, describe(cluster_.lease) + " is too short: with --dead_after " +
                                describe(cluster_.dead_after) + " it must be more than " +
                                describe(least));
  }

  /// torchrun's way: an interval, and how many may be missed.
  void keep_alive() {
    const auto interval = conf("keep_alive_interval");
    const auto attempts = conf("keep_alive_max_attempt");
    if (interval.empty() && attempts.empty()) return;
    const auto each = parse_duration(interval.empty() ? "5" : interval);
    const auto many = parse_number<std::uint32_t>(attempts.empty() ? "3" : attempts);
    constexpr std::uint32_t kMost = 10'000;
    if (!each || !many || *many < 1 || *many > kMost)
      return complain("rdzv_conf"_key,
                      "keep_alive_interval is a time in seconds, keep_alive_max_attempt a number "
                      "from 1");
    cluster_.dead_after = *each * *many;
  }

  /// A flag or key of ours, else the first of torchrun's options that is there, else our default.
  std::optional<Millis> time_of(Key key, std::initializer_list<std::string_view> options) {
    if (!spec_.is_given(key)) {
      for (const auto name : options) {
        if (conf(name).empty()) continue;
        const auto time = parse_duration(conf(name));
        if (time) return *time;
        complain("rdzv_conf"_key, std::string{name} + ": " + time.error().what);
        return std::nullopt;
      }
    }
    if (!spec_.is_set(key)) return std::nullopt;
    const auto time = parse_duration(spec_.text(key));
    if (time) return *time;
    complain(key, time.error().what);
    return std::nullopt;
  }

  [[nodiscard]] std::string_view conf(std::string_view name) const {
    const auto found = plan_.rendezvous.conf.find(std::string{name});
    return found == plan_.rendezvous.conf.end() ? std::string_view{} : found->second;
  }

  // ---- who belongs together ----

  void agree() {
    auto& facts = cluster_.facts;
    if (cluster_.backend == agent::Backend::fixed)
      facts.push_back({"world size", std::to_string(plan_.world_size.value())});
    // The folder may have another name on each machine.
    facts.push_back({"script", base_name(spec_.script)});
    facts.push_back({"arguments", show_arguments(spec_.script_args)});
    facts.push_back({"precision", to_lower(spec_.text("mixed_precision"_key))});
  }

  const JobSpec& spec_;
  agent::JobPlan& plan_;
  agent::Cluster& cluster_;
  Complaints complaints_;
};

}  // namespace

std::optional<agent::Backend> backend_of(const std::string& name) {
  if (name == "static") return agent::Backend::fixed;
  if (name == "tcp" || name == "c10d") return agent::Backend::tcp;
  if (name == "etcd" || name == "etcd-v2" || name == "etcd-v3") return agent::Backend::etcd;
  return std::nullopt;
}

std::optional<std::int64_t> control_port(const JobSpec& spec, const agent::JobPlan& plan) {
  constexpr std::uint16_t kTorchrunPort = 29400;
  const auto backend = backend_of(plan.rendezvous.backend);
  if (plan.rendezvous.nnodes_max < 2 || !backend || *backend == agent::Backend::etcd)
    return std::nullopt;
  if (const auto given = spec.integer("control_port"_key)) return given;
  const auto main_port = spec.integer("main_process_port"_key);
  if (*backend == agent::Backend::fixed) {
    if (main_port && *main_port == 0) return 0;  // another one on each machine
    return std::int64_t{plan.master.port} + 1;
  }
  const auto endpoint = spec.text("rdzv_endpoint"_key);
  if (endpoint.empty()) return main_port.value_or(29500);
  const auto parsed = parse_endpoint(endpoint);
  return parsed ? parsed->port.value_or(kTorchrunPort) : 0;
}

Complaints plan_cluster(const JobSpec& spec, agent::JobPlan& plan) {
  return ClusterPlanner{spec, plan}.run();
}

Complaints check_cluster(const JobSpec& spec, const agent::JobPlan& plan) {
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
  if (cluster.loopback || cluster.insecure) return {};
  const auto places = rendezvous::secret_places(cluster.secret_file);
  const auto secret = rendezvous::load_secret(places);
  if (secret) return {};
  const bool named =
      !places.flag.empty() || !places.variable.empty() || !places.credentials_directory.empty();
  if (named || secret.error().code != Errc::not_found) return {secret.error()};
  return {
      {Errc::unavailable,
       "several machines need a secret that all of them have, and there is none in '" +
           printable(rendezvous::default_secret_path(places)) +
           "'. Make one with `acc-launch --make_secret` on one machine and copy the file to the "
           "others; or give --insecure, in a network in which nobody else is"}};
}

}  // namespace acc::launcher
