#include "agent/rendezvous_options.hpp"

#include "common/fnv.hpp"
#include "common/log.hpp"
#include "common/ports.hpp"
#include "common/random.hpp"
#include "common/text.hpp"
#include "rendezvous/etcd_client.hpp"
#include "rendezvous/secret.hpp"
#include "rendezvous/tls.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <iomanip>
#include <sstream>

namespace acc::agent {

namespace {

/// Differs from the machine's own: a container or a test's host. Empty if it is the machine's, or
/// if that can't be told.
std::string network_namespace() {
  struct stat own {};
  struct stat first {};
  if (::stat("/proc/self/ns/net", &own) != 0 || ::stat("/proc/1/ns/net", &first) != 0) return {};
  return own.st_ino == first.st_ino ? std::string{} : std::to_string(own.st_ino);
}

/// What this machine and its network have of their own where the host name is another one's, too
/// (cloned machines, containers): the same until the next boot. Eight hexadecimal digits.
std::string machine_identity() {
  struct stat own {};
  ::stat("/proc/self/ns/net", &own);
  std::string boot;
  std::ifstream{"/proc/sys/kernel/random/boot_id"} >> boot;
  std::ostringstream text;
  text << std::hex << std::setw(8) << std::setfill('0')
       << (fnv1a(boot + "/" + std::to_string(own.st_ino)) >> 32U);
  return text.str();
}

rendezvous::JobPolicy policy_of(const JobPlan& plan) {
  const auto& cluster = plan.cluster;
  rendezvous::JobPolicy policy;
  policy.restart = plan.restart;
  policy.grace = plan.stop.grace;
  policy.preempt_signals.assign(plan.stop.preempt_signals.begin(), plan.stop.preempt_signals.end());
  policy.preempt_grace = plan.stop.preempt_grace;
  policy.join_timeout = cluster.join_timeout;
  policy.last_call = cluster.last_call;
  policy.scale_up_now = cluster.scale_up == ScaleUp::now;
  const bool is_fixed = cluster.backend == Backend::fixed;
  if (is_fixed || plan.master.port_is_given) {
    policy.master =
        rendezvous::HostPort{is_fixed ? plan.master.addr : std::string{},
                             plan.master.port_is_given ? plan.master.port : std::uint16_t{0}};
  }
  return policy;
}

Result<void> load_keys(const Cluster& cluster, rendezvous::RendezvousClientOptions& options) {
  options.is_insecure = cluster.insecure;
  if (cluster.backend != Backend::etcd) rendezvous::start_openssl_for_keys();
  if (cluster.secret) {
    options.dial_tls = rendezvous::TlsContext::for_dialling(*cluster.secret, cluster.job);
    options.listen_tls = rendezvous::TlsContext::for_listening(*cluster.secret);
    return {};
  }
  const auto places = rendezvous::secret_places(cluster.secret_file);
  if (cluster.insecure || (cluster.loopback && !rendezvous::is_secret_named(places))) return {};
  auto secret = rendezvous::load_secret(places);
  if (!secret) return secret.error();
  options.dial_tls = rendezvous::TlsContext::for_dialling(*secret, cluster.job);
  options.listen_tls = rendezvous::TlsContext::for_listening(*secret);
  log::info("secret", {{"file", secret->path}, {"key_id", secret->keys.front().id}});
  return {};
}

}  // namespace

NodeName choose_node_name(const Cluster& cluster, const std::string& host) {
  NodeName node;
  node.name = cluster.node_name;
  if (!node.name.empty()) return node;
  node.name = printable(host, std::string::npos);
  if (const auto own = network_namespace(); !own.empty()) node.name += "@" + own;
  // Unless the job is static, other nodes may have this rank, too.
  const bool has_own_rank = cluster.wanted && cluster.backend == Backend::fixed;
  node.if_taken = node.name;
  if (cluster.wanted) node.if_taken += "-" + std::to_string(cluster.wanted->value());
  if (!has_own_rank) node.if_taken += "@" + machine_identity();
  constexpr std::uint32_t kMostOnOneHost = 4096;
  for (std::uint32_t i = 0; i < kMostOnOneHost; ++i) {
    node.reservation = reserve_name("node/" + std::to_string(i) + "/" + cluster.job);
    if (!node.reservation) continue;
    if (i > 0) node.name += "-" + std::to_string(cluster.wanted ? cluster.wanted->value() : i);
    if (i > 0 && !has_own_rank) node.if_taken += "-" + std::to_string(i);
    break;
  }
  if (node.if_taken == node.name) node.if_taken.clear();
  return node;
}

Result<rendezvous::RendezvousClientOptions> rendezvous_options(const JobPlan& plan,
                                                               const std::string& host,
                                                               const NodeName& node) {
  const auto& cluster = plan.cluster;
  rendezvous::RendezvousClientOptions options;
  if (auto keys = load_keys(cluster, options); !keys) return keys.error();
  auto& client = options.client;
  client.self.job = cluster.job;
  client.self.node = {node.name, random_number()};
  client.other_name = node.if_taken;
  client.self.host = host;
  client.self.address = cluster.address;
  client.self.slots = plan.local_world_size;
  client.self.wanted = cluster.wanted;
  client.self.nodes_min = cluster.nodes_min;
  client.self.nodes_max = cluster.nodes_max;
  for (const auto& fact : cluster.facts)
    client.self.facts.push_back({fact.name, printable(fact.value), fnv1a(fact.value)});
  client.self.policy = policy_of(plan);
  client.seed_endpoint = {cluster.control_host, cluster.control_port};
  client.serves_seed = cluster.serve_seed == rendezvous::ServeSeed::must;
  const bool serves_by_address =
      cluster.backend == Backend::tcp && cluster.serve_seed == rendezvous::ServeSeed::may;
  if (serves_by_address && cluster.wanted == NodeRank{0})
    client.seek_hint =
        "; if that is the address of a service or a NAT in front of this machine, give --rdzv_conf "
        "is_host=true here";
  client.timings = cluster.timings;
  client.join_timeout = cluster.join_timeout;
  options.clock_skew = cluster.clock_skew;
  client.seed = random_number();

  auto& membership = options.membership;
  membership.job = cluster.job;
  membership.name = node.name;
  membership.nodes_min = cluster.nodes_min;
  membership.nodes_max = cluster.nodes_max;
  membership.policy = client.self.policy;
  membership.facts = client.self.facts;
  membership.timings = client.timings;
  membership.seed = random_number();
  membership.starts_no_node_again = plan.stop.is_from_one_launch;
  options.serve_seed = cluster.serve_seed;
  options.listen = cluster.listen;
  if (cluster.backend != Backend::etcd) return options;
  const auto endpoints = rendezvous::parse_etcd_endpoints(acc::join(cluster.etcd_endpoints, ","));
  if (!endpoints) return endpoints.error();
  const bool needs_tls = std::ranges::any_of(*endpoints, &rendezvous::EtcdEndpoint::is_tls);
  auto credentials = rendezvous::load_etcd_credentials(
      {cluster.etcd_ca_file, cluster.etcd_cert_file, cluster.etcd_key_file, cluster.etcd_user_file},
      needs_tls);
  if (!credentials) return credentials.error();
  options.etcd = {{*endpoints, std::move(*credentials)}, cluster.etcd_prefix, cluster.control_port};
  options.serve_seed = rendezvous::ServeSeed::never;
  client.seed_endpoint = {};
  client.serves_seed = false;
  client.external_leader = true;
  return options;
}

}  // namespace acc::agent
