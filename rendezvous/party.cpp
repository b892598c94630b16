#include "rendezvous/party.hpp"

#include "common/log.hpp"
#include "rendezvous/codec.hpp"

#include <boost/asio/post.hpp>

// Carries out what the member decides. Where this node listens stands in party_listen.cpp, what its
// workers ask in party_store.cpp.
namespace acc::rendezvous {

Party::Party(boost::asio::io_context& io, PartyOptions options, PartyHooks hooks)
    : io_{io},
      options_{std::move(options)},
      hooks_{std::move(hooks)},
      member_{options_.member, boot_now()},
      clocks_{read_clocks()},
      timer_{io},
      note_timer_{io},
      home_timer_{io},
      etcd_timer_{io},
      commit_timer_{io},
      alive_{std::make_shared<bool>(true)} {}

Party::~Party() {
  *alive_ = false;
  if (listener_) listener_->stop();
}

void Party::worker_failed(const Failure& failure) {
  perform(member_.worker_failed(failure, time_of_event()));
}
void Party::workers_completed() { perform(member_.workers_completed(time_of_event())); }
void Party::workers_stopped(bool progress) {
  perform(member_.workers_stopped(progress, time_of_event()));
}
void Party::signal_came(int signo, std::uint32_t interrupts) {
  perform(member_.signal_came(signo, interrupts, time_of_event()));
}
void Party::leave(const std::string& why) { perform(member_.leaves(why, time_of_event())); }
bool Party::may_run() const { return member_.may_run(boot_now()); }

void Party::perform(const MemberActions& actions) {
  for (const auto& action : actions) std::visit([this](const auto& a) { act(a); }, action);
  seek_in_etcd();
  arm();
}

// The timer may fire too early, never too late: so it is set anew only to be earlier.
void Party::arm() {
  const Instant due = member_.next_deadline();
  if (due == Instant::max()) return;
  const Instant next = clock_now() + (due - boot_now());
  if (next >= armed_) return;
  armed_ = next;
  timer_.expires_at(next);
  timer_.async_wait([this, alive = alive_](boost::system::error_code error) {
    if (error || !*alive) return;
    armed_ = Instant::max();
    perform(member_.tick(time_of_event()));
  });
}

// ---- time ----

Instant Party::time_of_event() {
  const Clocks clocks = read_clocks();
  if (const auto step = clocks_.look(clocks)) doubt_clock(*step, clocks.boot);
  return clocks.boot;
}

void Party::doubt_clock(Millis step, Instant now) {
  log::info("clock_doubted", {{"job", options_.roster.job}, {"step_ms", step.count()}});
  if (member_.holding() == Holding::running) {
    hooks_.tell("the wall clock went forward by " + acc::describe(step) +
                    " at once: it was set, or this machine was paused; the coordinator must "
                    "confirm the lease within " +
                    acc::describe(member_.timings().confirmation()),
                true);
  }
  perform(member_.clock_doubted(now));
  ask_current_anew();
}

// ---- links ----

void Party::act(const DialTo& a) {
  if (a.here) {
    if (!coordinator_)
      return perform(member_.dial_failed({false, true, "no coordinator here"}, time_of_event()));
    auto [ours, theirs] = link_inside(io_);
    inside_ = std::move(theirs);
    take_link(std::move(ours));
    return;
  }
  DialOptions dial_options;
  dial_options.to = a.to;
  dial_options.tls = options_.dial_tls;
  dial_options.limit = a.limit;
  dial_options.channel.dead = options_.member.timings.dead;
  dial_ = dial(io_, std::move(dial_options), [this](Dialled dialled) {
    const auto finished = std::exchange(dial_, nullptr);
    if (dialled.has_value()) return take_link(link_over(std::move(*dialled)));
    const auto& error = dialled.error();
    using Kind = DialError::Kind;
    perform(member_.dial_failed(
        {error.kind == Kind::authentication || error.kind == Kind::has_no_secret,
         error.kind == Kind::refused, error.what},
        time_of_event()));
  });
}

void Party::take_link(std::shared_ptr<Link> link) {
  link_ = std::move(link);
  Link::Handlers on;
  on.on_frame = [this](const Frame& frame) { on_link_frame(frame); };
  on.on_lost = [this](const std::string& why, bool not_authentic) {
    link_.reset();
    perform(member_.link_lost(why, time_of_event(), not_authentic));
  };
  link_->start(std::move(on));
  const std::string address = link_->own_address();
  open_standby(address);
  perform(member_.link_up(address, time_of_event()));
}

void Party::on_link_frame(const Frame& frame) {
  if (const auto* reply = std::get_if<KvReply>(&frame.message)) return answered(*reply);
  if (const auto* part = std::get_if<Table>(&frame.message)) return add_rows(*part);
  const bool was_connected = member_.is_connected();
  if (!was_connected && std::holds_alternative<Welcome>(frame.message))
    tell_share(frame.epoch.term);
  perform(member_.received(frame, time_of_event()));
  if (!was_connected && member_.is_connected()) ask_again();
}

void Party::act(const Hang&) {
  dial_.reset();
  inside_.reset();
  if (const auto link = std::exchange(link_, nullptr)) link->close();
}

void Party::act(const Send& a) {
  const auto* said = std::get_if<Join>(&a.frame.message);
  if (said == nullptr) {
    if (link_) link_->send(a.frame);
    return;
  }
  Join join = *said;
  join.wall_clock_ms =
      std::chrono::duration_cast<Millis>(std::chrono::system_clock::now().time_since_epoch())
          .count();
  if (!inside_) {
    if (link_) link_->send({a.frame.epoch, std::move(join)});
    return;
  }
  // Later, as everything that comes over a link.
  boost::asio::post(io_,
                    [this, alive = alive_, theirs = std::move(inside_), join = std::move(join)] {
                      if (*alive && coordinator_)
                        coordinator_->admit(PeerId{++last_peer_}, theirs, join);
                    });
}

// ---- what the agent is told: from the loop, as it calls us back ----

void Party::act(const OrderPort&) {
  boost::asio::post(io_, [this, alive = alive_] {
    if (!*alive) return;
    const auto port = hooks_.reserve_port(member_.epoch().round);
    perform(member_.port_reserved(port, time_of_event()));
  });
}

void Party::act(const OrderRound& a) {
  end_questions();
  boost::asio::post(io_, [this, alive = alive_, place = a.place] {
    if (*alive) hooks_.round(place);
  });
}

void Party::act(const OrderStop& a) {
  boost::asio::post(io_, [this, alive = alive_, stop = a.stop] {
    if (*alive) hooks_.stop(stop);
  });
}

void Party::act(const OrderSignal& a) {
  boost::asio::post(io_, [this, alive = alive_, signal = a.signal] {
    if (*alive) hooks_.signal(signal);
  });
}

void Party::act(const OrderClose& a) {
  boost::asio::post(io_, [this, alive = alive_, close = a.close] {
    if (*alive) hooks_.close(close);
  });
}

// At once: the order of a lease and the round that it is for must not change.
void Party::act(const SetLease& a) { hooks_.lease(a.end, options_.member.timings.lease); }
void Party::act(const ClearLease&) { hooks_.lease(std::nullopt, options_.member.timings.lease); }

void Party::act(const OrderKill& a) {
  boost::asio::post(io_, [this, alive = alive_, why = a.why] {
    if (*alive) hooks_.kill(why);
  });
}

void Party::act(const GiveUp& a) {
  boost::asio::post(io_, [this, alive = alive_, end = a] {
    if (*alive) hooks_.give_up(end);
  });
}

void Party::act(const Tell& a) { hooks_.tell(a.text, a.is_warning); }

// ---- votes and office ----

void Party::act(const RefuseVote& a) {
  const auto found = votes_.find(a.peer.value());
  if (found == votes_.end()) return;
  const auto link = found->second;
  votes_.erase(found);
  link->send({{member_.term(), member_.epoch().round}, a.refused});
  link->close();
}

void Party::act(const TakeOver& a) {
  log::info("coordinator_elected", {{"job", options_.roster.job},
                                    {"term", a.win.term.number},
                                    {"round", a.win.last.round.value()}});
  auto roster = options_.roster;
  roster.name = node_name();
  roster.timings = member_.timings();
  if (listener_) {
    const auto at = listener_->at();
    roster.where = describe(
        {options_.member.self.address.empty() ? at.host : options_.member.self.address, at.port});
  }
  coordinator_ = std::make_unique<Coordinator>(io_, std::move(roster), a.win,
                                               std::exchange(votes_, {}), coordinator_hooks());
  tell_home();
}

Coordinator::Hooks Party::coordinator_hooks() {
  Coordinator::Hooks hooks;
  hooks.tell = [this](const std::string& text, bool is_warning) { hooks_.tell(text, is_warning); };
  hooks.stepped_down = [this](const std::string& why) { retire(why); };
  if (options_.etcd) add_etcd_hooks(hooks);
  hooks.job_over = [this](const Close& close) {
    job_is_over_ = true;
    log::info("job_over", {{"exit_code", close.exit_code}, {"reason", close.reason}});
  };
  return hooks;
}

void Party::retire(const std::string& why) {
  home_timer_.cancel();
  note_timer_.cancel();
  leave_office();
  home_dial_.reset();
  // It is still on the stack.
  std::shared_ptr<Coordinator> retired{std::move(coordinator_)};
  boost::asio::post(io_, [this, alive = alive_, retired, why] {
    if (*alive) perform(member_.stepped_down(why, time_of_event()));
  });
}

// Whoever is started again at the job's first address would wait there for ever.
void Party::tell_home() {
  const auto home = options_.member.home;
  if (!coordinator_ || !listener_ || home.port == 0 || member_.options().hosts) return;
  home_timer_.expires_after(std::max<Millis>(options_.member.timings.dead, Millis{1'000}));
  home_timer_.async_wait([this, alive = alive_, home](boost::system::error_code error) {
    if (error || !*alive || !coordinator_) return;
    DialOptions to_home;
    to_home.to = home;
    to_home.tls = options_.dial_tls;
    to_home.limit = options_.member.timings.dead;
    home_dial_ = dial(io_, std::move(to_home), [this](Dialled dialled) {
      const auto finished = std::exchange(home_dial_, nullptr);
      if (dialled.has_value()) {
        const auto channel = *dialled;
        HostPort here = listener_->at();
        here.host = channel->local().host;
        channel->start({});
        channel->send(encode(coordinator_->roster().epoch(), Moved{options_.roster.job, here}));
        channel->close();
      }
      tell_home();
    });
  });
}

void Party::end(std::function<void()> done) {
  note_timer_.cancel();
  if (listener_) listener_->stop();
  is_ending_ = true;
  // One that goes in the middle of the job has nothing to say: the others see it gone, and elect.
  const bool has_news = coordinator_ && coordinator_->roster().phase() == RosterPhase::closed;
  if (!has_news) {
    leadership_.reset();
    std::shared_ptr<Coordinator> ended{std::move(coordinator_)};  // it may be on the stack
    boost::asio::post(io_, [ended, done = std::move(done)] { done(); });
    return;
  }
  if (note_) note_->remove();
  if (options_.etcd) {
    done = [this, after = std::move(done)]() mutable { end_with_etcd(std::move(after)); };
  }
  constexpr Millis kFarewell{2'000};
  coordinator_->when_all_left(kFarewell, std::move(done));
}

}  // namespace acc::rendezvous
