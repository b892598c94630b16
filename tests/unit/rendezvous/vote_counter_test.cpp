#include "rendezvous/vote_counter.hpp"

#include <catch2/catch.hpp>

using namespace acc;
using namespace acc::rendezvous;

namespace {

Vote vote(std::uint64_t peer, std::uint32_t node_rank, std::uint64_t round = 4,
          std::uint32_t nodes = 5) {
  Vote v;
  v.peer = PeerId{peer};
  v.join.node = {"n" + std::to_string(node_rank), 1};
  v.join.node_rank = NodeRank{node_rank};
  v.join.epoch = {{1, 0}, Round{round}};
  v.join.nodes = nodes;
  v.join.vote = {1, 0};
  return v;
}

}  // namespace

TEST_CASE("a successor and an incumbent never have enough at the same time",
          "[rendezvous][vote_counter]") {
  struct Row {
    std::uint32_t nodes, successor, incumbent;
  };
  for (const auto& [nodes, successor, incumbent] :
       {Row{1, 1, 1}, Row{2, 2, 1}, Row{3, 2, 2}, Row{4, 3, 2}, Row{5, 3, 3}, Row{64, 33, 32}}) {
    CHECK(majority_of(nodes) == successor);
    CHECK(quorum_of(nodes) == incumbent);
  }
  for (std::uint32_t nodes = 1; nodes < 100; ++nodes) {
    CHECK(majority_of(nodes) + quorum_of(nodes) > nodes);
    CHECK(2 * majority_of(nodes) > nodes);
  }
}

SCENARIO("votes are counted among the members of the newest round", "[rendezvous][vote_counter]") {
  VoteCounter votes;
  CHECK_FALSE(votes.result(1));
  votes.add(vote(1, 1));
  votes.add(vote(2, 2));
  CHECK(votes.count().have == 2);
  CHECK(votes.count().needed == 3);
  CHECK_FALSE(votes.result(2));

  WHEN("a third member comes") {
    votes.add(vote(3, 4));
    const auto result = votes.result(2);
    THEN("that is a majority, in a term of its own") {
      REQUIRE(result);
      CHECK(result->term == Term{2, 2});
      CHECK(result->last == Epoch{{1, 0}, Round{4}});
      CHECK(result->nodes == 5);
      CHECK(result->votes.size() == 3);
    }
  }
  WHEN("a member comes by a second connection") {
    votes.add(vote(3, 2));
    THEN("it is still one vote") {
      CHECK(votes.count().have == 2);
      CHECK_FALSE(votes.result(2));
    }
    AND_WHEN("one of its connections ends") {
      votes.remove(PeerId{2});
      THEN("the other one counts") { CHECK(votes.count().have == 2); }
    }
  }
  WHEN("somebody of an older round comes") {
    votes.add(vote(3, 0, 3));
    THEN("it doesn't help") { CHECK_FALSE(votes.result(2)); }
    AND_WHEN("a majority is there") {
      votes.add(vote(4, 3));
      THEN("it is told as all others") { CHECK(votes.result(2)->votes.size() == 4); }
    }
  }
  WHEN("somebody knows a newer round, of three nodes") {
    votes.add(vote(3, 0, 5, 3));
    THEN("the old majority counts no more, and one of three is none") {
      CHECK(votes.count().have == 1);
      CHECK(votes.count().needed == 2);
      CHECK_FALSE(votes.result(2));
    }
  }
  WHEN("the same round number was assigned by a newer coordinator") {
    auto newer = vote(3, 0);
    newer.join.epoch.term = {2, 3};
    votes.add(newer);
    THEN("those are two rounds") { CHECK(votes.count().have == 1); }
  }
  WHEN("a voter goes") {
    votes.remove(PeerId{1});
    votes.add(vote(3, 3));
    THEN("its vote goes with it") { CHECK_FALSE(votes.result(2)); }
  }
}

SCENARIO("a round that may not have started elects nobody without those of the round before",
         "[rendezvous][vote_counter]") {
  const auto unstarted = [](std::uint64_t peer, std::uint32_t rank,
                            std::optional<NodeRank> established) {
    auto v = vote(peer, rank);
    v.join.established = {3, established};
    return v;
  };
  VoteCounter votes;
  votes.add(unstarted(1, 0, NodeRank{2}));
  votes.add(unstarted(2, 3, std::nullopt));
  votes.add(unstarted(3, 4, std::nullopt));

  THEN("a majority of it isn't enough: two of the three before may not know it, and elect") {
    CHECK(votes.count().have == 1);
    CHECK(votes.count().needed == 2);
    CHECK(votes.count().nodes == 3);
    CHECK_FALSE(votes.result(2));
  }
  WHEN("another one that was in both comes") {
    votes.add(unstarted(4, 1, NodeRank{0}));
    const auto result = votes.result(2);
    THEN("both have a majority, and the winner is told whose answers confirm it") {
      REQUIRE(result);
      CHECK(result->nodes == 5);
      CHECK(result->before.needed == 2);
      CHECK(result->before.members == std::vector{NodeRank{0}, NodeRank{1}});
    }
    AND_WHEN("it comes by a second connection, and the first one leaves") {
      votes.add(unstarted(5, 1, NodeRank{0}));
      votes.remove(PeerId{1});
      THEN("it is still one") { CHECK_FALSE(votes.result(2)); }
    }
  }
  WHEN("one comes that had its Start") {
    votes.add(vote(4, 1));
    THEN("all knew the round, and its own majority is enough") {
      REQUIRE(votes.result(2));
      CHECK(votes.result(2)->before.needed == 0);
    }
  }
}

TEST_CASE("the new term is above any that a voter knows", "[rendezvous][vote_counter]") {
  VoteCounter votes;
  votes.add(vote(1, 1));
  votes.add(vote(2, 2));
  auto travelled = vote(3, 3);
  travelled.join.vote = {7, 5};
  votes.add(travelled);
  CHECK(votes.result(2)->term == Term{8, 2});
  CHECK(votes.result(0)->term == Term{8, 0});  // a coordinator that is no member
}

TEST_CASE("whoever never had a place has no vote", "[rendezvous][vote_counter]") {
  VoteCounter votes;
  for (std::uint32_t i = 1; i < 5; ++i) {
    Vote v;
    v.peer = PeerId{i};
    votes.add(v);
  }
  CHECK(votes.count().have == 0);
  CHECK_FALSE(votes.result(1));
  CHECK(votes.peers().size() == 4);
}
