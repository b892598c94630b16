#include "launcher/coordinator_plan.hpp"

#include "common/endpoint.hpp"
#include "common/text.hpp"
#include "launcher/key_table.hpp"
#include "launcher/main_port.hpp"
#include "launcher/setting_parsers.hpp"

namespace acc::launcher {

using namespace literals;

namespace {

constexpr std::uint16_t kEtcdPort = 2379;
constexpr std::string_view kTimeOptions[] = {"join_timeout", "timeout", "last_call_timeout"};

using RendezvousConf = std::map<std::string, std::string>;

std::string_view option_of(const RendezvousConf& conf, std::string_view name) {
  const auto found = conf.find(std::string{name});
  return found == conf.end() ? std::string_view{} : found->second;
}

/// torchrun's way to say when a silent machine is lost: an interval, and how many may be missed.
Result<Millis> keep_alive_time(const RendezvousConf& conf) {
  const auto interval = option_of(conf, "keep_alive_interval");
  const auto attempts = option_of(conf, "keep_alive_max_attempt");
  const auto each = parse_duration(interval.empty() ? "5" : interval);
  const auto many = parse_number<std::uint32_t>(attempts.empty() ? "3" : attempts);
  constexpr std::uint32_t kMost = 10'000;
  if (!each || !many || *many < 1 || *many > kMost)
    return Error{
        Errc::bad_config,
        "keep_alive_interval is a time in seconds, keep_alive_max_attempt a number from 1"};
  return *each * *many;
}

std::vector<std::string> wrong_options(const RendezvousConf& conf) {
  std::vector<std::string> wrong;
  for (const auto name : kTimeOptions) {
    const auto text = option_of(conf, name);
    if (text.empty()) continue;
    const auto time = parse_duration(text);
    if (!time) wrong.push_back(std::string{name} + ": " + time.error().what);
  }
  if (const auto time = keep_alive_time(conf); !time) wrong.push_back(time.error().what);
  const auto is_host = option_of(conf, "is_host");
  if (!is_host.empty()) {
    const auto parsed = parse_yes_no(is_host);
    if (!parsed) wrong.push_back("is_host: " + parsed.error().what);
  }
  const auto protocol = option_of(conf, "protocol");
  if (!protocol.empty() && protocol != "http" && protocol != "https")
    wrong.push_back("protocol: '" + printable(protocol) + "' is not http or https");
  return wrong;
}

class CoordinatorPlanner {
 public:
  CoordinatorPlanner(const JobSpec& spec, const std::map<std::string, std::string>& conf,
                     agent::JobPlan& plan, Complaints& complaints)
      : spec_{spec}, conf_{conf}, plan_{plan}, cluster_{plan.cluster}, complaints_{complaints} {}

  void run() {
    cluster_.address = spec_.text("local_addr"_key);
    if (cluster_.backend == agent::Backend::etcd) {
      meet_by_etcd();
    } else {
      meet_at_endpoint();
    }
    choose_times();
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
    cluster_.serve_seed = serve_seed();
  }

  rendezvous::ServeSeed serve_seed() {
    const auto said = conf("is_host");
    if (!said.empty()) {
      const auto host = parse_yes_no(said);
      if (host) return *host ? rendezvous::ServeSeed::must : rendezvous::ServeSeed::never;
    }
    if (spec_.hosts)
      return *spec_.hosts ? rendezvous::ServeSeed::must : rendezvous::ServeSeed::never;
    // Rank 0 by default, as in torchrun, is no claim to be the first machine. Nor is one that a
    // c10d line or its config file gives: a shell may have expanded $SLURM_NODEID to 0 for all
    // machines.
    const bool is_from_hosts = spec_.is_given("life_line"_key) || spec_.is_given("secret_fd"_key);
    const bool is_firm = cluster_.backend == agent::Backend::fixed || is_from_hosts;
    if (!is_firm || !spec_.is_given("machine_rank"_key)) return rendezvous::ServeSeed::may;
    return cluster_.wanted == NodeRank{0} ? rendezvous::ServeSeed::must
                                          : rendezvous::ServeSeed::never;
  }

  void meet_by_etcd() {
    const auto protocol = conf("protocol").empty() ? "http" : std::string{conf("protocol")};
    if (protocol != "http" && protocol != "https") return;
    bool all_loopback = true;
    bool has_tls = false;
    for (const auto& one : split(rendezvous_endpoint(spec_, plan_), ',')) {
      auto text = std::string{trim(one)};
      auto scheme = protocol;
      if (const auto end = text.find("://"); end != std::string::npos) {
        scheme = text.substr(0, end);
        text.erase(0, end + 3);
      }
      if (scheme != "http" && scheme != "https")
        return complain("rdzv_endpoint"_key,
                        "'" + printable(scheme) + "://' is not http:// or https://");
      has_tls = has_tls || scheme == "https";
      const auto parsed = parse_endpoint(text);
      if (!parsed) return complain("rdzv_endpoint"_key, parsed.error().what);
      all_loopback = all_loopback && is_loopback(parsed->host);
      cluster_.etcd_endpoints.push_back(
          scheme + "://" + join_host_port(parsed->host, parsed->port.value_or(kEtcdPort)));
    }
    cluster_.etcd_prefix = spec_.text("etcd_prefix"_key);
    cluster_.etcd_user_file = spec_.text("etcd_user_file"_key);
    certificates(has_tls);
    cluster_.serve_seed = rendezvous::ServeSeed::may;
    cluster_.loopback = all_loopback && (cluster_.address.empty() || is_loopback(cluster_.address));
    if (cluster_.loopback) cluster_.listen = cluster_.address = "127.0.0.1";
    take_port(spec_.integer("control_port"_key).value_or(0));
  }

  void certificates(bool has_tls) {
    cluster_.etcd_ca_file = spec_.text("etcd_cacert"_key);
    cluster_.etcd_cert_file = spec_.text("etcd_cert"_key);
    cluster_.etcd_key_file = spec_.text("etcd_key"_key);
    if (cluster_.etcd_cert_file.empty() != cluster_.etcd_key_file.empty())
      complain(cluster_.etcd_cert_file.empty() ? "etcd_key"_key : "etcd_cert"_key,
               "a certificate and its key go together: give --etcd_cert and --etcd_key");
    if (has_tls) return;
    for (const auto key : {"etcd_cacert"_key, "etcd_cert"_key, "etcd_key"_key}) {
      if (!spec_.text(key).empty())
        complain(key, "without https:// in --rdzv_endpoint no certificate is looked at");
    }
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
    if (const auto time = time_of("dead_after"_key, {})) cluster_.timings.heartbeat_timeout = *time;
    if (!spec_.is_given("dead_after"_key)) keep_alive();
    if (const auto time = time_of("clock_skew"_key, {})) cluster_.clock_skew = *time;
    if (const auto wrong = cluster_.timings.complaint(); !wrong.empty())
      complain("dead_after"_key, wrong);
    cluster_.timings.lease = 2 * cluster_.timings.heartbeat_timeout;
    if (const auto time = time_of("lease"_key, {})) cluster_.timings.lease = *time;
    const auto least = cluster_.timings.least_lease();
    if (cluster_.timings.lease <= least &&
        spec_.can_judge({"lease"_key, "dead_after"_key, "rdzv_conf"_key}))
      complain("lease"_key, describe(cluster_.timings.lease) + " is too short: with --dead_after " +
                                describe(cluster_.timings.heartbeat_timeout) +
                                " it must be more than " + describe(least));
  }

  void keep_alive() {
    if (conf("keep_alive_interval").empty() && conf("keep_alive_max_attempt").empty()) return;
    if (const auto time = keep_alive_time(conf_)) cluster_.timings.heartbeat_timeout = *time;
  }

  /// A flag or key of ours, else the first of torchrun's options that is there, else our default.
  std::optional<Millis> time_of(Key key, std::initializer_list<std::string_view> options) {
    if (!spec_.is_given(key)) {
      for (const auto name : options) {
        if (conf(name).empty()) continue;
        const auto time = parse_duration(conf(name));
        return time ? std::optional{*time} : std::nullopt;
      }
    }
    if (!spec_.is_set(key)) return std::nullopt;
    const auto time = parse_duration(spec_.text(key));
    if (time) return *time;
    complain(key, time.error().what);
    return std::nullopt;
  }

  [[nodiscard]] std::string_view conf(std::string_view name) const {
    return option_of(conf_, name);
  }

  const JobSpec& spec_;
  const RendezvousConf& conf_;
  agent::JobPlan& plan_;
  agent::Cluster& cluster_;
  Complaints& complaints_;
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
  const auto backend = backend_of(spec.text("rdzv_backend"_key));
  if (!plan.cluster.several() || !backend || *backend == agent::Backend::etcd) return std::nullopt;
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

std::string rendezvous_endpoint(const JobSpec& spec, const agent::JobPlan& plan) {
  const auto& master = plan.master;
  const bool several = plan.cluster.several();
  if (plan.cluster.standalone) return "localhost:" + std::to_string(master.port);
  const auto given = spec.text("rdzv_endpoint"_key);
  if (spec.text("rdzv_backend"_key) != "static" && (!given.empty() || !several)) return given;
  if (plan.cluster.backend == agent::Backend::fixed)
    return join_host_port(master.addr, master.port);
  const auto port = spec.integer("main_process_port"_key).value_or(kEtcdPort);
  return join_host_port(master.addr, control_port(spec, plan).value_or(port));
}

Complaints check_rendezvous(const JobSpec& spec) {
  Complaints complaints;
  const auto complain = [&](Key key, const std::string& what) {
    complaints.push_back({Errc::bad_config, spec.name_for_complaint(key) + ": " + what});
  };
  const auto conf = parse_rendezvous_conf(spec.text("rdzv_conf"_key));
  if (!conf) {
    complain("rdzv_conf"_key, conf.error().what);
  } else {
    for (const auto& what : wrong_options(*conf)) complain("rdzv_conf"_key, what);
  }
  const auto backend = backend_of(spec.text("rdzv_backend"_key));
  const auto endpoint = spec.text("rdzv_endpoint"_key);
  const bool is_alone = spec.integer("num_machines"_key).value_or(1) < 2;
  const bool has_scheme = backend == agent::Backend::etcd;
  if (endpoint.empty() || has_scheme || bad_main_port(spec) ||
      !(is_alone || backend == agent::Backend::fixed))
    return complaints;
  // localhost:0 is any free port; where one is needed, check_machines says so.
  const bool any_port = endpoint.ends_with(":0") && !endpoint.ends_with("::0");
  const auto parsed = parse_endpoint(any_port ? endpoint.substr(0, endpoint.size() - 2) : endpoint);
  if (!parsed) complain("rdzv_endpoint"_key, parsed.error().what);
  return complaints;
}

void plan_coordinator(const JobSpec& spec, const std::map<std::string, std::string>& conf,
                      agent::JobPlan& plan, Complaints& complaints) {
  CoordinatorPlanner{spec, conf, plan, complaints}.run();
}

}  // namespace acc::launcher
