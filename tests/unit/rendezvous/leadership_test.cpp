#include "rendezvous/leadership.hpp"

#include <catch2/catch.hpp>

using namespace acc;
using namespace acc::rendezvous;
using Catch::Matchers::Contains;

namespace {

constexpr Millis kTtl{3'000};
constexpr std::int64_t kLease = 77;

RoundRecord record(std::uint64_t round) {
  return {{{1, 0}, Round{round}}, {.restarts = 1}, {{{"node1", 7}, Rank{0}, 2}}};
}

/// A machine whose questions the test answers.
struct Play {
  explicit Play(std::uint32_t lowest_term = 1) : machine{options(lowest_term)} {
    take(machine.begin(now));
  }
  static LeadershipOptions options(std::uint32_t lowest_term) {
    LeadershipOptions options;
    options.lowest_term = lowest_term;
    options.job = "j";
    options.me = {"a", 1};
    options.at = {"10.0.0.1", 29401};
    options.ttl = kTtl;
    return options;
  }
  void take(LeadershipActions actions) {
    for (auto& action : actions) {
      if (auto* question = std::get_if<AskEtcd>(&action)) {
        asked = std::move(*question);
      } else {
        told.push_back(std::move(action));
      }
    }
  }
  void answer(Result<EtcdAnswer> with) { take(machine.answered(asked.id, with, now)); }
  void pass(Millis time) {
    now += time;
    take(machine.tick(now));
  }
  EtcdTransactionReply reply(bool succeeded, std::vector<std::optional<EtcdEntry>> reads) {
    return {succeeded, ++revision, std::move(reads)};
  }
  template <class T>
  const T* last() const {
    return told.empty() ? nullptr : std::get_if<T>(&told.back());
  }
  EtcdEntry leader_key() const { return {"/acc/j/leader", value, 5, 5, kLease}; }
  /// Nobody leads: one look, for this seed, is enough.
  void claim() {
    answer(reply(true, {std::nullopt, std::nullopt}));
    REQUIRE(std::get<GrantLease>(asked.question).ttl_s == 3);
    answer(EtcdLease{kLease, 3});
    value = std::get<EtcdTransaction>(asked.question).then.at(0).value;
  }
  void result() {
    claim();
    revision = 4;
    answer(reply(true, {std::nullopt, std::nullopt, std::nullopt}));
    REQUIRE(last<BecomeLeader>());
  }

  Instant now{std::chrono::hours{1}};
  std::int64_t revision = 1;
  std::string value;
  AskEtcd asked;
  LeadershipActions told;
  Leadership machine;
};

}  // namespace

SCENARIO("a leader's time counts from the sending of what granted it", "[rendezvous][etcd]") {
  Play play;
  const Instant began = play.now;
  play.answer(play.reply(true, {std::nullopt, std::nullopt}));
  play.now += Millis{400};
  play.answer(EtcdLease{kLease, 3});
  play.value = std::get<EtcdTransaction>(play.asked.question).then.at(0).value;
  play.revision = 4;
  play.answer(play.reply(true, {std::nullopt, std::nullopt, std::nullopt}));
  REQUIRE(play.last<BecomeLeader>());
  CHECK(play.last<BecomeLeader>()->term == 1);
  CHECK(play.machine.leadership_term()->asked == began);
  CHECK(play.machine.leadership_term()->until == began + kTtl * 49 / 50);
  WHEN("it renews, and the key is still its own") {
    play.pass(Millis{600});
    const Instant sent = play.now;
    REQUIRE(std::get<KeepAlive>(play.asked.question).lease == kLease);
    play.now += Millis{200};
    play.answer(EtcdLease{kLease, 3});
    CHECK(play.machine.leadership_term()->asked == began);
    play.answer(play.reply(true, {play.leader_key()}));
    THEN("its time is longer") {
      CHECK(play.machine.leadership_term()->until == sent + kTtl * 49 / 50);
    }
  }
  WHEN("it renews, and the key is gone") {
    play.pass(Millis{600});
    play.answer(EtcdLease{kLease, 3});
    play.answer(play.reply(true, {std::nullopt}));
    THEN("it leads no more") {
      REQUIRE(play.last<StopLeading>());
      CHECK_THAT(play.last<StopLeading>()->why, Contains("the key is gone"));
      CHECK_FALSE(play.machine.leadership_term());
    }
  }
  WHEN("no renewal is answered") {
    while (play.machine.leadership_term() && play.now < began + Millis{5'000}) {
      play.pass(Millis{10});
      if (std::holds_alternative<KeepAlive>(play.asked.question))
        play.answer(Error{Errc::timed_out, "no answer"});
    }
    THEN("it steps down before etcd frees the key") {
      CHECK(play.now <= began + kTtl * 49 / 50 + Millis{10});
      CHECK_THAT(play.last<StopLeading>()->why, Contains("within 3 s (no answer)"));
    }
  }
}

SCENARIO("a claim that took longer than its lease wins nothing", "[rendezvous][etcd]") {
  Play play;
  play.claim();
  play.now += kTtl;
  play.answer(play.reply(true, {std::nullopt, std::nullopt, std::nullopt}));
  CHECK_FALSE(play.machine.leadership_term());
  REQUIRE(play.last<EtcdTrouble>());
  CHECK_THAT(play.last<EtcdTrouble>()->text, Contains("longer than the lease"));
  CHECK(std::get<RevokeLease>(play.asked.question).lease == kLease);
}

SCENARIO("a claim whose answer got lost has won if the key is its own", "[rendezvous][etcd]") {
  Play play;
  play.claim();
  SECTION("its own") {
    play.answer(
        play.reply(false, {play.leader_key(), EtcdEntry{"t", to_bytes(record(4)), 3, 3, 0}}));
    REQUIRE(play.last<BecomeLeader>());
    CHECK(*play.last<BecomeLeader>()->last == record(4));
  }
  SECTION("another's") {
    auto key = play.leader_key();
    key.value = to_etcd(Leader{{"b", 2}, {"10.0.0.2", 1}, 1});
    play.answer(play.reply(false, {key, std::nullopt}));
    REQUIRE(play.last<FollowLeader>());
    CHECK(play.last<FollowLeader>()->leader.node.name == "b");
    CHECK_FALSE(play.machine.leadership_term());
  }
}

SCENARIO("a round is committed once etcd has it", "[rendezvous][etcd]") {
  Play play;
  play.result();
  play.take(play.machine.commit(record(1), play.now));
  const auto first = play.asked;
  CHECK(std::get<EtcdTransaction>(first.question).when.size() == 3);
  WHEN("it is written") {
    play.answer(play.reply(true, {std::nullopt}));
    THEN("that is told") { CHECK(play.last<RoundCommitted>()->epoch.round == Round{1}); }
  }
  WHEN("nobody knows, and it was written") {
    play.answer(Error{Errc::timed_out, "no answer"});
    CHECK_FALSE(play.last<RoundCommitted>());
    play.pass(Millis{500});
    play.answer(
        play.reply(false, {play.leader_key(), EtcdEntry{"t", to_bytes(record(1)), 6, 6, 0}}));
    THEN("it is found there") { CHECK(play.last<RoundCommitted>()->epoch.round == Round{1}); }
  }
  WHEN("another leads") {
    play.answer(play.reply(false, {std::nullopt, std::nullopt}));
    THEN("this one steps down") {
      CHECK(play.last<StopLeading>());
      CHECK_FALSE(play.machine.leadership_term());
    }
  }
  WHEN("a later round takes its place") {
    play.take(play.machine.commit(record(2), play.now));
    play.take(
        play.machine.answered(first.id, EtcdAnswer{play.reply(true, {std::nullopt})}, play.now));
    THEN("only that one counts") {
      CHECK_FALSE(play.last<RoundCommitted>());
      play.answer(play.reply(true, {std::nullopt}));
      CHECK(play.last<RoundCommitted>()->epoch.round == Round{2});
    }
  }
}

SCENARIO("an agent without a leader looks again, less often while etcd is away",
         "[rendezvous][etcd]") {
  Play play;
  auto other = play.leader_key();
  other.value = to_etcd(Leader{{"b", 2}, {"10.0.0.2", 1}, 3});
  play.answer(play.reply(true, {other, std::nullopt}));
  REQUIRE(play.last<FollowLeader>());
  CHECK(play.machine.next_deadline() == play.now + Millis{500});
  play.pass(Millis{500});
  play.answer(play.reply(true, {other, std::nullopt}));
  CHECK(play.told.size() == 1);  // it is told once
  Millis pause{500};
  for (const auto expected : {1'000, 2'000, 4'000, 5'000, 5'000}) {
    play.pass(pause);
    play.answer(Error{Errc::unavailable, "down"});
    pause = Millis{expected};
    CHECK(play.machine.next_deadline() == play.now + pause);
  }
  CHECK(play.told.size() == 2);  // the trouble, once
}

SCENARIO("a node that was out of reach as its job ended doesn't begin it anew",
         "[rendezvous][etcd]") {
  const auto wins_with = [](std::uint32_t lowest_term, std::optional<EtcdEntry> term,
                            std::optional<EtcdEntry> table) {
    Play play{lowest_term};
    play.answer(play.reply(true, {std::nullopt, std::move(term)}));
    play.answer(EtcdLease{kLease, 3});
    play.answer(play.reply(true, {std::nullopt, std::nullopt, std::move(table)}));
    REQUIRE(play.last<BecomeLeader>());
    return *play.last<BecomeLeader>();
  };
  const EtcdEntry term{"/acc/j/term", "1", 3, 3, 0};
  const EtcdEntry table{"/acc/j/table", to_bytes(record(4)), 3, 3, 0};
  WHEN("it knows a term, and etcd holds none: the end of the job removed it") {
    const auto won = wins_with(2, std::nullopt, std::nullopt);
    THEN("the job is gone, also for a spare, which never had workers") {
      CHECK(is_job_gone(won, NodeState::nothing));
      CHECK(is_job_gone(won, NodeState::assigned));
    }
  }
  WHEN("the term is still there: no round was committed yet") {
    const auto won = wins_with(2, term, std::nullopt);
    THEN("a spare goes on with the job, and a node that had workers doesn't") {
      CHECK_FALSE(is_job_gone(won, NodeState::nothing));
      CHECK(is_job_gone(won, NodeState::running));
    }
  }
  WHEN("it knows no term: this is the first node of a job") {
    CHECK_FALSE(is_job_gone(wins_with(1, std::nullopt, std::nullopt), NodeState::nothing));
  }
  WHEN("a round is there") {
    CHECK_FALSE(is_job_gone(wins_with(2, term, table), NodeState::running));
  }
}

SCENARIO("at the end of a job all keys go, before the lease", "[rendezvous][etcd]") {
  Play play;
  play.result();
  play.take(play.machine.end(true, play.now));
  CHECK_FALSE(play.machine.leadership_term());
  const auto* const removal = std::get_if<EtcdTransaction>(&play.asked.question);
  REQUIRE(removal != nullptr);
  CHECK(removal->then.size() == 3);
  CHECK(removal->when.size() == 2);
  play.answer(play.reply(true, {std::nullopt, std::nullopt, std::nullopt}));
  CHECK(std::get<RevokeLease>(play.asked.question).lease == kLease);
  REQUIRE(play.last<LeadershipEnded>());
  CHECK_FALSE(play.last<LeadershipEnded>()->problem);
}
