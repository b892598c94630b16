#pragma once

#include "common/clocks.hpp"
#include "rendezvous/kv_store.hpp"
#include "rendezvous/link.hpp"
#include "rendezvous/roster.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

namespace acc::rendezvous {

/// A roster and the store of its round, with links to the agents. One loop.
class Coordinator {
 public:
  struct Hooks {
    std::function<void(const std::string& text, bool is_warning)> tell;
    /// Somebody else is in office, or may be. All links are closed by then.
    std::function<void(const std::string& why)> stepped_down;
    std::function<void(const Close&)> job_over;
    // ---- if etcd made it coordinator, else empty ----
    /// Until when nobody else can be coordinator, and when that was asked for; by boot_now().
    struct Tenure {
      Instant asked = Instant::min();
      Instant until = Instant::min();
    };
    std::function<Tenure()> tenure;
    /// Answered by committed().
    std::function<void(const Epoch& epoch, const std::string& bytes)> commit;
  };
  using Links = std::unordered_map<std::uint64_t, std::shared_ptr<Link>>;

  Coordinator(boost::asio::io_context& io, RosterOptions options, Hooks hooks);
  /// Elected: `voters` are the links behind the peers of `win`.
  Coordinator(boost::asio::io_context& io, RosterOptions options, const Win& win, Links voters,
              Hooks hooks);
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;
  ~Coordinator();

  /// Somebody has sent a Join.
  void admit(PeerId peer, std::shared_ptr<Link> link, const Join& join);
  /// An elected coordinator told us where it sits.
  void moved(const HostPort& to);
  /// What the coordinator before this one left in etcd; at first.
  void inherit(const RoundRecord& last);
  void committed(const Epoch& epoch);
  /// Closes all links, and tells the hook.
  void step_down(const std::string& why) { act(StepDown{why}); }
  /// Calls `done` when all agents have got the job's end and hung up, or after `limit`.
  void when_all_left(Millis limit, std::function<void()> done);

  [[nodiscard]] const Roster& roster() const { return roster_; }

 private:
  /// By boot_now(), as all times of the roster. What the clocks put in doubt comes first.
  Instant time_of_event();
  void note_skew(const Join& join) const;
  void listen_to(PeerId peer);
  void on_frame(PeerId peer, const Frame& frame);
  void on_lost(PeerId peer, const std::string& why);
  void perform(const RosterActions& actions);
  void act(const SendTo& a);
  void act(const SendAll& a);
  void act(const ClosePeer& a);
  void act(const ResetStore& a);
  void act(const CommitRound& a);
  void act(const TellHere& a);
  void act(const StepDown& a);
  void act(const JobOver& a);
  void answer(const KvStore::Answers& answers);
  [[nodiscard]] bool is_restoring() const;
  void answer_held();
  void forget_questions_of(PeerId peer);
  void arm();
  void on_timer();
  void check_left();

  boost::asio::io_context& io_;
  Hooks hooks_;
  Links links_;
  Roster roster_;
  KvStore store_;
  struct Held {
    std::uint64_t peer = 0;
    KvRequest request;
  };
  std::vector<Held> held_;         ///< until the store is whole again, after an election
  std::set<std::uint64_t> whole_;  ///< peers that have told all that they put into it
  ClockWatch clocks_;
  boost::asio::steady_timer timer_;
  Instant armed_ = Instant::max();
  boost::asio::steady_timer farewell_;
  std::function<void()> all_left_;
  std::shared_ptr<bool> alive_;  ///< false: the handlers of what we started mustn't touch us
};

}  // namespace acc::rendezvous
