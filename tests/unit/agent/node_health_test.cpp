#include "agent/node_health.hpp"

#include "agent/guardian_board.hpp"

#include <catch2/catch.hpp>

#include <string>
#include <utility>
#include <vector>

using namespace acc;
using namespace acc::agent;

namespace {

struct SeenHealth {
  boost::asio::io_context io{1};
  JobPlan plan;
  GroupState group;
  std::vector<std::pair<health::Finding, bool>> found;
  std::vector<std::string> unfit;
  NodeHealth health{
      io,
      plan,
      GuardianLink{},
      group,
      {[this](const auto& finding, bool is_shown) { found.emplace_back(finding, is_shown); },
       [this](const std::string& why) { unfit.push_back(why); }}};
};

}  // namespace

TEST_CASE("without --health no round waits for a check", "[agent][health]") {
  SeenHealth node;
  std::vector<std::string> answers;
  node.health.check_before_round([&](const std::string& why) { answers.push_back(why); });
  CHECK(answers == std::vector<std::string>{""});
  node.group.phase = Phase::running;
  node.health.round_started();
  CHECK(node.io.poll() == 0);  // nor does a timer run
  CHECK_FALSE(node.health.is_known());
  CHECK(node.health.findings().empty());
}

TEST_CASE("a clock that differs from the coordinator's is a warning, also without --health",
          "[agent][health]") {
  SeenHealth node;
  node.health.note_clock_skew(Millis{-3'000});
  REQUIRE(node.found.size() == 1);
  CHECK(node.found[0].second);
  CHECK(node.found[0].first.severity == health::Severity::warning);
  CHECK(node.found[0].first.words.find("its clock is 3 s behind the coordinator's") == 0);
  node.health.note_clock_skew(Millis{2'000});
  CHECK(node.found.at(1).first.words.find("its clock is 2 s ahead of the coordinator's") == 0);
  CHECK(node.health.is_known());
  CHECK(node.health.findings().size() == 1);  // the last one
  CHECK(node.unfit.empty());
}
