#include "agent/descriptor_limit.hpp"

#include "common/unique_fd.hpp"

#include <catch2/catch.hpp>

#include <fcntl.h>

using namespace acc;
using namespace acc::agent;
using Catch::Contains;

TEST_CASE("what workers take of descriptors follows from where their output goes", "[agent]") {
  OutputPlan plan;
  ConsoleFacts console;
  console.same_target = true;
  CHECK(descriptors_of_workers(plan, 100, console) == 200);  // a pidfd and one pipe
  console.same_target = false;
  CHECK(descriptors_of_workers(plan, 100, console) == 300);
  plan.redirects.all = Streams::both;
  CHECK(descriptors_of_workers(plan, 100, console) == 500);  // and two files
  plan.redirects.all = Streams::none;
  plan.capture = Choice::no;
  CHECK(descriptors_of_workers(plan, 100, console) == 100);
}

TEST_CASE("too few descriptors are told with the number that would do", "[agent]") {
  CHECK(describe_shortage(64, 210, 210).empty());
  const auto words = describe_shortage(64, 210, 100);
  CHECK_THAT(words, Contains("cannot start 64 workers: that takes 210 descriptors"));
  CHECK_THAT(words, Contains("the limit is 100"));
  CHECK_THAT(words, Contains("ulimit -n 210"));
  CHECK_THAT(describe_shortage(1, 2, 1), Contains("1 worker:"));
}

TEST_CASE("open descriptors are counted", "[agent]") {
  const auto before = count_open_descriptors();
  const UniqueFd one{::open("/dev/null", O_RDONLY)};
  CHECK(count_open_descriptors() == before + 1);
}
