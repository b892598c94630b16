#pragma once

#include "common/alive.hpp"
#include "common/clocks.hpp"
#include "rendezvous/clock_skew.hpp"
#include "rendezvous/coordinator.hpp"
#include "rendezvous/coordinator_client.hpp"
#include "rendezvous/deadline_timer.hpp"
#include "rendezvous/dialer.hpp"
#include "rendezvous/etcd_candidate.hpp"
#include "rendezvous/lookup.hpp"
#include "rendezvous/own_listener.hpp"
#include "rendezvous/seed_guard.hpp"
#include "rendezvous/serve_seed.hpp"
#include "rendezvous/store_questions.hpp"
#include "rendezvous/successor_notice.hpp"

#include <boost/asio/io_context.hpp>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace acc::rendezvous {

struct RendezvousClientOptions {
  CoordinatorClientOptions client;
  MembershipOptions membership;  ///< used if this node becomes coordinator
  ServeSeed serve_seed = ServeSeed::never;
  std::optional<EtcdOptions>
      etcd;  ///< etcd names the coordinator; seed_endpoint and host are unused
  std::string
      listen;  ///< numeric address or name of this host; empty: that of seed_endpoint or the link
  std::shared_ptr<const TlsContext> dial_tls;
  std::shared_ptr<const TlsContext> listen_tls;
  bool is_insecure = false;
  AdmissionLimits admission;
  Millis clock_skew{0};  ///< so far this machine's clock may be from the coordinator's; 0: any
  /// Once, if it is farther: how far ours is ahead.
  std::function<void(Millis)> on_clock_skew{};
};

/// One agent's part in the rendezvous, with its sockets: its CoordinatorClient, its listener, and
/// the coordinator while it is one. One loop; orders are delivered from it and never from within a
/// call, except leases and lines to the user, which can't wait.
class RendezvousClient {
 public:
  using OnOrder = std::function<void(const NodeOrder&)>;
  RendezvousClient(boost::asio::io_context& io, RendezvousClientOptions options, OnOrder on_order);
  RendezvousClient(const RendezvousClient&) = delete;
  RendezvousClient& operator=(const RendezvousClient&) = delete;
  ~RendezvousClient();

  /// Calls only `cannot` if this node must listen and can't.
  void begin(std::function<void(const Error&)> cannot);

  /// Answers OrderPort.
  void port_reserved(std::uint16_t port);

  // ---- events of the workers ----
  void worker_failed(const Failure& failure);
  void workers_completed(bool progress);
  void workers_stopped(bool progress);
  void signal_received(int signo);
  /// Empty: all workers start anew. Else why they don't.
  using RestartAnswer = std::function<void(const std::string& why_not)>;
  /// `answer` is called at most once: not by a coordinator of an older version.
  void restart_asked(RestartAnswer answer);
  void leave(const std::string& why);
  [[nodiscard]] bool may_run() const;
  [[nodiscard]] bool is_connected() const { return client_.is_connected(); }
  /// The node's name in the job, which may differ from its first one.
  [[nodiscard]] const std::string& node_name() const { return client_.options().self.node.name; }

  // ---- requests of the workers ----
  using KvAnswer = StoreQuestions::Answer;
  using TableAnswer = StoreQuestions::TableAnswer;
  /// See StoreQuestions; requests survive a change of the coordinator.
  void ask(KvRequest request, KvAnswer answer) {
    questions_.ask(std::move(request), std::move(answer), boot_now());
  }
  void table(TableAnswer answer) { questions_.ask_for_table(std::move(answer)); }

  /// For a node that has left: when the others can do without a coordinator here (coordinator.hpp).
  void when_dispensable(std::function<void()> done);
  /// The job is over for this node: a coordinator in this process stays until the others know the
  /// result.
  void end(std::function<void()> done);

 private:
  // the seed endpoint
  [[nodiscard]] OwnListener::Options listener_options() const;
  [[nodiscard]] OwnListener::Events listener_events();
  Result<void> serve_seed(const std::vector<std::string>& addresses);
  void become_first_coordinator();
  void watch_for_rival();

  // etcd
  using OnCannot = std::function<void(const Error&)>;
  void be_candidate();
  void begin_with_etcd(OnCannot cannot);
  void listen_for_etcd(const std::string& own_address, const OnCannot& cannot);
  void seek_in_etcd();
  void follow(const Leader& leader);
  void lead(const BecomeLeader& won);
  void add_etcd_hooks(Coordinator::Hooks& hooks);
  void end_with_etcd(std::function<void()> done);

  // links
  void on_peer(std::shared_ptr<Channel> channel, std::string_view first_frame);
  void on_link_frame(const Frame& frame);
  void take_ack(const HeartbeatAck& ack);
  void take_link(std::shared_ptr<Link> link);
  [[nodiscard]] DialOptions dial_options(const HostPort& to, Millis limit) const;
  [[nodiscard]] Coordinator::Hooks coordinator_hooks();
  void retire(const std::string& why);
  void announce_to_seed();

  // time
  /// By boot_now(), as all times of the client. Handles a doubt about the clocks first.
  Instant time_of_event();
  void doubt_clock(Millis step, Instant now);

  // actions
  void perform(const ClientActions& actions);
  void act(const DialTo& a);
  void act(const Hang& a);
  void act(const Send& a);
  void act(const OrderRound& a);
  void act(const SetLease& a) { on_order_(a); }
  void act(const ClearLease& a) { on_order_(a); }
  void act(const Tell& a) { on_order_(a); }
  void act(const RefuseVote& a);
  void act(const TakeOver& a);
  template <class Order>
  void act(const Order& a) {
    order(a);
  }
  /// Delivered from the loop, later.
  void order(NodeOrder order);
  void tell(std::string text, bool is_warning = false);
  void arm();

  // requests of the workers
  void replay_store(const Term& term);
  void answer_restarts(const std::string& why_not);

  boost::asio::io_context& io_;
  RendezvousClientOptions options_;
  OnOrder on_order_;
  CoordinatorClient client_;
  ClockWatch clocks_;
  ClockSkew skew_;
  DeadlineTimer timer_;

  OwnListener listener_;
  std::shared_ptr<Lookup> lookup_;
  std::shared_ptr<Dial> dial_;
  std::shared_ptr<Link> link_;
  /// The coordinator's end of a link within this process, until the Join is sent.
  std::shared_ptr<Link> inside_;
  std::uint64_t last_peer_ = 0;
  Coordinator::Links votes_;
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<SeedGuard> seed_guard_;              ///< of the job's first coordinator
  std::unique_ptr<SuccessorNotice> successor_notice_;  ///< elected, and the seed is elsewhere

  std::unique_ptr<EtcdCandidate> etcd_;
  bool job_is_over_ = false;  ///< by decision of the coordinator in this process
  bool is_ending_ = false;
  StoreQuestions questions_;
  std::vector<RestartAnswer> restart_answers_;
  Alive alive_;
};

}  // namespace acc::rendezvous
