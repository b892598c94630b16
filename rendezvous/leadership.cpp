#include "rendezvous/leadership.hpp"

#include "rendezvous/planted.hpp"

#include <algorithm>
#include <limits>

namespace acc::rendezvous {

namespace {

constexpr Millis kLookEvery{500};
constexpr Millis kLongestLookPause{5'000};
/// Rate of look-ups of all agents of a job together, while they seek a leader.
constexpr std::uint32_t kLooksPerMilli = 2;
constexpr Millis kLongestSpread{1'000};
constexpr Millis kAskLimit{5'000};
constexpr Millis kLeadershipRetry{500};
constexpr Millis kShortestRenewRetry{50};
constexpr Millis kShortestTtl{100};  // of what a test may set
constexpr Millis kShortestGranted{2'000};
constexpr int kMostWriteTries = 4;
constexpr std::uint32_t kLastTerm = std::numeric_limits<std::uint32_t>::max();

EtcdOperation read_key(const std::string& key) { return {EtcdOperation::Kind::get, key, {}, 0}; }
EtcdOperation write_key(const std::string& key, std::string value, std::int64_t lease = 0) {
  return {EtcdOperation::Kind::put, key, std::move(value), lease};
}
EtcdOperation remove_key(const std::string& key) {
  return {EtcdOperation::Kind::remove, key, {}, 0};
}

}  // namespace

Millis leadership_ttl(const Timings& timings) {
  return std::max(timings.heartbeat_timeout, kShortestGranted);
}

bool is_job_gone(const BecomeLeader& won, NodeState state) {
  if (planted::begin_ended_job) return !won.last && state > NodeState::assigned;
  return !won.last && (won.is_term_gone || state > NodeState::assigned);
}

Leadership::Leadership(LeadershipOptions options)
    : options_{std::move(options)},
      keys_{options_.prefix, options_.job},
      look_pause_{look_every()} {
  options_.ttl = std::max(options_.ttl, kShortestTtl);
}

std::optional<Leadership::LeadershipTerm> Leadership::leadership_term() const {
  if (!leading_) return std::nullopt;
  if (planted::lead_past_lease) return LeadershipTerm{leading_->asked, Instant::max()};
  return LeadershipTerm{leading_->asked, leading_->until};
}

// ---- events ----

LeadershipActions Leadership::begin(Instant now) {
  LeadershipActions out;
  look(now, out);
  return out;
}

LeadershipActions Leadership::tick(Instant now) {
  LeadershipActions out;
  if (leading_ && now >= leading_->until && !planted::lead_past_lease) {
    std::string why = "it couldn't be renewed within " + describe(options_.ttl);
    if (is_troubled_) why += " (" + last_trouble_ + ')';
    lose(std::move(why), now, out);
  }
  if (leading_ && renewal_ == Renewal::wait && now >= leading_->renew_at) renew(now, out);
  if (leading_ && write_ && write_->id == 0 && now >= write_->at) write(now, out);
  if (!leading_ && step_ == Step::wait && now >= look_at_) look(now, out);
  return out;
}

Instant Leadership::next_deadline() const {
  if (!leading_) return step_ == Step::wait ? look_at_ : Instant::max();
  Instant next = planted::lead_past_lease ? Instant::max() : leading_->until;
  if (renewal_ == Renewal::wait) next = std::min(next, leading_->renew_at);
  if (write_ && write_->id == 0) next = std::min(next, write_->at);
  return next;
}

LeadershipActions Leadership::answered(std::uint64_t id, const Result<EtcdAnswer>& answer,
                                       Instant now) {
  LeadershipActions out;
  if (id == end_id_) {
    on_end(answer, out);
  } else if (step_ != Step::wait && id == seek_id_) {
    on_seek(answer, now, out);
  } else if (leading_ && renewal_ != Renewal::wait && id == renewal_id_) {
    on_renewal(answer, now, out);
  } else if (leading_ && write_ && id == write_->id) {
    on_write(answer, now, out);
  }
  // After a pause of the process its term may be over, whatever the answer was.
  for (auto& more : tick(now)) out.push_back(std::move(more));
  return out;
}

LeadershipActions Leadership::commit(const RoundRecord& record, Instant now) {
  LeadershipActions out;
  if (!leading_) return out;
  Write next{record.epoch, to_bytes(record), 0, 0, now};
  if (next.value.size() > kMaxRoundRecord) {
    out.emplace_back(EtcdTrouble{"etcd: write the round of job '" + options_.job +
                                 "': " + std::to_string(next.value.size()) +
                                 " bytes are more than " + std::to_string(kMaxRoundRecord)});
    return out;
  }
  write_ = std::move(next);
  write(now, out);
  return out;
}

LeadershipActions Leadership::resign(Instant now) {
  LeadershipActions out;
  if (!leading_) return out;
  const auto lease = leading_->lease;
  resign_leadership(now);
  revoke(lease, out);
  return out;
}

LeadershipActions Leadership::end(bool is_over, Instant now) {
  LeadershipActions out;
  is_ended_ = true;
  if (!leading_) {
    out.emplace_back(LeadershipEnded{});
    return out;
  }
  const auto lease = leading_->lease;
  const auto conditions = still_leads();
  resign_leadership(now);
  if (is_over) {
    EtcdTransaction removal;
    removal.when = conditions;
    removal.then = {remove_key(keys_.leader), remove_key(keys_.term), remove_key(keys_.table)};
    end_id_ = ask("remove the keys", kAskLimit, std::move(removal), out);
    ended_lease_ = lease;  // not revoked before: the leader key would be removed with it
  } else {
    end_id_ = ask("give up the lease of the leader", kAskLimit, RevokeLease{lease}, out);
  }
  return out;
}

void Leadership::on_end(const Result<EtcdAnswer>& answer, LeadershipActions& out) {
  end_id_ = 0;
  if (ended_lease_ != 0) revoke(ended_lease_, out);
  out.emplace_back(LeadershipEnded{answer ? std::nullopt : std::optional<Error>{answer.error()}});
}

// ---- looking, and becoming the leader ----

void Leadership::look(Instant now, LeadershipActions& out) {
  if (is_ended_) return;
  look_at_ = now;
  EtcdTransaction reads;
  reads.then = {read_key(keys_.leader), read_key(keys_.term)};
  step_ = Step::look;
  seek_id_ = ask("look for the leader", kAskLimit, std::move(reads), out);
}

void Leadership::look_after(Millis pause, Instant now) {
  step_ = Step::wait;
  look_at_ = is_ended_ ? Instant::max() : now + pause;
}

void Leadership::look_failed(const Error& error, Instant now, LeadershipActions& out) {
  is_free_ = false;
  trouble(error, out);
  look_pause_ = std::min(look_pause_ * 2, std::max(kLongestLookPause, look_every()));
  look_after(look_pause_, now);
}

void Leadership::on_seek(const Result<EtcdAnswer>& answer, Instant now, LeadershipActions& out) {
  if (step_ == Step::claim) return on_claim(answer, now, out);
  if (!answer) return look_failed(answer.error(), now, out);
  answer_came();
  look_pause_ = look_every();
  switch (step_) {
    case Step::look:
      return on_look(std::get<EtcdTransactionReply>(*answer), now, out);
    case Step::remove_own:
      return look(now, out);
    case Step::grant:
      return on_grant(std::get<EtcdLease>(*answer), out);
    case Step::claim:
    case Step::wait:
      return;
  }
}

void Leadership::on_look(const EtcdTransactionReply& reply, Instant now, LeadershipActions& out) {
  if (const auto& leader = reply.reads.at(0)) return on_leader(*leader, now, out);
  known_.reset();
  // Not all at the same time: out of many, only a few claim before one of them has won.
  if (!is_free_ && spread() > Millis{0}) {
    is_free_ = true;
    return look_after(spread(), now);
  }
  claim(reply.reads.at(1), now, out);
}

void Leadership::on_leader(const EtcdEntry& entry, Instant now, LeadershipActions& out) {
  is_free_ = false;
  auto leader = parse_leader(entry.value);
  if (!leader) return look_failed(about_key(keys_.leader, leader.error()), now, out);
  if (leader->node == options_.me && !is_ended_) {
    // A key that this very agent left behind when it lost its lease: no node needs to wait for it.
    EtcdTransaction removal;
    removal.when = {{keys_.leader, EtcdCompare::Of::created, entry.created, {}}};
    removal.then = {remove_key(keys_.leader)};
    step_ = Step::remove_own;
    seek_id_ =
        ask("remove an old entry of this node as leader", kAskLimit, std::move(removal), out);
    return;
  }
  look_after(look_every(), now);
  const bool is_old = leader->term + std::uint64_t{1} < options_.lowest_term;
  if (is_old || known_ == *leader) return;
  known_ = *leader;
  out.emplace_back(FollowLeader{std::move(*leader)});
}

void Leadership::claim(const std::optional<EtcdEntry>& term, Instant now, LeadershipActions& out) {
  is_free_ = false;
  if (is_ended_) return look_after(Millis{0}, now);
  std::uint32_t last = 0;
  if (term) {
    const auto number = parse_term(term->value);
    if (!number) return look_failed(about_key(keys_.term, number.error()), now, out);
    last = *number;
  }
  if (last == kLastTerm)
    return look_failed(about_key(keys_.term, {Errc::exhausted, "no term is left: remove that key"}),
                       now, out);
  claimed_term_ = std::max(last + 1, options_.lowest_term);
  term_modified_ = term ? term->modified : 0;
  claim_asked_ = now;
  step_ = Step::grant;
  const auto ttl_s = std::chrono::ceil<std::chrono::seconds>(options_.ttl).count();
  seek_id_ = ask("get a lease for the leader", kAskLimit, GrantLease{ttl_s}, out);
}

void Leadership::on_grant(const EtcdLease& lease, LeadershipActions& out) {
  claim_lease_ = lease;
  claim_value_ = to_etcd(Leader{options_.me, options_.at, claimed_term_});
  EtcdTransaction claim;
  claim.when = {{keys_.leader, EtcdCompare::Of::created, 0, {}},
                {keys_.term, EtcdCompare::Of::modified, term_modified_, {}}};
  claim.then = {write_key(keys_.leader, claim_value_, lease.id),
                write_key(keys_.term, std::to_string(claimed_term_)), read_key(keys_.table)};
  claim.otherwise = {read_key(keys_.leader), read_key(keys_.table)};
  step_ = Step::claim;
  seek_id_ = ask("become the leader", kAskLimit, std::move(claim), out);
}

void Leadership::on_claim(const Result<EtcdAnswer>& answer, Instant now, LeadershipActions& out) {
  const auto give_up = [&](const Error& error) {
    revoke(claim_lease_.id, out);  // removes the key, too, in case it was written after all
    look_failed(error, now, out);
  };
  if (!answer) return give_up(answer.error());
  answer_came();
  const auto& reply = std::get<EtcdTransactionReply>(*answer);
  auto created = reply.revision;
  auto table = reply.reads.at(reply.succeeded ? 2 : 1);
  if (!reply.succeeded) {
    // The lost answer of an earlier attempt: the client asked the next member of the cluster, and
    // the key found there is our own.
    const auto& there = reply.reads.at(0);
    const bool is_own = there && there->value == claim_value_ && there->lease == claim_lease_.id;
    if (!is_own) {
      revoke(claim_lease_.id, out);
      if (there) return on_leader(*there, now, out);
      return look(now, out);
    }
    created = there->created;
  }
  std::optional<RoundRecord> last;
  if (table) {
    auto parsed = parse_table(table->value);
    if (!parsed) return give_up(about_key(keys_.table, parsed.error()));
    last = std::move(*parsed);
  }
  const Instant until = claim_asked_ + validity(claim_lease_.ttl_s);
  if (now >= until)
    return give_up({Errc::timed_out, "etcd: become the leader of job '" + options_.job +
                                         "': the answers took longer than the lease of " +
                                         describe(options_.ttl)});
  if (is_ended_) {
    look_after(Millis{0}, now);
    return revoke(claim_lease_.id, out);
  }
  step_ = Step::wait;
  look_at_ = Instant::max();
  renewal_ = Renewal::wait;
  const bool is_term_gone = term_modified_ == 0 && options_.lowest_term > 1;
  options_.lowest_term = claimed_term_ == kLastTerm ? kLastTerm : claimed_term_ + 1;
  leading_ = Leading{claimed_term_,
                     claim_value_,
                     created,
                     claim_lease_.id,
                     table ? table->modified : 0,
                     claim_asked_,
                     until,
                     claim_asked_ + options_.ttl / 3};
  out.emplace_back(BecomeLeader{claimed_term_, std::move(last), is_term_gone});
}

// ---- while leading ----

// At a third of the time; after a failure more often, until the time is over.
void Leadership::renew(Instant now, LeadershipActions& out) {
  renewal_ = Renewal::keep_alive;
  renewal_sent_ = now;
  const Millis limit = std::min(options_.ttl / 3, time_left(now));
  renewal_id_ = ask("renew the lease", limit, KeepAlive{leading_->lease}, out);
}

void Leadership::on_renewal(const Result<EtcdAnswer>& answer, Instant now, LeadershipActions& out) {
  if (!answer) {
    trouble(answer.error(), out);
    renewal_ = Renewal::wait;
    leading_->renew_at = renewal_sent_ + std::max(options_.ttl / 10, kShortestRenewRetry);
    return;
  }
  answer_came();
  if (renewal_ == Renewal::keep_alive) {
    renewed_ttl_s_ = std::get<EtcdLease>(*answer).ttl_s;
    if (renewed_ttl_s_ == 0) return lose("etcd has ended the lease", now, out);
    // The lease may outlive the key, which an operator can remove.
    EtcdTransaction reads;
    reads.then = {read_key(keys_.leader)};
    renewal_ = Renewal::check;
    const Millis limit = std::min(options_.ttl / 3, time_left(now));
    renewal_id_ = ask("read the leader", limit, std::move(reads), out);
    return;
  }
  renewal_ = Renewal::wait;
  const auto& leader = std::get<EtcdTransactionReply>(*answer).reads.at(0);
  if (!is_ours(leader))
    return lose(leader ? "another node holds the key" : "the key is gone", now, out);
  // The term may be over by then; a late renewal doesn't revive it.
  if (now >= leading_->until && !planted::lead_past_lease) return;
  leading_->asked = renewal_sent_;
  leading_->until = leading_->asked + validity(renewed_ttl_s_);
  leading_->renew_at = renewal_sent_ + options_.ttl / 3;
}

void Leadership::write(Instant now, LeadershipActions& out) {
  if (now >= leading_->until && !planted::lead_past_lease) return;
  EtcdTransaction write;
  write.when = still_leads();
  // Also guards against an earlier write of our own that was given up and arrives late.
  write.when.push_back({keys_.table, EtcdCompare::Of::modified, leading_->table_modified, {}});
  write.then = {write_key(keys_.table, write_->value)};
  write.otherwise = {read_key(keys_.leader), read_key(keys_.table)};
  ++write_->tries;
  write_->id = ask("write the round", std::min(kAskLimit, time_left(now)), std::move(write), out);
}

void Leadership::on_write(const Result<EtcdAnswer>& answer, Instant now, LeadershipActions& out) {
  write_->id = 0;
  const auto retry = [&](const Error& error) {
    trouble(error, out);
    write_->tries = 0;
    write_->at = now + kLeadershipRetry;
  };
  if (!answer) return retry(answer.error());
  answer_came();
  const auto& reply = std::get<EtcdTransactionReply>(*answer);
  if (reply.succeeded) {
    leading_->table_modified = reply.revision;
    return written(out);
  }
  const auto& leader = reply.reads.at(0);
  if (!is_ours(leader))
    return lose(leader ? "another node holds the key" : "the key is gone", now, out);
  const auto& there = reply.reads.at(1);
  leading_->table_modified = there ? there->modified : 0;
  if (there && there->value == write_->value) return written(out);
  if (write_->tries < kMostWriteTries) return write(now, out);
  retry({Errc::unavailable, "etcd: write the round of job '" + options_.job +
                                "': something else keeps changing " + keys_.table});
}

void Leadership::written(LeadershipActions& out) {
  out.emplace_back(RoundCommitted{write_->epoch});
  write_.reset();
}

void Leadership::resign_leadership(Instant now) {
  leading_.reset();
  write_.reset();
  renewal_ = Renewal::wait;
  known_.reset();
  is_free_ = false;
  look_after(kLeadershipRetry, now);
}

void Leadership::lose(std::string why, Instant now, LeadershipActions& out) {
  const auto lease = leading_->lease;
  resign_leadership(now);
  revoke(lease, out);
  out.emplace_back(
      StopLeading{"etcd: this node leads job '" + options_.job + "' no more: " + std::move(why)});
}

bool Leadership::is_ours(const std::optional<EtcdEntry>& leader) const {
  return leader && leader->created == leading_->created && leader->value == leading_->value;
}

// The value as well: an etcd that lost its data restarts its revisions.
std::vector<EtcdCompare> Leadership::still_leads() const {
  return {{keys_.leader, EtcdCompare::Of::created, leading_->created, {}},
          {keys_.leader, EtcdCompare::Of::value, 0, leading_->value}};
}

// ---- helpers ----

std::uint64_t Leadership::ask(std::string_view what, Millis limit, EtcdQuestion question,
                              LeadershipActions& out) {
  const auto id = ++last_id_;
  out.emplace_back(AskEtcd{id, std::string{what} + " of job '" + options_.job + '\'', limit,
                           std::move(question)});
  return id;
}

// If this fails, the lease expires by itself.
void Leadership::revoke(std::int64_t lease, LeadershipActions& out) {
  ask("give up a lease", kAskLimit, RevokeLease{lease}, out);
}

void Leadership::trouble(const Error& error, LeadershipActions& out) {
  last_trouble_ = error.what;
  if (!std::exchange(is_troubled_, true)) out.emplace_back(EtcdTrouble{error.what});
}

// Time limit for requests while leading.
Millis Leadership::time_left(Instant now) const {
  if (planted::lead_past_lease) return options_.ttl;
  return std::max(std::chrono::ceil<Millis>(leading_->until - now), Millis{1});
}

Millis Leadership::validity(std::int64_t granted_s) const {
  constexpr std::int64_t kDay = 86'400;
  const Millis granted = std::chrono::seconds{std::min(granted_s, kDay)};
  // Two clocks never run at the same rate; 2 % is far more than they differ.
  return std::min(options_.ttl, granted) * 49 / 50;
}

Millis Leadership::look_every() const {
  return std::max(kLookEvery, Millis{options_.nodes / kLooksPerMilli});
}

Millis Leadership::spread() const {
  const auto most = std::min(Millis{options_.nodes}, kLongestSpread);
  return Millis{
      static_cast<Millis::rep>(options_.seed % static_cast<std::uint64_t>(most.count() + 1))};
}

Error Leadership::about_key(const std::string& key, const Error& error) const {
  return {error.code, "etcd: " + key + ": " + error.what};
}

}  // namespace acc::rendezvous
