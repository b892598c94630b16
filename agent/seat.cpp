#include "agent/seat.hpp"

#include "agent/outcome.hpp"
#include "common/exit_codes.hpp"
#include "common/log.hpp"
#include "common/ports.hpp"
#include "common/random.hpp"
#include "common/text.hpp"
#include "rendezvous/etcd_client.hpp"
#include "rendezvous/secret.hpp"
#include "rendezvous/tls.hpp"

#include <boost/asio/post.hpp>

#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <iomanip>
#include <sstream>
#include <system_error>
#include <utility>

namespace acc::agent {

namespace {

/// A script that fails right at its start mostly does so on all nodes: so young, an interpreter
/// gets to the script's first lines, and its own error into the log, before another node's failure
/// ends it. A program needs no such time.
constexpr Millis kNewborn{500};

bool is_interpreter(const std::string& program) {
  const auto name = program.substr(program.rfind('/') + 1);  // npos + 1 is 0
  return name.starts_with("python") || name.starts_with("pypy");
}

// FNV-1a: the facts only have to differ by accident, whoever may join is trusted.
std::uint64_t hash_of(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

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
       << (hash_of(boot + "/" + std::to_string(own.st_ino)) >> 32U);
  return text.str();
}

rendezvous::JobPolicy policy_of(const JobPlan& plan) {
  const auto& cluster = plan.cluster;
  rendezvous::JobPolicy policy;
  policy.restart = plan.restart;
  policy.restart.progress_file.clear();
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

rendezvous::Host host_of(Hosting hosting) {
  switch (hosting) {
    case Hosting::must:
      return rendezvous::Host::must;
    case Hosting::may:
      return rendezvous::Host::may;
    case Hosting::never:
      break;
  }
  return rendezvous::Host::never;
}

}  // namespace

Seat::Seat(boost::asio::io_context& io, const JobPlan& plan, const GuardianLink& guardian,
           std::string host, Hooks hooks)
    : io_{io},
      plan_{plan},
      guardian_{guardian},
      host_{std::move(host)},
      hooks_{std::move(hooks)},
      farewell_{io},
      newborn_{io} {}

void Seat::report_completed() {
  has_workers_ = false;
  with_party([](auto& p) { p.workers_completed(); });
  consider_end_alone();
}

void Seat::report_stopped(bool progress) {
  has_workers_ = false;
  with_party([&](auto& p) { p.workers_stopped(progress); });
  consider_end_alone();
}

// Asked to end, nothing runs here any more, and the others can't be told: a moment for a connection
// that is just being made, and then this node goes alone.
void Seat::consider_end_alone() {
  if (!unheard_signal_ || has_workers_ || is_over_) return;
  constexpr Millis kMoment{1'000};
  farewell_.expires_after(kMoment);
  farewell_.async_wait([this](boost::system::error_code error) {
    if (error || has_workers_ || (party_ && party_->is_connected())) return;
    const int signo = *unheard_signal_;
    const bool preempts = std::ranges::count(plan_.stop.preempt_signals, signo) != 0;
    end(preempts ? Verdict::preempted : Verdict::stopped,
        preempts ? to_int(ExitCode::requeue) : 128 + signo,
        signal_name(signo) + "; the other nodes could not be told");
  });
}

void Seat::stop_workers(const rendezvous::Stop& stop) {
  const bool for_good = stop.why == rendezvous::Stop::Why::end;
  const auto now = std::chrono::steady_clock::now();
  const auto grown_up = round_began_ + kNewborn;
  if (for_good || now >= grown_up || !is_interpreter(plan_.command.front())) {
    newborn_.cancel();
    return hooks_.handle(StopOrdered{stop.signo, stop.grace, for_good, now});
  }
  newborn_.expires_at(grown_up);
  newborn_.async_wait([this, stop](boost::system::error_code error) {
    if (!error) stop_workers(stop);
  });
}

// The host's name, unless the same job has another agent here.
void Seat::choose_name() {
  const auto& cluster = plan_.cluster;
  node_name_ = cluster.node_name;
  if (!node_name_.empty()) return;
  node_name_ = host_;
  if (const auto own = network_namespace(); !own.empty()) node_name_ += "@" + own;
  other_name_ = node_name_ + (cluster.wanted ? "-" + std::to_string(cluster.wanted->value())
                                             : "@" + machine_identity());
  constexpr std::uint32_t kMostOnOneHost = 4096;
  for (std::uint32_t i = 0; i < kMostOnOneHost; ++i) {
    name_reservation_ = reserve_name("node/" + std::to_string(i) + "/" + cluster.job);
    if (!name_reservation_) continue;
    if (i > 0) node_name_ += "-" + std::to_string(cluster.wanted ? cluster.wanted->value() : i);
    if (i > 0 && !cluster.wanted) other_name_ += "-" + std::to_string(i);
    return;
  }
}

Result<void> Seat::load_keys(rendezvous::PartyOptions& options) const {
  const auto& cluster = plan_.cluster;
  options.is_insecure = cluster.insecure;
  if (cluster.insecure || cluster.loopback) return {};
  auto secret = rendezvous::load_secret(rendezvous::secret_places(cluster.secret_file));
  if (!secret) return secret.error();
  options.dial_tls = rendezvous::TlsContext::for_dialling(*secret, cluster.job);
  options.listen_tls = rendezvous::TlsContext::for_listening(*secret);
  log::info("secret", {{"file", secret->path}, {"key_id", secret->keys.front().id}});
  return {};
}

Result<rendezvous::PartyOptions> Seat::party_options() {
  const auto& cluster = plan_.cluster;
  rendezvous::PartyOptions options;
  if (auto keys = load_keys(options); !keys) return keys.error();
  auto& member = options.member;
  member.self.job = cluster.job;
  member.self.node = {node_name_, random_number()};
  if (other_name_ != node_name_) member.other_name = other_name_;
  member.self.host = host_;
  member.self.address = cluster.address;
  member.self.slots = plan_.local_world_size;
  member.self.wanted = cluster.wanted;
  member.self.nodes_min = cluster.nodes_min;
  member.self.nodes_max = cluster.nodes_max;
  for (const auto& fact : cluster.facts)
    member.self.facts.push_back({fact.name, printable(fact.value), hash_of(fact.value)});
  member.self.policy = policy_of(plan_);
  member.home = {cluster.control_host, cluster.control_port};
  member.hosts = cluster.hosting == Hosting::must;
  member.timings = {cluster.dead_after, cluster.lease};
  member.join_timeout = cluster.join_timeout;
  member.seed = random_number();

  auto& roster = options.roster;
  roster.job = cluster.job;
  roster.name = node_name_;
  roster.nodes_min = cluster.nodes_min;
  roster.nodes_max = cluster.nodes_max;
  roster.policy = member.self.policy;
  roster.facts = member.self.facts;
  roster.timings = member.timings;
  roster.seed = random_number();
  options.host = host_of(cluster.hosting);
  options.listen = cluster.listen;
  if (cluster.backend != Backend::etcd) return options;
  const auto endpoints = rendezvous::parse_etcd_endpoints(acc::join(cluster.etcd_endpoints, ","));
  if (!endpoints) return endpoints.error();
  options.etcd = {*endpoints, cluster.etcd_prefix, cluster.control_port};
  options.host = rendezvous::Host::never;
  member.home = {};
  member.hosts = false;
  member.has_witness = true;
  return options;
}

void Seat::begin() {
  choose_name();
  auto options = party_options();
  if (!options) return end(Verdict::nodes_missing, to_int(ExitCode::failure), options.error().what);
  party_ = std::make_unique<rendezvous::Party>(io_, std::move(*options), party_hooks());
  party_->begin([this](const Error& error) {
    end(Verdict::nodes_missing, to_int(ExitCode::nodes_missing), error.what);
  });
}

// Once: what this machine lacks to end the workers of a node that is frozen whole.
void Seat::tell_lease_timer() {
  if (guardian_.board == nullptr || std::exchange(told_lease_timer_, true)) return;
  const auto& board = *guardian_.board;
  if (const int why = board.lease_timer_failed; why != 0) {
    hooks_.tell("this machine can't let its kernel end the workers with the lease (" +
                    std::generic_category().message(why) +
                    "): if all of it is frozen for longer, they may run for a moment when it wakes up",
                true);
  }
  if (!board.has_priority) log::info("guardian_has_no_priority", {{"node", node_name_}});
}

rendezvous::PartyHooks Seat::party_hooks() {
  const auto now = [] { return std::chrono::steady_clock::now(); };
  rendezvous::PartyHooks on;
  on.reserve_port = [this](Round round) { return hooks_.reserve_port(round); };
  on.round = [this, now](const rendezvous::RoundPlace& place) {
    newborn_.cancel();
    round_began_ = now();
    has_workers_ = true;
    tell_lease_timer();
    heed_guardian();  // of an older lease, which ended while there was nobody to kill
    hooks_.take_place(place);
    hooks_.handle(RoundOrdered{place.epoch.round, place.ledger, now()});
  };
  on.stop = [this](const rendezvous::Stop& stop) {
    hooks_.tell_workers(stop);
    const bool is_others = stop.by != node_name();
    if (is_others) hooks_.tell("stopping the workers here: " + stop.reason, false);
    stop_workers(stop);
  };
  on.signal = [this](const rendezvous::Signal& signal) {
    hooks_.handle(SignalOrdered{signal.signo});
  };
  on.close = [this, now](const rendezvous::Close& close) {
    close_ = close;
    closed_at_ = now();
    is_over_ = true;
    hooks_.handle(JobClosed{verdict_of(close.outcome), close.exit_code, now()});
  };
  on.lease = [this](std::optional<Instant> end, Millis length) {
    // One that isn't needed any more lies in the past soon: a frozen agent that thaws right before
    // it starts a worker is then still stopped by it.
    end ? hold_lease(guardian_, *end, length) : release_lease(guardian_);
  };
  on.kill = [this, now](const std::string& why) {
    hooks_.tell("killing the workers here: " + why, true);
    hooks_.handle(LeaseOver{now()});
  };
  on.give_up = [this](const rendezvous::GiveUp& give_up) {
    using Why = rendezvous::GiveUp::Why;
    const bool refused = give_up.why == Why::refused || give_up.why == Why::not_authentic;
    if (unheard_signal_ && !refused) return consider_end_alone();
    end(Verdict::nodes_missing, to_int(refused ? ExitCode::refused : ExitCode::nodes_missing),
        give_up.text);
  };
  on.tell = hooks_.tell;
  return on;
}

// Without the others. There are no workers, or the supervisor ends them first.
void Seat::end(Verdict verdict, int exit_code, std::string reason) {
  if (is_over_) return;
  is_over_ = true;
  end_reason_ = std::move(reason);
  hooks_.handle(JobClosed{verdict, exit_code, std::chrono::steady_clock::now()});
}

void Seat::ask_job(int signo, std::uint32_t interrupts) {
  if (!party_) return;
  const bool ends_nothing = signo == SIGUSR1 || signo == SIGUSR2;
  if (party_->is_connected()) return party_->signal_came(signo, interrupts);
  // Nobody answers: what ends nothing can be passed on here at least; the rest waits for a
  // coordinator, or for the supervisor's patience with us.
  if (ends_nothing && std::ranges::count(plan_.stop.preempt_signals, signo) == 0)
    return hooks_.handle(SignalOrdered{signo});
  party_->signal_came(signo, interrupts);
  unheard_signal_ = signo;
  consider_end_alone();
}

void Seat::heed_guardian() {
  if (!take_lease_end(guardian_)) return;
  hooks_.handle(LeaseOver{std::chrono::steady_clock::now()});
}

void Seat::ask(rendezvous::KvRequest request, rendezvous::Party::KvAnswer answer) {
  with_party([&](auto& party) { party.ask(std::move(request), std::move(answer)); });
}

void Seat::table(rendezvous::Party::TableAnswer answer) {
  with_party([&](auto& party) { party.table(std::move(answer)); });
}

void Seat::leave(const std::string& why, std::function<void()> done) {
  if (!party_) return boost::asio::post(io_, std::move(done));
  if (!close_) party_->leave(why);
  party_->end(std::move(done));
}

}  // namespace acc::agent
