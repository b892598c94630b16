#include "agent/translate.hpp"

#include "agent/supervisor.hpp"

#include <catch2/catch.hpp>

#include <cerrno>
#include <csignal>

using namespace acc;
using namespace acc::agent;
namespace rdzv = acc::rendezvous;

namespace {

const Instant kNow{std::chrono::hours{1}};

template <class Expected>
Expected event(const rdzv::NodeOrder& order) {
  const auto found = event_of(order, "a", kNow);
  REQUIRE(found);
  REQUIRE(std::holds_alternative<Expected>(*found));
  return std::get<Expected>(*found);
}

}  // namespace

TEST_CASE("orders of the coordinator become events", "[agent][translate]") {
  rdzv::RoundPlace place;
  place.epoch.round = Round{3};
  place.ledger.restarts = 2;
  CHECK(event<RoundOrdered>(rdzv::OrderRound{place}).round == Round{3});
  CHECK(event<RoundOrdered>(rdzv::OrderRound{place}).ledger.restarts == 2);

  rdzv::Stop stop;
  stop.signo = SIGINT;
  stop.grace = Millis{7};
  CHECK(event<StopOrdered>(rdzv::OrderStop{stop}).signo == SIGINT);
  CHECK(event<StopOrdered>(rdzv::OrderStop{stop}).grace == Millis{7});
  CHECK_FALSE(event<StopOrdered>(rdzv::OrderStop{stop}).for_good);
  stop.why = rdzv::Stop::Why::end;
  CHECK(event<StopOrdered>(rdzv::OrderStop{stop}).for_good);
  CHECK_FALSE(event<StopOrdered>(rdzv::OrderStop{stop}).is_asked_elsewhere);  // by nobody
  stop.by = "a";
  CHECK_FALSE(event<StopOrdered>(rdzv::OrderStop{stop}).is_asked_elsewhere);
  stop.by = "b";
  CHECK(event<StopOrdered>(rdzv::OrderStop{stop}).is_asked_elsewhere);
  GroupState group;
  group.orders.stop = event<StopOrdered>(rdzv::OrderStop{stop});
  CHECK(lost_since(group, group.orders.stop->now) == group.orders.stop->now);
  stop.failure.emplace();
  stop.failure->ago = Millis{2'000};  // held back on its node
  group.orders.stop = event<StopOrdered>(rdzv::OrderStop{stop});
  CHECK(lost_since(group, group.orders.stop->now) == group.orders.stop->now - Millis{2'000});

  rdzv::Close close;
  close.outcome = Outcome::preempted;
  close.exit_code = 75;
  CHECK(event<JobClosed>(rdzv::OrderClose{close}).end == End{Outcome::preempted, 75});
  CHECK(event<SignalOrdered>(rdzv::OrderSignal{{SIGUSR1}}).signo == SIGUSR1);
  CHECK(event<LeaseOver>(rdzv::OrderKill{"why"}).now == kNow);
  CHECK(event<LinkChanged>(rdzv::LinkChanged{true}).is_connected);
}

TEST_CASE("a node without a coordinator ends with the code for it", "[agent][translate]") {
  using Why = rdzv::GiveUp::Why;
  for (const auto why : {Why::unreachable, Why::no_majority}) {
    const auto given_up = event<GaveUp>(rdzv::GiveUp{why, "words"});
    CHECK(given_up.end == End{Outcome::nodes_missing, 69});
    CHECK_FALSE(given_up.is_refused);
  }
  for (const auto why : {Why::refused, Why::not_authentic}) {
    const auto given_up = event<GaveUp>(rdzv::GiveUp{why, "words"});
    CHECK(given_up.end == End{Outcome::nodes_missing, 77});
    CHECK(given_up.is_refused);
  }
}

TEST_CASE("what the coordinator reads of a node that leaves", "[agent][translate]") {
  CHECK(leave_words(Outcome::succeeded, "") == "succeeded");
  CHECK(leave_words(Outcome::unfit, "this node is unfit: no space") ==
        "this node is unfit: no space");
  CHECK(leave_words(Outcome::guardian_lost, "") == "its acc-launch was killed");
  CHECK(leave_words(Outcome::guardian_lost, "its connection was closed") ==
        "its connection was closed");
}

TEST_CASE("what only the agent carries out is no event", "[agent][translate]") {
  CHECK_FALSE(event_of(rdzv::OrderPort{}, "a", kNow));
  CHECK_FALSE(event_of(rdzv::SetLease{kNow}, "a", kNow));
  CHECK_FALSE(event_of(rdzv::ClearLease{}, "a", kNow));
  CHECK_FALSE(event_of(rdzv::Tell{"words"}, "a", kNow));
}

TEST_CASE("failures of this node in the words of the job", "[agent][translate]") {
  using Kind = rdzv::Failure::Kind;
  const NodeFacts node{{Rank{8}, 4}, "b"};
  SECTION("a worker") {
    const auto failure =
        failure_of(WorkerFailure{LocalRank{2}, Exited{7}, kNow - Millis{40}, true}, node, kNow);
    CHECK(failure.kind == Kind::exited);
    CHECK(failure.code == 7);
    CHECK(failure.rank == Rank{10});
    CHECK(failure.local_rank == LocalRank{2});
    CHECK(failure.host == "b");
    CHECK(failure.ago == Millis{40});
    CHECK(failure.is_final);
  }
  SECTION("a worker that was killed") {
    const auto failure =
        failure_of(WorkerFailure{LocalRank{0}, Signaled{SIGSEGV}, kNow}, node, kNow);
    CHECK(failure.kind == Kind::signaled);
    CHECK(failure.code == SIGSEGV);
  }
  SECTION("one that couldn't be started") {
    const auto failure = failure_of(StartFailure{LocalRank{1}, ENOENT, "exec"}, node);
    CHECK(failure.kind == Kind::cannot_start);
    CHECK(failure.code == ENOENT);
    CHECK(failure.rank == Rank{9});
  }
  CHECK(unkillable_failure(node).kind == Kind::unkillable);
  CHECK(unkillable_failure(node).rank == Rank{8});
}
