#pragma once

#include "agent/lease_terms.hpp"
#include "agent/supervisor.hpp"
#include "agent/translate.hpp"
#include "common/clocks.hpp"
#include "rendezvous/coordinator_client.hpp"
#include "rendezvous/frame_splitter.hpp"
#include "rendezvous/leadership.hpp"
#include "rendezvous/membership.hpp"
#include "tests/simulation/checker.hpp"
#include "tests/simulation/network.hpp"

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace acc::simulation {

class World;

/// Start parameters of a process.
struct ProcessSpec {
  std::string name;                                            ///< of the node
  std::optional<rendezvous::CoordinatorClientOptions> client;  ///< none: a standalone coordinator
  rendezvous::MembershipOptions membership;
  bool serves_seed = false;  ///< runs the job's first coordinator
  bool listens = true;       ///< others can connect to it
  bool by_etcd = false;      ///< etcd names the coordinator
  agent::StopPolicy stop;
};

/// One agent with its guardian and its workers, or a standalone coordinator: the production state
/// machines, with simulated sockets, timers and children around them as in the real program.
///
/// Events of a process that is stopped (SIGSTOP) or busy wait until it continues; its guardian and
/// its workers run on without it.
///
/// What happens to a process that is stopped (SIGSTOP) or busy waits until it goes on; what its
/// guardian and its workers do goes on without it.
class Process final : public SocketOwner {
 public:
  Process(World& world, HostId host, ProcessSpec spec);

  void begin();
  void pause();
  void resume();
  enum class Sleep : std::uint8_t {
    none,
    stopped,    ///< agent, guardian and workers; the kernel continues
    suspended,  ///< the whole machine
    paused,     ///< the whole machine, and none of its clocks shows it
  };
  /// The whole node. False: it sleeps already, or has ended.
  bool freeze(Sleep how);
  void thaw();
  void look_at_clocks();
  /// The machine was paused, and its wall clock was corrected: its workers must end soon, unless
  /// the coordinator confirms their lease.
  void expect_confirmation();
  /// SIGKILL, or loss of power (then no packet is sent). Its workers die with it.
  void die(bool power_off);
  void signal(int signo);
  void ask_restart();
  void lose_guardian();
  /// One of its workers dies of SIGSEGV.
  void crash_worker();
  /// A frame of an older epoch arrives again.
  bool replay();
  /// A middlebox forgets one of its connections.
  void reset_connection();

  [[nodiscard]] bool is_alive() const { return !ended_; }
  [[nodiscard]] bool is_paused() const { return paused_; }
  [[nodiscard]] bool is_frozen() const { return paused_ || busy_ || sleep_ != Sleep::none; }
  [[nodiscard]] HostId host() const { return host_; }
  [[nodiscard]] const std::string& name() const { return spec_.name; }
  [[nodiscard]] bool is_coordinator() const { return membership_.has_value(); }
  [[nodiscard]] const rendezvous::Membership* membership() const {
    return membership_ ? &*membership_ : nullptr;
  }
  [[nodiscard]] const rendezvous::CoordinatorClient* client() const {
    return client_ ? &*client_ : nullptr;
  }
  [[nodiscard]] bool is_agent() const { return client_.has_value(); }
  [[nodiscard]] std::optional<agent::Finish> finished() const { return finish_; }
  [[nodiscard]] const agent::GroupState& group() const { return group_; }
  /// On this connection and since its last workers ended, it was given a place, or notified that it
  /// waits as a spare.
  [[nodiscard]] bool knows_its_place() const { return knows_its_place_; }
  /// Time of the last welcome by its coordinator.
  [[nodiscard]] Time welcomed_at() const { return welcomed_at_; }
  /// Summary for the history.
  [[nodiscard]] std::string state() const;

  // ---- SocketOwner ----
  void accepted(End end, HostId from) override;
  void dialed(End end, const DialOutcome& outcome) override;
  void arrived(End end, std::string_view bytes) override;
  void ended(End end, const std::string& why) override;

 private:
  void expect_confirmation_by(Instant due);
  using Call = std::function<void()>;
  /// A connection that another agent opened.
  struct Peer {
    rendezvous::PeerId id;
    HostId from = 0;
    rendezvous::FrameSplitter splitter;
    enum class Role { fresh, of_membership, voter } role = Role::fresh;
    std::deque<rendezvous::Frame> recent;  ///< for replay()
  };
  struct Worker {
    LocalRank rank;
    bool lives = true;
    bool asked = false;  ///< was sent SIGTERM
  };
  struct Guardian {
    agent::LeaseTerms terms;
    bool in_use = false;  ///< there are workers to kill
    std::optional<Time> looks_at;
    bool alive = true;
    bool timer_is_planned = false;  ///< the kernel's timer
  };
  /// A worker that wants to make a checkpoint valid, and its request.
  struct Writer {
    std::uint64_t generation = 0;
    std::uint64_t question = 0;  ///< 0: none
    Instant asked{};
    Time since{0};
  };

  // life: process.cpp
  void dispatch(Call call);
  void settle();
  void drain();
  [[nodiscard]] bool is_machine_asleep() const {
    return sleep_ == Sleep::suspended || sleep_ == Sleep::paused;
  }
  [[nodiscard]] Instant now() const;
  void note(const std::string& what) const;
  void note_dial(const std::string& outcome);
  void plan_wake();
  void wake();
  void tick();
  void exit();
  void close_all(bool died);

  // sockets: process_links.cpp
  void on_accepted(End end, HostId from);
  void on_dialed(End end, const DialOutcome& outcome);
  void on_arrived(End end, std::string_view bytes);
  void on_ended(End end, const std::string& why);
  void on_uplink_bytes(std::string_view bytes);
  void note_place(const rendezvous::Message& message);
  void on_peer_bytes(End end, std::string_view bytes);
  void on_first_frame(End end, Peer& peer, const rendezvous::Frame& frame);
  void on_peer_frame(Peer& peer, const rendezvous::Frame& frame);
  void send(End end, const rendezvous::Frame& frame, const Bytes& bytes);
  void drop_peer(End end, const std::string& why);
  void announce_to_seed();
  std::optional<rendezvous::Frame> read(std::string_view bytes, rendezvous::FrameSplitter& splitter,
                                        bool& is_first);
  [[nodiscard]] std::optional<End> end_of(rendezvous::PeerId peer) const;

  // orders: process_orders.cpp
  void carry_out(const rendezvous::ClientActions& actions);
  void carry_out(const rendezvous::MembershipActions& actions);
  void obey(const rendezvous::NodeOrder& order);
  void act(const rendezvous::DialTo& dial);
  void act(const rendezvous::Hang& hang);
  void act(const rendezvous::Send& send);
  void act(const rendezvous::OrderPort& order);
  void act(const rendezvous::OrderRound& order);
  void act(const rendezvous::OrderClose& order);
  void act(const rendezvous::SetLease& lease);
  void act(const rendezvous::ClearLease& lease);
  void act(const rendezvous::OrderKill& order);
  void act(const rendezvous::GiveUp& end);
  void act(const rendezvous::Tell& tell);
  void act(const rendezvous::RefuseVote& refuse);
  void act(const rendezvous::TakeOver& take);
  void act(const rendezvous::SendTo& send);
  void act(const rendezvous::SendAll& send);
  void act(const rendezvous::ClosePeer& close);
  void act(const rendezvous::ResetStore& reset);
  void act(const rendezvous::TellHere& tell);
  void act(const rendezvous::StepDown& down);
  void act(const rendezvous::JobOver& over);
  void note_start(const rendezvous::Frame& frame) const;

  // etcd: process_etcd.cpp
  [[nodiscard]] Instant membership_time();
  void seek_in_etcd();
  void carry_out(const rendezvous::LeadershipActions& actions);
  void act(const rendezvous::AskEtcd& question);
  void act(const rendezvous::FollowLeader& follow);
  void act(const rendezvous::BecomeLeader& won);
  void act(const rendezvous::StopLeading& stop);
  void act(const rendezvous::RoundCommitted& committed);
  void act(const rendezvous::EtcdTrouble& trouble);
  void act(const rendezvous::LeadershipEnded&) {}
  void act(const rendezvous::CommitRound& commit);

  // workers: process_workers.cpp
  void feed(const agent::Event& event);
  void check_emptied();
  void act(const agent::StartRound& start);
  void act(const agent::SignalWorkers& signal);
  void act(const agent::KillAll& kill);
  void act(const agent::ArmTimer& arm);
  void act(const agent::DisarmTimer& disarm);
  void act(const agent::Finish& finish);
  void act(const agent::ReportFailed& report);
  void act(const agent::ReportStartFailed& report);
  void act(const agent::ReportCompleted& report);
  void act(const agent::ReportStopped& report);
  void act(const agent::ReportUnkillable& report);
  void act(const agent::AskJob& ask);
  void act(const agent::AskRestart& ask);
  [[nodiscard]] agent::NodeFacts node_facts() const;
  template <class Words>
  void act(const Words&) {}  // messages for the user, and orders that are only events
  void spawn();
  void plan_death(std::size_t index, Time after, const ExitStatus& status);
  void worker_dies(std::uint64_t generation, std::size_t index, const ExitStatus& status);
  void kill_workers(Time within);
  [[nodiscard]] std::size_t living() const;
  [[nodiscard]] bool is_starting() const;
  void watch_lease();
  void check_lease();
  void lease_is_over();
  void plan_lease_timer();
  void check_lease_timer();

  // permission to write: process_writes.cpp
  void plan_write();
  void ask_to_write();
  void send_inquiry();
  void on_inquiry(const Peer& peer, const rendezvous::Frame& frame,
                  const rendezvous::KvRequest& request);
  void on_inquiry_answer(const rendezvous::KvReply& reply);

  World& world_;
  HostId host_;
  ProcessSpec spec_;
  bool paused_ = false;
  Sleep sleep_ = Sleep::none;
  std::vector<Call> deaths_;   ///< of workers, delivered when they resume
  bool is_uncounted_ = false;  ///< the workers sleep, for the checker
  bool is_excused_ = false;    ///< the workers survived a pause that no clock counted
  Time uncounted_until_{-1};   ///< the end of the last such pause, by the time of the world
  ClockWatch clocks_;
  bool busy_ = false;  ///< in a call that takes time: starting workers
  bool ended_ = false;
  bool rearms_ = false;
  Time wake_at_ = kNever;
  std::deque<Call> inbox_;

  std::optional<rendezvous::CoordinatorClient> client_;
  std::optional<rendezvous::Membership> membership_;
  MembershipId membership_id_ = 0;
  bool is_successor_ = false;  ///< membership_ continues the job of another coordinator
  std::optional<rendezvous::Leadership> leadership_;
  std::uint64_t leadership_number_ = 0;  ///< answers to an earlier one are dropped
  bool continues_record_ = false;
  bool elected_ = false;
  bool job_over_ = false;

  std::optional<End> uplink_;
  std::string dialed_;
  std::string last_dial_;  ///< its outcome, logged once
  bool knows_its_place_ = false;
  Time welcomed_at_{0};
  rendezvous::FrameSplitter uplink_splitter_;
  std::deque<rendezvous::Frame> uplink_recent_;
  std::map<End, Peer> peers_;
  std::map<rendezvous::PeerId, End> end_of_peer_;
  std::uint64_t next_peer_ = 1;
  std::optional<End> home_link_;  ///< link of an elected coordinator to the seed endpoint

  agent::GroupState group_;
  bool was_told_to_end_ = false;  ///< by a signal or the coordinator: no round may follow
  std::deque<agent::Event> events_;
  bool feeds_ = false;
  std::array<std::uint64_t, agent::kTimers> armed_{};
  std::uint64_t next_arm_ = 0;
  std::optional<agent::Finish> finish_;
  rendezvous::RoundPlace place_;
  bool spawn_waits_ = false;
  rendezvous::Epoch workers_epoch_;
  std::uint64_t generation_ = 0;  ///< of workers
  std::vector<Worker> workers_;
  std::size_t unreaped_ = 0;
  bool is_leaving_ = false;  ///< Finish was ordered
  Guardian guardian_;
  std::uint64_t renewals_ = 0;  ///< of the lease
  Writer writer_;
  std::uint64_t last_question_ = 0;
};

}  // namespace acc::simulation
