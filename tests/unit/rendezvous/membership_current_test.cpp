#include "membership_tools.hpp"

using namespace acc;
using namespace acc::rendezvous;

namespace {

struct AskingJob : RunningJob {
  using RunningJob::RunningJob;
  void asks(PeerId peer) { asks(peer, Round{round()}); }
  void asks(PeerId peer, Round about) { take(membership().asked_current(peer, about, ++id, now)); }
  /// An answer to a Probe, or an old Heartbeat: with that echo.
  void echoes(PeerId peer, std::uint64_t stamp) { says(peer, Heartbeat{900, stamp}); }
  void answer_probe(PeerId peer) { echoes(peer, last<Probe>(peer).stamp); }
  [[nodiscard]] bool is_answered(PeerId peer) const { return count<KvReply>(peer) > 0; }
  std::uint64_t id = 0;
};

}  // namespace

SCENARIO("a round may write once a quorum has proved that it is current",
         "[rendezvous][membership]") {
  AskingJob job{5};
  const PeerId a = job.peers[0];
  job.asks(a);
  THEN("nobody is believed without a proof") {
    CHECK_FALSE(job.is_answered(a));
    for (const PeerId peer : job.peers) CHECK(job.count<Probe>(peer) == 1);
  }
  WHEN("a quorum answers the probe") {
    for (const int i : {0, 3}) job.answer_probe(job.peers[i]);
    CHECK_FALSE(job.is_answered(a));
    job.now += Millis{3};
    job.answer_probe(job.peers[4]);
    THEN("it may, and the lease lasts as long as the answer holds") {
      REQUIRE(job.is_answered(a));
      const auto reply = job.last<KvReply>(a);
      CHECK(reply.id == 1);
      CHECK(reply.status == KvReply::Status::ok);
      CHECK(Millis{reply.number} > kSecond * 9);
      CHECK(Millis{reply.number} <= kSecond * 10);
    }
    AND_WHEN("it asks again") {
      job.forget_messages();
      job.asks(a);
      THEN("the old proof is of no use") {
        CHECK_FALSE(job.is_answered(a));
        CHECK(job.count<Probe>(a) == 1);
      }
    }
  }
  WHEN("what comes was written before the question: it lay in the network meanwhile") {
    const auto before = job.last<Probe>(a).stamp - 1;
    for (const PeerId peer : job.peers) job.echoes(peer, before);
    THEN("it proves nothing") { CHECK_FALSE(job.is_answered(a)); }
  }
  WHEN("others ask while the probe is on its way") {
    job.now += Millis{1};
    job.asks(job.peers[1]);
    for (const PeerId peer : job.peers) CHECK(job.count<Probe>(peer) == 1);
    for (const int i : {0, 1, 2}) job.answer_probe(job.peers[i]);
    THEN("theirs is the next") {
      CHECK(job.is_answered(a));
      CHECK_FALSE(job.is_answered(job.peers[1]));
      CHECK(job.count<Probe>(a) == 2);
      for (const int i : {0, 1, 2}) job.answer_probe(job.peers[i]);
      CHECK(job.is_answered(job.peers[1]));
    }
  }
  WHEN("no probe is answered, but heartbeats go on") {
    job.pass(kSecond * 3);
    THEN("they are proof enough") { CHECK(job.is_answered(a)); }
  }
}

SCENARIO("a stale round may not write", "[rendezvous][membership]") {
  AskingJob job{3};
  const PeerId a = job.peers[0];
  WHEN("the question is about another round") {
    job.asks(a, Round{job.round() + 1});
    THEN("no") { CHECK(job.last<KvReply>(a).status == KvReply::Status::wrong_round); }
  }
  WHEN("the asker was given up") {
    job.falls_silent(a);
    job.pass(kSecond * 7);
    job.asks(a);
    THEN("it has no answer that allows it") { CHECK_FALSE(job.is_answered(a)); }
  }
  WHEN("its workers are being asked to end") {
    job.says(job.peers[1], WorkerFailed{exited(3)});
    REQUIRE(job.phase() == MembershipPhase::stopping);
    job.asks(a);
    job.answer_probe(a);
    job.answer_probe(job.peers[1]);
    THEN("their last checkpoint still counts") {
      CHECK(job.last<KvReply>(a).status == KvReply::Status::ok);
    }
  }
  WHEN("the next round is formed while it waits") {
    job.asks(a);
    job.says(job.peers[1], WorkerFailed{exited(3)});
    job.all_stopped();
    REQUIRE(job.phase() == MembershipPhase::assigning);
    THEN("it is told so") { CHECK(job.last<KvReply>(a).status == KvReply::Status::wrong_round); }
  }
}

SCENARIO("of two nodes the coordinator's own is a quorum", "[rendezvous][membership]") {
  AskingJob job{2};
  const PeerId a = job.peers[0];
  job.falls_silent(job.peers[1]);
  job.asks(a);
  CHECK_FALSE(job.is_answered(a));
  job.answer_probe(a);
  CHECK(job.last<KvReply>(a).status == KvReply::Status::ok);
}

SCENARIO("a coordinator that doubts its clock grants nothing until a quorum confirms it",
         "[rendezvous][membership]") {
  AskingJob job{3};
  const PeerId a = job.peers[0];
  job.take(job.membership().clock_doubted(job.now));
  for (const PeerId peer : job.peers) CHECK(job.count<Probe>(peer) == 1);
  const auto probe = job.last<Probe>(a).stamp;
  WHEN("nobody has answered yet") {
    job.echoes(a, probe - 1);
    job.echoes(job.peers[1], probe - 1);
    THEN("leases are not renewed") { CHECK(job.last<HeartbeatAck>(a).granted == Millis{0}); }
    AND_WHEN("nobody ever does") {
      for (const PeerId peer : job.peers) job.falls_silent(peer);
      job.pass(kSecond * 21);  // the leases of the silent nodes, then one without authority
      THEN("it steps down after a lease") { CHECK_FALSE(job.stepped_down.empty()); }
    }
  }
  WHEN("a quorum answers: the wall clock was merely set") {
    job.answer_probe(a);
    job.answer_probe(job.peers[1]);
    job.echoes(a, probe);
    THEN("it goes on as before") {
      CHECK(job.last<HeartbeatAck>(a).granted > kSecond * 9);
      job.pass(kSecond * 12);
      CHECK(job.phase() == MembershipPhase::running);
      CHECK(job.stepped_down.empty());
    }
  }
}

SCENARIO("with etcd a renewal that was asked for after the question is the proof",
         "[rendezvous][membership]") {
  auto options = options_for(2, 2);
  options.external_leader = true;
  Desk desk{options};
  desk.leads_until(Instant::max());
  const PeerId a = desk.comes("a");
  const PeerId b = desk.comes("b");
  desk.pass(kSecond);
  desk.all_ready();
  desk.has_written(desk.membership().epoch());
  REQUIRE(desk.phase() == MembershipPhase::running);
  const Instant asked = desk.now;
  desk.take(desk.membership().asked_current(b, Round{desk.round()}, 1, asked));
  desk.membership().lead_until(asked + kSecond * 5, asked - kSecond);
  desk.pass(kSecond);
  CHECK(desk.count<KvReply>(b) == 0);
  desk.membership().lead_until(asked + kSecond * 9, asked + Millis{1});
  desk.pass(kSecond);
  CHECK(desk.last<KvReply>(b).status == KvReply::Status::ok);
  CHECK(desk.count<Probe>(a) == 0);
}
