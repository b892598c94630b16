#pragma once

#include "common/clocks.hpp"
#include "rendezvous/coordinator.hpp"
#include "rendezvous/dialer.hpp"
#include "rendezvous/etcd_leadership.hpp"
#include "rendezvous/kv_share.hpp"
#include "rendezvous/listener.hpp"
#include "rendezvous/lookup.hpp"
#include "rendezvous/member.hpp"
#include "rendezvous/office_note.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace acc::rendezvous {

/// Whether this node's agent offers itself as the first coordinator.
enum class Host { must, may, never };

/// How this node finds etcd, and where it listens itself.
struct EtcdOptions {
  std::vector<EtcdEndpoint> endpoints;  ///< at least one
  std::string prefix = "/acc";
  std::uint16_t listen_port = 0;  ///< 0: any
};

struct PartyOptions {
  MemberOptions member;
  RosterOptions roster;  ///< for when this node is coordinator
  Host host = Host::never;
  std::optional<EtcdOptions> etcd;  ///< the coordinator is whom etcd names; no home, no host
  std::string listen;  ///< numeric address or name of this host; empty: as home or the link says
  std::shared_ptr<const TlsContext> dial_tls;
  std::shared_ptr<const TlsContext> listen_tls;
  bool is_insecure = false;
  AdmissionLimits admission;
};

/// What the agent has to do, and what it wants to know.
struct PartyHooks {
  std::function<std::uint16_t(Round)> reserve_port;  ///< for the workers' store, on this node
  std::function<void(const RoundPlace&)> round;
  std::function<void(const Stop&)> stop;
  std::function<void(const Signal&)> signal;
  std::function<void(const Close&)> close;
  std::function<void(std::optional<Instant> end, Millis length)> lease;
  std::function<void(const std::string& why)> kill;
  std::function<void(const GiveUp&)> give_up;
  std::function<void(const std::string& text, bool is_warning)> tell;
};

/// One agent's part in the rendezvous, with its sockets: its membership, its listener, and the
/// coordinator while it is one. One loop; hooks are called from it, never from within a call.
class Party {
 public:
  Party(boost::asio::io_context& io, PartyOptions options, PartyHooks hooks);
  Party(const Party&) = delete;
  Party& operator=(const Party&) = delete;
  ~Party();

  /// `cannot` is called instead of anything else if this node must listen and can't.
  void begin(std::function<void(const Error&)> cannot);

  // ---- what happened to the workers ----
  void worker_failed(const Failure& failure);
  void workers_completed();
  void workers_stopped(bool progress);
  void signal_came(int signo, std::uint32_t interrupts);
  void leave(const std::string& why);
  void set_alive(std::uint32_t workers) { member_.set_alive(workers); }
  [[nodiscard]] bool may_run() const;
  [[nodiscard]] bool is_connected() const { return member_.is_connected(); }
  [[nodiscard]] bool is_coordinator() const { return coordinator_ != nullptr; }
  /// As the job knows this node: not always as it was first called.
  [[nodiscard]] const std::string& node_name() const { return member_.options().self.node.name; }

  // ---- what workers ask ----
  using KvAnswer = std::function<void(KvReply)>;
  /// Answered once, also when the round ends or the coordinator changes.
  void ask(KvRequest request, KvAnswer answer);
  using TableAnswer = std::function<void(const std::vector<TableRow>&)>;
  void table(TableAnswer answer);

  /// The job is over for this node: the coordinator, if it is here, stays until the others know.
  void end(std::function<void()> done);

 private:
  static constexpr const char* kAnyAddress = "::";
  struct Question {
    KvRequest request;
    KvAnswer answer;
    Instant asked;  ///< by boot_now()
  };

  // where to listen
  Result<void> host_at_home(const std::vector<std::string>& addresses);
  void host_if_home_is_here(const std::vector<std::string>& addresses);
  Result<void> open_listener(const std::string& address, std::uint16_t port);
  void open_standby(const std::string& own_address);
  void become_first_coordinator();
  void renew_note();

  // etcd
  using OnCannot = std::function<void(const Error&)>;
  void begin_with_etcd(OnCannot cannot);
  void look_up_etcd(std::size_t index, OnCannot cannot);
  void listen_for_etcd(const std::string& own_address, const OnCannot& cannot);
  void seek_in_etcd();
  void etcd_trouble(const std::string& text);
  void leader_changed(const std::optional<Leader>& leader);
  void follow(const Leader& leader);
  void campaign_after(Millis pause);
  void campaign();
  void lead(const Campaign& won);
  void add_etcd_hooks(Coordinator::Hooks& hooks);
  void commit(const Epoch& epoch, const std::string& bytes);
  void leave_office();
  void end_with_etcd(std::function<void()> done);

  // links
  void on_peer(std::shared_ptr<Channel> channel, std::string_view first_frame);
  void on_link_frame(const Frame& frame);
  void take_link(std::shared_ptr<Link> link);
  [[nodiscard]] Coordinator::Hooks coordinator_hooks();
  void retire(const std::string& why);
  void tell_home();

  // time
  /// By boot_now(), as all times of the member. What the clocks put in doubt comes first.
  Instant time_of_event();
  void doubt_clock(Millis step, Instant now);

  // actions
  void perform(const MemberActions& actions);
  void act(const DialTo& a);
  void act(const Hang& a);
  void act(const Send& a);
  void act(const OrderPort& a);
  void act(const OrderRound& a);
  void act(const OrderStop& a);
  void act(const OrderSignal& a);
  void act(const OrderClose& a);
  void act(const SetLease& a);
  void act(const ClearLease& a);
  void act(const OrderKill& a);
  void act(const GiveUp& a);
  void act(const Tell& a);
  void act(const RefuseVote& a);
  void act(const TakeOver& a);
  void arm();

  // the store
  void answered(KvReply reply);
  void tell_share(const Term& term);
  void send_question(std::uint64_t id);
  void ask_current_anew();
  void forget_expired();
  void ask_again();
  void end_questions();
  void add_rows(const Table& part);

  boost::asio::io_context& io_;
  PartyOptions options_;
  PartyHooks hooks_;
  Member member_;
  ClockWatch clocks_;
  boost::asio::steady_timer timer_;
  Instant armed_ = Instant::max();

  std::shared_ptr<Listener> listener_;
  std::shared_ptr<Lookup> lookup_;
  std::shared_ptr<Dial> dial_;
  std::shared_ptr<Link> link_;
  /// The coordinator's end of a link within this process, until the Join is sent.
  std::shared_ptr<Link> inside_;
  std::uint64_t last_peer_ = 0;
  Coordinator::Links votes_;
  std::unique_ptr<Coordinator> coordinator_;
  std::optional<OfficeNote> note_;  ///< of the first coordinator
  boost::asio::steady_timer note_timer_;
  boost::asio::steady_timer home_timer_;
  std::shared_ptr<Dial> home_dial_;

  HostPort here_;  ///< with etcd: where others reach the listener; port 0: not yet
  std::unique_ptr<EtcdLeadership> leadership_;  ///< while there is no other coordinator
  std::optional<Leader> leader_;                ///< as etcd told last
  std::string last_trouble_;
  bool is_campaigning_ = false;
  bool job_is_over_ = false;  ///< as the coordinator here decided
  bool is_ending_ = false;
  boost::asio::steady_timer etcd_timer_;
  boost::asio::steady_timer commit_timer_;

  KvShare share_;
  std::uint64_t last_question_ = 0;
  std::map<std::uint64_t, Question> questions_;
  Term asked_in_;  ///< of the coordinator that has our questions
  std::vector<TableAnswer> table_answers_;
  std::vector<TableRow> rows_;
  std::shared_ptr<bool> alive_;
};

}  // namespace acc::rendezvous
