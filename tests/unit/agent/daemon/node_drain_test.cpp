#include "agent/daemon/node_drain.hpp"

#include <catch2/catch.hpp>

#include <string>

using acc::agent::daemon::unfit_reason;

TEST_CASE("a node is drained for the reason in the report of the job that found it unfit",
          "[daemon]") {
  CHECK(unfit_reason(R"({"reason": "GPU 2: 14 errors", "start_failure": "no"})") ==
        "GPU 2: 14 errors");
  CHECK(unfit_reason(R"({"start_failure": "disk full", "reason": null})") == "disk full");
}

TEST_CASE("a report that says nothing drains as unfit, whatever bytes it has", "[daemon]") {
  for (const std::string& report :
       {std::string{}, std::string{"{"}, std::string{"[]"}, std::string{R"({"reason": 7})"},
        std::string{"\xff\0", 2}, std::string(100'000, '[')})
    CHECK(unfit_reason(report) == "unfit");
}
