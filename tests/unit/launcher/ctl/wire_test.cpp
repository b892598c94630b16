#include "launcher/ctl/wire.hpp"

#include "tests/unit/launcher/ctl/played_service.hpp"

#include <catch2/catch.hpp>

#include <thread>

namespace acc::ctl {

namespace {

/// More than a socket takes: the service closes while the rest of it is still to be sent.
std::string long_text() { return std::string(std::size_t{4} << 20U, 'x'); }

}  // namespace

SCENARIO("a refusal before the request was read came out as 'Broken pipe'", "[ctl]") {
  PlayedService service;
  GIVEN("a service that answers and closes without reading") {
    std::thread plays{[&] {
      service.accept();
      service.says("HTTP/1.1 503 Unavailable\r\nContent-Length: 17\r\n\r\n{\"error\": \"full\"}");
      service.closes();
    }};
    const auto answer = ask_service(service.path(), {.method = "POST", .body = long_text()});
    plays.join();
    REQUIRE(answer.has_value());
    CHECK(answer->status == 503);
    CHECK(answer->body == R"({"error": "full"})");
  }
  GIVEN("one that closes without a word") {
    std::thread plays{[&] {
      service.accept();
      service.closes();
    }};
    const auto answer = ask_service(service.path(), {.method = "POST", .body = long_text()});
    plays.join();
    REQUIRE(answer.has_error());
    CHECK_THAT(answer.error().what, Catch::Contains("closed the connection without an answer"));
  }
  GIVEN("an agent that answers and closes without reading") {
    std::thread plays{[&] {
      service.accept();
      service.says("{\"error\": \"no\"}\n");
      service.closes();
    }};
    const auto answer = ask_agent(service.path(), long_text());
    plays.join();
    REQUIRE(answer.has_value());
    CHECK(*answer == "{\"error\": \"no\"}\n");
  }
}

}  // namespace acc::ctl
