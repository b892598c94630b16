#include "rendezvous/standby_choice.hpp"

#include <catch2/catch.hpp>

using namespace acc;
using namespace acc::rendezvous;

namespace {

const Instant kLoss{Millis{1'000}};
constexpr Millis kStandbyTimeout{2'000};
constexpr Millis kWindow{3'000};

HostPort at(int node) { return {"10.0.0." + std::to_string(node), 29500}; }

StandbyChoice choice_of(const std::string& own, int standbys) {
  StandbyChoice choice{own, kStandbyTimeout, Instant{}};
  std::vector<Standby> all;
  for (int i = 1; i <= standbys; ++i) all.push_back({.node = "n" + std::to_string(i), .at = at(i)});
  choice.set(std::move(all));
  choice.lost(kLoss);
  return choice;
}

}  // namespace

TEST_CASE("all agents call the first standby, and in every second window another one first",
          "[rendezvous][standby_choice]") {
  const auto spare = choice_of("n9", 3);
  std::vector<HostPort> first;
  for (int window = 0; window < 6; ++window)
    first.push_back(spare.to_call(at(0), kLoss + window * kWindow).front());
  CHECK(first == std::vector{at(1), at(2), at(1), at(3), at(1), at(1)});
}

TEST_CASE("a standby waits for votes in its own window, and votes for another one else",
          "[rendezvous][standby_choice]") {
  const auto second = choice_of("n2", 3);
  CHECK(second.to_call(at(0), kLoss) == std::vector{at(1)});
  CHECK(second.to_call(at(0), kLoss + kWindow).empty());
  CHECK(choice_of("n1", 3).to_call(at(0), kLoss).empty());
}

TEST_CASE("a standby that can't be reached is passed over until the window ends",
          "[rendezvous][standby_choice]") {
  auto spare = choice_of("n9", 3);
  spare.pass_over(at(1), kLoss);
  CHECK(spare.to_call(at(0), kLoss) == std::vector{at(2), at(1)});
  spare.pass_over(at(2), kLoss);
  CHECK(spare.to_call(at(0), kLoss) == std::vector{at(3), at(2), at(1)});
  CHECK(spare.to_call(at(0), kLoss + 2 * kWindow) == std::vector{at(1)});
  SECTION("a new loss forgets it, too") {
    spare.lost(kLoss + Millis{1});
    CHECK(spare.to_call(at(0), kLoss + Millis{1}) == std::vector{at(1)});
  }
}

TEST_CASE("the lost coordinator isn't called as a standby", "[rendezvous][standby_choice]") {
  CHECK(choice_of("n9", 3).to_call(at(1), kLoss).front() == at(2));
}

TEST_CASE("a standby that stands calls nobody until its window ends",
          "[rendezvous][standby_choice]") {
  auto second = choice_of("n2", 3);
  second.stand(kLoss + Millis{10});
  CHECK(second.to_call(at(0), kLoss + kWindow - Millis{1}).empty());
  CHECK(second.to_call(at(0), kLoss + 2 * kWindow) == std::vector{at(1)});
  SECTION("or until it stands no more") {
    second.stand_no_more();
    CHECK(second.to_call(at(0), kLoss + Millis{10}) == std::vector{at(1)});
  }
}

TEST_CASE("two standbys that vote for each other agree on who was first",
          "[rendezvous][standby_choice]") {
  const auto first = choice_of("n1", 3);
  CHECK(first.is_before(at(3), "n3"));
  CHECK_FALSE(choice_of("n3", 3).is_before(at(1), "n1"));
  CHECK_FALSE(first.is_before(at(3), "n2"));  // another process has that address now
  CHECK_FALSE(choice_of("n9", 3).is_before(at(1), "n1"));
}
